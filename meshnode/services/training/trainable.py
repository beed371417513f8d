"""What a node trains in rounds: the whole model, or the layers of a pipeline that it drives.

Both begin with what is on the disk (interface 2.1; decisions 0095, 0222).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Replica
from meshnode.model.data import TokenData
from meshnode.model.diloco import Rule
from meshnode.model.trained_model import TrainedModel
from meshnode.services.gradient_values import Shapes
from meshnode.services.pipeline.exchange import PipelineLayers
from meshnode.services.training.disk import Saved, TrainingDisk
from meshnode.services.training.fetching import AnchorFetcher, CheckpointFetcher
from meshnode.services.training.learner import Learner, RoundLearner
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.services.training.pipeline_disk import PipelineDisk, PipelineFetcher, PipelineRecord
from meshnode.services.training.pipeline_learner import (
    Facts,
    PipelineAnchor,
    PipelineLearner,
    PipelineModel,
)
from meshnode.services.training.progress import Counts
from meshnode.services.training.record import RoundRecord
from meshnode.services.training.timings import TrainingTimings

FETCHED_FOLDER = "fetched"
"""For pieces of checkpoints."""

Load = Callable[[], tuple[TrainedModel, TokenData]]


@dataclass(frozen=True, slots=True)
class Begun:
    """What rounds need, as far as it depends on where the layers are."""

    learner: RoundLearner
    saved: Saved
    disk: TrainingDisk
    fetcher: AnchorFetcher
    record: Callable[[Replica, Callable[[], Counts]], RoundRecord]


class Trainable(Protocol):
    """Something that can be trained in rounds."""

    async def begin(self, thread: LowPriorityThread) -> Begun:
        """Go on from the disk. Raises StartupError and OSError."""


class WholeModel:
    """A copy of the model at this node."""

    def __init__(
        self, load: Load, folder: Path, timings: TrainingTimings, seed: int, rule: Rule
    ) -> None:
        """``load`` blocks."""
        self._load = load
        self._folder = folder
        self._timings = timings
        self._seed = seed
        self._rule = rule

    async def begin(self, thread: LowPriorityThread) -> Begun:
        """Load the model and set it to the anchor on the disk."""
        model, data = await thread(self._load)
        initial = WeightsVersion(0, model.anchor.model_hash)
        disk = await trio.to_thread.run_sync(partial(TrainingDisk, self._folder, initial))
        saved = await trio.to_thread.run_sync(disk.load)
        anchor = await thread(partial(disk.anchor, saved.persisted.kept, model.shapes))
        if anchor is not None:
            await thread(partial(model.adopt, anchor))

        def record(replica: Replica, counts: Callable[[], Counts]) -> RoundRecord:
            return RoundRecord(replica, disk, saved.losses, counts, saved.judging)

        return Begun(
            Learner(model, data, thread, seed=self._seed, rule=self._rule),
            saved,
            disk,
            fetcher_of(model.shapes, self._folder, self._timings),
            record,
        )


class PipelineRounds:
    """The layers of a pipeline that this node drives."""

    def __init__(
        self,
        *,
        layers: PipelineLayers,
        load: Callable[[], TokenData],
        untrained: Callable[[], Facts],
        parameters: int,
        folder: Path,
        timings: TrainingTimings,
        seed: int,
    ) -> None:
        """``load`` and ``untrained``, the facts of the untrained weights, block."""
        self._layers = layers
        self._load = load
        self._untrained = untrained
        self._parameters = parameters
        self._folder = folder
        self._timings = timings
        self._seed = seed

    async def begin(self, thread: LowPriorityThread) -> Begun:
        """Read the data, and what the disk says of the rounds."""
        shapes = self._layers.shapes
        data = await thread(self._load)
        facts = await thread(self._untrained)
        untrained = PipelineAnchor.of_facts(facts, shapes, None)
        initial = WeightsVersion(0, untrained.model_hash)
        untrained = replace(untrained, source=initial)
        disk = await trio.to_thread.run_sync(partial(PipelineDisk, self._folder, initial))
        saved = await trio.to_thread.run_sync(disk.load)
        anchor = await trio.to_thread.run_sync(disk.anchor, saved.persisted.kept, shapes)
        replicas: list[Replica] = []
        learner = PipelineLearner(
            PipelineModel(anchor or untrained, shapes, self._parameters),
            self._layers,
            data,
            thread,
            seed=self._seed,
            untrained=untrained,
            feedback=lambda: replicas[0].persisted().feedback,
        )

        def record(replica: Replica, counts: Callable[[], Counts]) -> RoundRecord:
            replicas.append(replica)
            return PipelineRecord(replica, disk, saved.losses, counts, saved.judging, learner)

        fetcher = fetcher_of(shapes, self._folder, self._timings)
        return Begun(learner, saved, disk, PipelineFetcher(self._layers, disk, fetcher), record)


def fetcher_of(shapes: Shapes, folder: Path, timings: TrainingTimings) -> CheckpointFetcher:
    """What fetches the weights of these tensors from other nodes."""
    return CheckpointFetcher(
        shapes, folder / FETCHED_FOLDER, whole=timings.whole_bytes, call_s=timings.fetch_s
    )
