"""What a holder of some layers does when pipelines exchange what they learn (decision 0222).

A pipeline takes part in the rounds as one replica, for which its driver speaks. The driver's
commands let each holder do for its own layers what a node with the whole model does for all:

==========  ======================================================================================
action      a holder
==========  ======================================================================================
restore     goes to a version that it has: the start of a round
part        gives what its layers have learned since a version, and files what it leaves unsent
name        files that rest under the digest of the contribution that the parts have made
offer       takes the part of another node's contribution that is about its layers
apply       makes new weights of a version and the contributions that count, as a candidate
fetch       makes a candidate of weights that other nodes have
keep        makes a candidate, or an earlier version, the new version, and goes on from it
piece       gives rows of a tensor of a version
facts       gets a version ready to be served (``services.versions.holder``; decision 0246)
serve       serves a version
==========  ======================================================================================

Invariants: a command may come again, and then changes nothing more; new weights are on the disk
before a step is taken from them; what a command brings is checked and bounded before it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import safetensors.torch
import trio
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.position import Place, Position, version_in
from meshnode.model.checkpoint import VELOCITY
from meshnode.model.decoder import Decoder
from meshnode.model.diloco import Rule, SparseTensor, aggregate, dense
from meshnode.model.feedback import FeedbackUnreadable, contribute
from meshnode.model.manifest import TensorFacts, facts_of_tensors
from meshnode.model.outer_step import STEPS
from meshnode.model.weights import checkpoint_views
from meshnode.services.gradient_values import PackedGradients, check_gradients, packed, unpacked
from meshnode.services.shards.exchange_files import ExchangeFiles, Shapes, Tensors
from meshnode.services.shards.training import ShardTrainer
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import BLOCK, Format, Packing, packing_of

log = logging.getLogger(__name__)

Result = TypeVar("Result")
MAX_OFFERS = 256
"""Contributions of one round: as many as a report may name."""
MAX_OFFERED_BYTES = 1 << 30
"""Of all of them together."""

Answer = Callable[[pb.LayerCommand], Awaitable[pb.LayerAnswer]]
Serve = Callable[[pb.LayerCommand, str], Awaitable[pb.LayerAnswer]]
"""Does what a driver, named by its node id, asks of what is served."""
Fetch = Callable[[pb.LayerCommand], Awaitable[Tensors | None]]
"""The checked tensors that a command names, from other nodes; None if these do not give them."""


class LayerExchange:
    """One holder's part."""

    def __init__(
        self,
        trainer: ShardTrainer,
        files: ExchangeFiles,
        shapes: Shapes,
        *,
        tied: str = "",
        fetch: Fetch | None = None,
    ) -> None:
        """``shapes`` are those of the tensors of the held layers.

        ``tied`` names a tensor that another holder has too, as its head or as its embedding. What
        the two have learned of it counts half each.
        """
        self.trainer = trainer
        self.shapes = shapes
        self.tied = tied
        self._files = files
        self._fetch_tensors = fetch
        self._offers: dict[str, dict[str, bytes]] = {}
        self._one = trio.Lock()
        self._at: tuple[Position, int] | None = None
        """The version whose weights are in memory, and the count of steps when they came."""
        self.serving: Mapping[str, Serve] = {}
        """What does the commands that are about serving; they wait for no others."""
        self._actions: Mapping[str, Answer] = {
            "restore": self._restore,
            "part": self._part,
            "name": self._name,
            "offer": self._offer,
            "apply": self._apply,
            "fetch": self._fetch,
            "keep": self._keep,
            "piece": self._piece,
        }

    async def answer(self, command: pb.LayerCommand, driver: str = "") -> pb.LayerAnswer:
        """Do what a driver asks, by default this node's own. Raises InvalidRequest and OSError."""
        if (serve := self.serving.get(command.action)) is not None:
            return await serve(command, driver)
        act = self._actions.get(command.action)
        if act is None:
            known = (*self._actions, *self.serving)
            raise InvalidRequest("action", f"must be one of {', '.join(known)}")
        async with self._one:
            return await act(command)

    async def _restore(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        position = Position(version_in(command.version))
        if self._at == (position, self.trainer.steps) and self.trainer.position == position:
            return pb.LayerAnswer()
        async with self.trainer.paused() as (decoder, compute):
            weights = await _blocking(self._files.weights, position.version)
            if weights is None:
                return pb.LayerAnswer(missing=f"version {position.version}")
            await self.trainer.versions.return_to(position, weights, decoder, compute)
            self.trainer.replaced(moments=False)
            self._at = position, self.trainer.steps
        return pb.LayerAnswer()

    async def _part(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        version = version_in(command.version)
        if command.format not in set(Format) or command.parameters < 1:
            raise InvalidRequest("format", "is unknown, or parameters are missing")
        if not 0 <= command.kept <= BLOCK:
            raise InvalidRequest("kept", f"must be 1 to {BLOCK}")
        if not command.layer_gradients.keys() <= {self.tied}:
            raise InvalidRequest("layer_gradients", "may have the tensor that is held twice")
        async with self.trainer.paused() as (decoder, _):
            if self.trainer.position.version != version:
                return pb.LayerAnswer(missing=f"what was learned since version {version}")
            frames = await _blocking(self._contribution, command, decoder)
        self._offers.clear()
        if frames is None:
            return pb.LayerAnswer(missing=f"version {version}")
        return pb.LayerAnswer(layer_gradients=frames)

    def _contribution(self, command: pb.LayerCommand, decoder: Decoder) -> dict[str, bytes] | None:
        anchor = self._files.weights(version_in(command.version))
        if anchor is None:
            return None
        try:
            feedback = self._files.rest(command.feedback)
        except FeedbackUnreadable as problem:
            log.warning("%s; what was not sent in earlier rounds is lost", problem)
            feedback = {}
        views = checkpoint_views(decoder)
        gradient = {name: anchor[name] - views[name] for name in self.shapes}
        if self.tied:
            gradient[self.tied] *= 0.5
        for name, data in command.layer_gradients.items():
            gradient[name] += dense(unpacked(data, self.shapes[name], name))

        packing = _packing(command)

        def encode(name: str, tensor: Tensor) -> tuple[bytes, Tensor | SparseTensor]:
            data = packed(tensor, packing)
            return data, unpacked(data, self.shapes[name], name)

        frames, rest = contribute(gradient, feedback, encode)
        self._files.keep_rests(command.feedback)
        self._files.save_rest(command.name, rest)
        return frames

    async def _name(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        found = await _blocking(self._files.name_rest, command.name, command.feedback)
        return pb.LayerAnswer(missing="" if found else f"the rest {command.name}")

    async def _offer(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        frames = dict(command.layer_gradients)
        if frames.keys() != self.shapes.keys():
            raise InvalidRequest("layer_gradients", "must name exactly the tensors held here")
        await _blocking(check_gradients, PackedGradients(frames, self.shapes))
        total = sum(len(data) for one in self._offers.values() for data in one.values())
        if len(self._offers) >= MAX_OFFERS or total > MAX_OFFERED_BYTES:
            raise InvalidRequest("layer_gradients", "too many contributions to one round")
        self._offers[command.name] = frames
        return pb.LayerAnswer()

    async def _apply(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        if not command.digests or len(command.scales) != len(command.digests):
            raise InvalidRequest("scales", "must be one for each contribution")
        if not all(0.0 <= scale <= 1.0 for scale in command.scales):
            raise InvalidRequest("scales", "must be between 0 and 1")
        if len(command.weights) not in (0, len(command.digests)):
            raise InvalidRequest("weights", "must be one for each contribution, or none")
        if not all(0.0 < weight <= 1.0 for weight in command.weights):
            raise InvalidRequest("weights", "must be above 0 and at most 1")
        if not 0 <= command.step < len(STEPS):
            raise InvalidRequest("step", "is unknown")
        lacking = [digest for digest in command.digests if digest not in self._offers]
        if lacking:
            return pb.LayerAnswer(missing=f"contribution {lacking[0]}")
        facts = await _blocking(self._applied, command)
        if facts is None:
            return pb.LayerAnswer(missing=f"version {command.version}")
        return pb.LayerAnswer(tensors=tensor_messages(facts))

    def _applied(self, command: pb.LayerCommand) -> Mapping[str, TensorFacts] | None:
        version = version_in(command.version)
        anchor, momentum = self._files.weights(version), self._files.momentum(version)
        if anchor is None or momentum is None:
            return None
        offers = [PackedGradients(self._offers[digest], self.shapes) for digest in command.digests]
        weighing = list(command.weights) or None
        gradient = aggregate(Rule.TRIMMED_MEAN, offers, list(command.scales), weighing)
        weights, velocity = STEPS[command.step].apply(anchor, momentum, gradient, offers)
        return self._save(command.name, weights, velocity)

    def _save(self, name: str, weights: Tensors, velocity: Tensors) -> Mapping[str, TensorFacts]:
        # Another candidate was of a round that was not finished.
        self._files.tidy()
        self._files.save_candidate(name, weights, velocity)
        moving = {VELOCITY + name: tensor for name, tensor in velocity.items()}
        return facts_of_tensors({**weights, **moving}.items())

    async def _fetch(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        found = None if self._fetch_tensors is None else await self._fetch_tensors(command)
        if found is None:
            return pb.LayerAnswer(missing=f"version {command.version}")
        velocity = {n.removeprefix(VELOCITY): t for n, t in found.items() if n not in self.shapes}
        weights = {name: found[name] for name in self.shapes}
        facts = await _blocking(self._save, command.name, weights, velocity)
        return pb.LayerAnswer(tensors=tensor_messages(facts))

    async def _keep(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        version = version_in(command.version)
        if not version.number:
            raise InvalidRequest("version", "must be above 0")
        trainer = self.trainer
        async with trainer.paused() as (decoder, compute):
            found = await _blocking(self._found, command)
            if found is None:
                return pb.LayerAnswer(missing=f"the weights of version {version}")
            weights, velocity = found
            place = Place(Position(version), Position(trainer.position.version))
            if version in trainer.versions.versions:
                # Kept before. What it was made from stays, for a driver that has not noted it yet.
                await trainer.versions.return_to(place.position, weights, decoder, compute)
            else:
                await _blocking(self._files.save_momentum, version, velocity)
                await trainer.versions.become(place, weights, decoder, compute)
            trainer.replaced(moments=True)
            self._at = place.position, trainer.steps
            await _blocking(self._files.tidy)
            self._offers.clear()
        return pb.LayerAnswer()

    def _found(self, command: pb.LayerCommand) -> tuple[Tensors, Tensors] | None:
        """The weights and momentum that are to be kept as a version."""
        version = version_in(command.version)
        kept = version in self.trainer.versions.versions
        if (
            command.name
            and not kept
            and (candidate := self._files.candidate(command.name)) is not None
        ):
            return candidate
        source = version if command.name or kept else version_in(command.source)
        weights, momentum = self._files.weights(source), self._files.momentum(source)
        return None if weights is None or momentum is None else (weights, momentum)

    async def _piece(self, command: pb.LayerCommand) -> pb.LayerAnswer:
        data = await _blocking(self._rows, command)
        if data is None:
            return pb.LayerAnswer(missing=f"{command.name} of version {command.version}")
        return pb.LayerAnswer(piece=data)

    def _rows(self, command: pb.LayerCommand) -> bytes | None:
        version, name = version_in(command.version), command.name
        moving = name.startswith(VELOCITY)
        found = self._files.momentum(version) if moving else self._files.weights(version)
        tensor = (found or {}).get(name.removeprefix(VELOCITY) if moving else name)
        if tensor is None:
            return None
        first, stop = command.first_row, command.stop_row or len(tensor)
        if not 0 <= first < stop <= len(tensor):
            raise InvalidRequest("first_row", f"{name} has rows 0 to {len(tensor)}")
        return safetensors.torch.save({name: tensor[first:stop].contiguous()})


def _packing(command: pb.LayerCommand) -> Packing:
    """How the driver wants a contribution to be written."""
    kind = Format(command.format)
    usual = packing_of(kind.name.lower(), command.parameters)
    return Packing(kind, command.kept) if command.kept else usual


async def _blocking(function: Callable[..., Result], *arguments: object) -> Result:
    """Run in a thread what reads files or computes for long."""
    return await trio.to_thread.run_sync(partial(function, *arguments))


def tensor_messages(facts: Mapping[str, TensorFacts]) -> list[pb.LayerTensor]:
    """What an answer says of tensors."""
    return [pb.LayerTensor(name=f.name, shape=f.shape, sha256=f.sha256) for f in facts.values()]


def facts_in(tensors: list[pb.LayerTensor]) -> dict[str, TensorFacts]:
    """The opposite of :func:`tensor_messages`."""
    return {one.name: TensorFacts(one.name, tuple(one.shape), one.sha256) for one in tensors}
