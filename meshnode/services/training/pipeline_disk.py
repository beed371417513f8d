"""What the driver of a pipeline keeps of its rounds (decision 0222).

Its folder has the state of the rounds as that of a node with the whole model (``disk``), in a file
of its own. Weights and what contributions left unsent are with the holders; of the weights the
driver keeps the hashes of all tensors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import trio
from torch import Tensor

from meshnode.datadir import write_private
from meshnode.domain.errors import StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Replica
from meshnode.model.anchor_pieces import Contents
from meshnode.model.manifest import TensorFacts
from meshnode.model.trained_model import Anchor
from meshnode.services.gradient_values import Shapes
from meshnode.services.pipeline.exchange import PipelineLayers, version_of
from meshnode.services.training.disk import BEGIN_ANEW, Judging, TrainingDisk
from meshnode.services.training.fetching import (
    CheckpointFetcher,
    CheckpointHolder,
    agreed_momentum,
)
from meshnode.services.training.pipeline_learner import (
    PipelineAnchor,
    PipelineLearner,
    fetch_command,
)
from meshnode.services.training.progress import Counts
from meshnode.services.training.record import RoundRecord


class PipelineDisk(TrainingDisk):
    """The folder. All calls block."""

    round_file = "pipeline.json"
    suffix = "json"

    def anchor(
        self, kept: WeightsVersion, shapes: Shapes, *, mapped: bool = False
    ) -> PipelineAnchor | None:
        """The hashes of weights; None for the untrained ones. Raises StartupError."""
        if kept == self._initial:
            return None
        path = self._anchor(kept)
        try:
            lines = json.loads(path.read_bytes())["tensors"]
            facts = {
                str(one["name"]): TensorFacts(
                    str(one["name"]), tuple(map(int, one["shape"])), str(one["sha256"])
                )
                for one in lines
            }
            anchor = PipelineAnchor.of_facts(facts, shapes, kept)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise StartupError(f"{path.name} is damaged or missing; {BEGIN_ANEW}") from None
        if anchor.model_hash != kept.model_hash:
            raise StartupError(f"{path.name} is of other weights; {BEGIN_ANEW}")
        return anchor

    def has(self, weights: WeightsVersion) -> bool:
        """Whether the hashes of weights are here."""
        return self._anchor(weights).exists()

    def save_anchor(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Save the hashes of weights, before :meth:`save` names them."""
        if not isinstance(anchor, PipelineAnchor):
            raise TypeError("these weights are at one node")
        write_private(self._anchor(weights), Contents(anchor.facts).document())


class PipelineRecord(RoundRecord):
    """Saves the state of the rounds; what contributions leave unsent is saved by the holders."""

    def __init__(
        self,
        replica: Replica,
        disk: PipelineDisk,
        losses: list[float],
        counts: Callable[[], Counts],
        judging: Judging,
        learner: PipelineLearner,
    ) -> None:
        super().__init__(replica, disk, losses, counts, judging)
        self._learner = learner

    async def save_contribution(
        self, digest: str, message: bytes, feedback: Mapping[str, Tensor]
    ) -> None:
        """Save this pipeline's contribution before it is sent. Raises OSError."""
        await self._learner.file_rest(digest)
        await trio.to_thread.run_sync(self._disk.save_contribution, message)

    async def feedback(self, shapes: Shapes) -> dict[str, Tensor]:
        """Nothing: the holders have it."""
        return {}


class PipelineFetcher:
    """Lets the holders of all layers fetch weights of other nodes."""

    def __init__(
        self, layers: PipelineLayers, disk: PipelineDisk, fetcher: CheckpointFetcher
    ) -> None:
        """``fetcher`` reads the contents of other nodes' weights."""
        self._layers = layers
        self._disk = disk
        self._fetcher = fetcher

    async def fetch(
        self, weights: WeightsVersion, holders: Sequence[CheckpointHolder]
    ) -> Anchor | None:
        """The anchor, once all holders have their part of it; None if they do not get it."""
        shapes = self._layers.shapes
        if self._disk.has(weights):
            found = await trio.to_thread.run_sync(self._disk.anchor, weights, shapes)
            if found is not None and await self._layers.have(version_of(weights)):
                return found
        if not holders:
            return None
        momentum, agreed = agreed_momentum(holders)
        contents, willing = await self._fetcher.contents(weights, momentum, agreed)
        if contents is None:
            return None
        command = fetch_command(weights, contents.tensors, willing)
        facts = await self._layers.fetch(command)
        anchor = PipelineAnchor.of_facts(facts, shapes, None, command.name)
        return anchor if anchor.model_hash == weights.model_hash else None
