"""The versions of a holder's layers in the training of a pipeline (decision 0201).

``domain.training.position`` has the terms. The driver says with each message that steps where the
pipeline is; a holder that is there goes on, one that is not is brought there or refuses.

==============================  ==================================================================
a message's place               a holder of these layers
==============================  ==================================================================
its position, or nearly         goes on
made from its position          keeps its weights as the version, and goes on
``adopt``                       keeps its weights as the version, whatever they are, and goes on
``back``, to a version it has   takes the weights of that version
anything else                   refuses, and says which versions it has
==============================  ==================================================================

Invariant: weights are kept before a step changes them, and replaced only as a whole.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

import trio

from meshnode.domain.training.position import (
    MAX_NUMBER,
    MISSED,
    Elsewhere,
    PipelineVersion,
    Place,
    Position,
    common_version,
)
from meshnode.model.decoder import Decoder
from meshnode.model.weights import checkpoint_tensors, set_checkpoint_tensors
from meshnode.services.shards.trained_layers import Tensors, TrainedLayers

log = logging.getLogger(__name__)

Result = TypeVar("Result")
NAME_BYTES = 8


class Compute(Protocol):
    """Runs a function in the torch thread."""

    def __call__(self, function: Callable[[], Result], /) -> Awaitable[Result]:
        """Its result."""


class LayerVersions:
    """Where this node's layers are, and the versions that it has kept."""

    def __init__(self, disk: TrainedLayers | None = None) -> None:
        """Without a ``disk`` nothing is kept."""
        self._disk = disk
        self._place = Place()
        self.versions: tuple[PipelineVersion, ...] = tuple(disk.versions()) if disk else ()
        """Those on the disk, newest first."""
        if self.versions:
            self._place = Place(Position(self.versions[0]))

    @property
    def position(self) -> Position:
        """Where the layers are."""
        return self._place.position

    def restore(self, decoder: Decoder) -> bool:
        """Set the weights to those of the disk, if there are any that fit. Blocks."""
        found = self._disk.paused() if self._disk is not None else None
        for version in () if found else self.versions:
            found = found or (self._disk.read(version) if self._disk is not None else None)
        self._place = Place()
        if found is None:
            return False
        try:
            set_checkpoint_tensors(decoder, found[0])
        except (KeyError, RuntimeError) as error:
            log.warning("training: trained layers cannot be used: %s", type(error).__name__)
            return False
        self._place = found[1]
        return True

    def pause(self, decoder: Decoder) -> None:
        """Write the weights, because training is switched off. Blocks. Raises OSError."""
        if self._disk is not None:
            self._disk.pause(checkpoint_tensors(decoder), self._place)

    def stepped(self) -> None:
        """Count a step."""
        position = self.position.next
        origin = self._place.origin if position.steps <= MISSED else None
        self._place = Place(position, origin)

    # The driver's part

    def next_place(self, round_steps: int) -> Place:
        """What to say with the next step. A new version begins after ``round_steps`` steps."""
        if self.position.steps < round_steps:
            return self._place
        return Place(Position(_new_version(self.position.version.number + 1)), self.position)

    async def agree(
        self,
        others: Sequence[Sequence[PipelineVersion]],
        decoder: Decoder,
        compute: Compute,
    ) -> bool:
        """Go where holders that were elsewhere can follow; they have said what they have.

        True: the layers have other weights now.
        """
        target = common_version(self.versions, others)
        if target is not None and await self._take(target, decoder, compute):
            log.warning("training: back to version %d, which all nodes have", target.number)
            self._place = Place(self.position, back=True)
            return True
        # Nobody can go back: what is left of the training goes on together.
        log.warning("training: the nodes have no version in common, and go on with what they have")
        highest = max((one.number for versions in others for one in versions), default=0)
        if highest > self.position.version.number:
            self._place = Place(Position(_new_version(highest + 1)), self.position)
            await self._keep(decoder, compute)
        self._place = Place(self.position, adopt=True)
        return False

    # A holder's part

    async def meet(self, place: Place, decoder: Decoder, compute: Compute) -> bool:
        """Bring the layers to a place, before a step from it. True: they have other weights now.

        Raises Elsewhere.
        """
        wanted, own = place.position, self.position
        if place.back and own != wanted:
            if wanted.steps or not await self._take(wanted.version, decoder, compute):
                raise Elsewhere(own, self.versions)
            return True
        if own.is_near(wanted):
            self._place = replace(place, back=False, adopt=False)
            return False
        if not place.adopt and (place.origin is None or not own.is_near(place.origin)):
            raise Elsewhere(own, self.versions)
        self._place = replace(place, adopt=False)
        if wanted.version.number:
            await self._keep(decoder, compute)
        return False

    # What pipelines have agreed on (decision 0222)

    async def return_to(
        self, position: Position, weights: Tensors, decoder: Decoder, compute: Compute
    ) -> None:
        """Go on from these weights, which are those of a version."""
        await compute(partial(set_checkpoint_tensors, decoder, weights))
        self._place = Place(position)

    async def become(
        self, place: Place, weights: Tensors, decoder: Decoder, compute: Compute
    ) -> None:
        """Keep these weights as a version, and go on from them. Raises OSError."""
        if self._disk is not None:
            await trio.to_thread.run_sync(self._disk.keep, weights, place)
            self.versions = tuple(await trio.to_thread.run_sync(self._disk.versions))
        await self.return_to(place.position, weights, decoder, compute)

    async def _keep(self, decoder: Decoder, compute: Compute) -> None:
        if self._disk is None:
            return
        tensors = await compute(partial(checkpoint_tensors, decoder))
        try:
            await trio.to_thread.run_sync(self._disk.keep, tensors, self._place)
        except OSError as error:
            log.error("training: this version is not kept: %s", error.strerror)
        self.versions = tuple(await trio.to_thread.run_sync(self._disk.versions))
        log.info("training: version %s of these layers kept", self.position.version)

    async def _take(self, version: PipelineVersion, decoder: Decoder, compute: Compute) -> bool:
        """Take the weights of a version that was kept. False if that is not possible."""
        if self._disk is None or version not in self.versions:
            return False
        found = await trio.to_thread.run_sync(self._disk.read, version)
        if found is None:
            return False
        await compute(partial(set_checkpoint_tensors, decoder, found[0]))
        self._place = Place(Position(version), found[1].origin)
        # A restart must not go on from what nobody else goes on from.
        await trio.to_thread.run_sync(self._disk.drop_after, version)
        self.versions = tuple(await trio.to_thread.run_sync(self._disk.versions))
        return True


def _new_version(number: int) -> PipelineVersion:
    return PipelineVersion(min(number, MAX_NUMBER), secrets.token_hex(NAME_BYTES))
