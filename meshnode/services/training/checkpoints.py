"""Checkpoints for peers: trained weights, or those that the node started with (interface 2.3, 4.3).

Terms: the *phase* is the stage of the training, by the version of the weights (decision 0097). A
node that joins the rounds needs the outer momentum too, so every checkpoint has it; before the
first round it is zero.

Invariant: metadata and checkpoint agree, because both come from the same anchor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import trio

from meshnode.model.checkpoint import dump_anchor
from meshnode.model.manifest import parts_of
from meshnode.model.trained_model import Anchor
from meshnode.model.weights import Checkpoint
from meshnode.services.model_source import ModelSource
from meshnode.services.training.trainer import TrainingService
from meshnode.wire.frames import frame

MAX_BYTES = 95 * 1024 * 1024
"""The most bytes of weights and momentum in a checkpoint, before framing. The rest of a message
(interface 8) is left for what framing adds and for the other fields."""
_PHASES = ((0, "bootstrap"), (9, "early"), (99, "middle"))


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


class Checkpoints:
    """Handle of the checkpoints that this node serves."""

    def __init__(self, source: ModelSource, training: TrainingService) -> None:
        """``source`` is the model that the node was started with."""
        self._source = source
        self._training = training
        self._making = trio.CapacityLimiter(1)

    def info(self) -> CheckpointInfo:
        """The metadata of the checkpoint that :meth:`get` returns now."""
        rounds = self._training.rounds
        if rounds is None:
            return CheckpointInfo(
                0, self._source.manifest.weights_hash, self._source.config.parameters, 0.0
            )
        # Kept weights are published once they are on the disk; by then they are the anchor.
        kept = rounds.record.published.kept
        return CheckpointInfo(
            kept.version,
            kept.model_hash,
            self._source.config.parameters,
            rounds.record.validation_loss,
        )

    async def get(self, model_hash: str, min_version: int) -> CheckpointAnswer:
        """The checkpoint, if it has this ``model_hash`` (or that is empty) and is new enough."""
        info = self.info()
        if model_hash and model_hash != info.model_hash:
            return CheckpointAnswer(info, error="this node has other weights")
        if min_version > info.version:
            return CheckpointAnswer(info, error=f"this node is at version {info.version}")
        anchor = self._anchor()
        if anchor is not None and anchor.model_hash != info.model_hash:
            return CheckpointAnswer(info, error="the weights are changing; ask again")
        if anchor is None and not self._complete:
            held = self._source.held
            return CheckpointAnswer(
                info, error=f"this node holds layers {held.start}-{held.stop - 1} only: GetWeights"
            )
        size = self._size()
        if size > MAX_BYTES:
            return CheckpointAnswer(
                info, total_size=size, error="larger than a message: GetWeights gives layers"
            )

        def make() -> tuple[bytes, int]:
            dumped = dump_anchor(anchor or self._untrained(), info.version)
            return frame(dumped), len(dumped)

        data, size = await trio.to_thread.run_sync(
            make, limiter=self._making, abandon_on_cancel=True
        )
        return CheckpointAnswer(info, data, size)

    @property
    def _complete(self) -> bool:
        return len(self._source.held) == self._source.config.num_layers

    def _anchor(self) -> Anchor | None:
        rounds = self._training.rounds
        return None if rounds is None else rounds.learner.model.anchor

    def _size(self) -> int:
        shapes = (facts.shape for facts in self._source.manifest.tensors.values())
        return 2 * 4 * sum(math.prod(shape) for shape in shapes)

    def _untrained(self) -> Anchor:
        parts = parts_of(self._source.config).values()
        with Checkpoint(self._source.directory) as checkpoint:
            weights = {part.name: checkpoint.parameter([part]) for part in parts}
        still = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        return Anchor(weights, still, self._source.manifest.weights_hash)
