"""Checkpoints for peers: trained weights, or those that the node started with (interface 2.3, 4.3).

Terms: the *phase* is the stage of the training, by the version of the weights (decision 0097). A
node that joins the rounds needs the outer momentum too, so every checkpoint has it; before the
first round it is zero.

Invariant: metadata and checkpoint agree, because both come from the same anchor.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from meshnode.domain.errors import (
    InvalidRequest,
    RateLimited,
    StartupError,
    Unavailable,
    public_reason,
)
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.anchor_pieces import CONTENTS, Contents, Unit, read_piece
from meshnode.model.checkpoint import MAX_BYTES, dump_anchor
from meshnode.model.manifest import parts_of
from meshnode.model.trained_model import Anchor
from meshnode.model.transfer import FIELD
from meshnode.services.model_source import ModelSource
from meshnode.services.training.learner import RoundLearner
from meshnode.services.training.pipeline_learner import PipelineAnchor
from meshnode.services.training.trainer import TrainingService
from meshnode.wire.frames import frame

log = logging.getLogger(__name__)

MAX_WAITING = 32
"""Answers that wait while another is made: pieces for eight nodes that ask for four at once."""
_PHASES = ((0, "bootstrap"), (9, "early"), (99, "middle"))


Served = Callable[[Unit], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """The metadata of a checkpoint. ``loss`` is on held-out data, 0.0 if it was not measured."""

    version: int
    model_hash: str
    params: int
    loss: float

    @property
    def phase(self) -> str:
        """The stage of the training."""
        return next((name for most, name in _PHASES if self.version <= most), "mature")


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """A checkpoint, or the reason why there is none."""

    info: CheckpointInfo
    data: bytes = b""
    total_size: int = 0
    """Bytes of the checkpoint before framing."""
    error: str = ""


def unit_of_checkpoint(text: str) -> Unit | None:
    """The piece of a checkpoint that a ``shard_range`` names; None if it names something else."""
    return Unit.parse(text)


class Checkpoints:
    """Handle of the checkpoints that this node serves."""

    def __init__(
        self, source: ModelSource, training: TrainingService, served: Served | None = None
    ) -> None:
        """``source`` is the model that the node was started with.

        ``served`` reads pieces of trained layers that this node serves.
        """
        self._served = served
        self._source = source
        self._training = training
        self._making = trio.CapacityLimiter(1)
        self._contents: tuple[str, bytes] | None = None
        """Of the last anchor that was asked for, by its model hash."""
        self._rested: Anchor | None = None
        """Trained weights that were read from the disk because a peer asked for them."""

    def info(self) -> CheckpointInfo:
        """The metadata of the checkpoint that :meth:`get` returns now."""
        rounds, parameters = self._training.rounds, self._source.config.parameters
        if rounds is None:
            resting = self._training.resting
            if resting is None:
                return CheckpointInfo(0, self._source.manifest.weights_hash, parameters, 0.0)
            kept = resting.kept
            loss = resting.validation_loss if kept.version else 0.0
            return CheckpointInfo(kept.version, kept.model_hash, parameters, loss)
        # Kept weights are published once they are on the disk; by then they are the anchor.
        kept = rounds.record.published.kept
        return CheckpointInfo(
            kept.version, kept.model_hash, parameters, rounds.record.validation_loss
        )

    async def get(self, model_hash: str, min_version: int) -> CheckpointAnswer:
        """The checkpoint, if it has this ``model_hash`` (or that is empty) and is new enough."""
        info = self.info()
        if model_hash and model_hash != info.model_hash:
            return CheckpointAnswer(info, error="this node has other weights")
        if min_version > info.version:
            return CheckpointAnswer(info, error=f"this node is at version {info.version}")
        anchor = await self._anchor()
        if anchor is not None and anchor.model_hash != info.model_hash:
            return CheckpointAnswer(info, error="the weights are changing; ask again")
        if anchor is None and not self._complete:
            held = self._source.held
            return CheckpointAnswer(
                info, error=f"this node holds layers {held.start}-{held.stop - 1} only: GetWeights"
            )
        if isinstance(anchor, PipelineAnchor):
            contents = Unit(WeightsVersion(info.version, info.model_hash), CONTENTS)
            reason = f"this node holds some of the layers: GetWeights gives pieces, {contents}"
            return CheckpointAnswer(info, total_size=self._size(anchor), error=reason)
        size = self._size(anchor)
        if size > MAX_BYTES:
            contents = Unit(WeightsVersion(info.version, info.model_hash), CONTENTS)
            reason = f"larger than a message: GetWeights gives its pieces, named by {contents}"
            return CheckpointAnswer(info, total_size=size, error=reason)

        def make() -> tuple[bytes, int]:
            dumped = dump_anchor(anchor or self._untrained(), info.version)
            return frame(dumped), len(dumped)

        data, size = await trio.to_thread.run_sync(
            make, limiter=self._making, abandon_on_cancel=True
        )
        return CheckpointAnswer(info, data, size)

    async def piece(self, unit: Unit) -> bytes:
        """A piece of the checkpoint. Raises InvalidRequest or RateLimited."""
        anchor, info = await self._anchor(), self.info()
        if self._making.statistics().tasks_waiting >= MAX_WAITING:
            raise RateLimited(1, "too many nodes are fetching a checkpoint")
        if self._served is not None:
            async with self._making:
                found = await self._served(unit)
            if found is not None:
                return found
        rounds = self._training.rounds
        if isinstance(anchor, PipelineAnchor) and rounds is not None:
            return await self._piece_of_pipeline(rounds.learner, unit)
        if anchor is None or anchor.model_hash != info.model_hash:
            raise InvalidRequest(FIELD, "this node has no checkpoint to give now; ask again")
        if unit.weights != WeightsVersion(info.version, info.model_hash):
            raise InvalidRequest(FIELD, f"this node is at version {info.version}")

        def read() -> bytes:
            if unit.name != CONTENTS:
                return read_piece(anchor, unit)
            if self._contents is None or self._contents[0] != anchor.model_hash:
                self._contents = anchor.model_hash, Contents.of(anchor).document()
            return self._contents[1]

        return await trio.to_thread.run_sync(read, limiter=self._making, abandon_on_cancel=True)

    async def _piece_of_pipeline(self, learner: RoundLearner, unit: Unit) -> bytes:
        async with self._making:
            try:
                return await learner.piece(unit)
            except StartupError as failure:
                raise Unavailable(public_reason(failure)) from None

    @property
    def _complete(self) -> bool:
        return len(self._source.held) == self._source.config.num_layers

    async def _anchor(self) -> Anchor | None:
        """The trained weights; None if there are none, or they cannot be read now."""
        rounds, resting = self._training.rounds, self._training.resting
        if rounds is not None:
            self._rested = None
            return rounds.learner.model.anchor
        if resting is None or not resting.kept.version:
            return None
        if self._rested is None or self._rested.model_hash != resting.kept.model_hash:
            shapes = {n: facts.shape for n, facts in self._source.manifest.tensors.items()}
            read = partial(resting.anchor, shapes)
            try:
                self._rested = await trio.to_thread.run_sync(read, limiter=self._making)
            except StartupError as failure:
                log.warning("%s", failure)
                return None
        return self._rested

    def _size(self, anchor: Anchor | None) -> int:
        shapes = (facts.shape for facts in self._source.manifest.tensors.values())
        copies = 2 if anchor is not None and anchor.momentum_hash else 1
        return copies * 4 * sum(math.prod(shape) for shape in shapes)

    def _untrained(self) -> Anchor:
        parts = parts_of(self._source.config).values()
        with self._source.files.checkpoint() as checkpoint:
            weights = {part.name: checkpoint.parameter([part]) for part in parts}
        return Anchor(weights, {}, self._source.manifest.weights_hash, "")
