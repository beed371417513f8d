"""The handle of a node's training (document, 1, 2.1, 4.3).

A node trains while ``training.enabled`` says so. One that holds the whole model trains a copy of it
in ``rounds`` with others, loaded when that is the case for the first time; one that holds some
layers trains those as its ``part`` of a pipeline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from meshnode.config import Config
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import NodeKey
from meshnode.domain.metering import TrainingFigures
from meshnode.domain.training.agreement import Weights
from meshnode.domain.training.replica import Timings
from meshnode.model.data import TokenData
from meshnode.model.diloco import Rule
from meshnode.model.replica import TrainedModel
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.gossip import Gossip
from meshnode.services.training.messages import report_message
from meshnode.services.training.part import PipelinePart
from meshnode.services.training.quiet_thread import QuietThread
from meshnode.services.training.rounds import TICK_S, Rounds, filed_contribution
from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)

MOST_CONTRIBUTION = 90 * 1024 * 1024
"""All of a contribution travels in one message (section 8), so it bounds the model."""
HOUR_S = 3600.0
RETRY_S = 10.0
"""Before training is tried again that could not begin, or had no room on the disk."""

Load = Callable[[], tuple[TrainedModel, TokenData]]


class Training:
    """What others ask of a node's training."""

    def __init__(
        self,
        *,
        key: NodeKey,
        settings: Callable[[], Config],
        gossip: Gossip,
        load: Load,
        folder: Path,
        timings: Timings | None = None,
        rule: Rule = Rule.TRIMMED_MEAN,
        part: PipelinePart | None = None,
    ) -> None:
        """``load`` blocks; it is called when training is enabled for the first time.

        A node that has a ``part`` in a pipeline trains that, and takes part in no rounds.
        """
        self.gossip = gossip
        self.node_id = key.node_id
        self.rounds: Rounds | None = None
        """None before training was enabled for the first time."""
        self.part = part
        self.beginning = False
        """Whether the model for it is being read."""
        self.problem = ""
        """Why this node does not train although it should, in words for its operator."""
        self._key = key
        self._settings = settings
        self._load = load
        self._folder = folder
        self._timings = timings or Timings()
        self._rule = rule

    @property
    def enabled(self) -> bool:
        """Whether this node trains now."""
        ready = self.rounds is not None or self.part is not None
        return ready and self._settings().training.enabled

    @property
    def inner_steps(self) -> int:
        """Inner steps between two outer steps, as the settings have it now."""
        return self._settings().training.diloco_steps

    def status(self) -> pb.TrainingStatus | None:
        """What this node tells of its training; None while it does not train."""
        if self.rounds is None or not self.enabled:
            return None
        return report_message(self.rounds.published, self.figures_message())

    def figures_message(self) -> pb.TrainingFigures:
        """What this node has measured."""
        if self.rounds is None:
            return pb.TrainingFigures()
        progress, tally = self.rounds.progress, self.rounds.replica.tally
        return pb.TrainingFigures(
            loss=progress.loss,
            validation_loss=progress.validation_loss,
            steps=progress.steps,
            tokens=progress.tokens,
            rounds=tally.rounds,
            successful_syncs=tally.successful_syncs,
            failed_syncs=tally.failed_syncs,
            data_shards=sorted(self.rounds.shards),
        )

    def figures(self) -> TrainingFigures:
        """For ``GET /status`` and ``/metrics``. An epoch is a round whose weights were kept."""
        if self.part is not None:
            return self.part.figures()
        if self.rounds is None:
            return TrainingFigures()
        progress = self.rounds.progress
        hours = max(trio.current_time() - progress.begun_at, 1.0) / HOUR_S
        return TrainingFigures(
            epoch=self.rounds.replica.kept.version,
            step=progress.inner_step,
            loss=progress.loss,
            steps_total=progress.steps,
            steps_per_hour=round(progress.steps / hours),
            gradients_submitted=self.gossip.submitted,
            gradients_accepted=progress.accepted,
        )

    async def take(self, message: pb.GossipGradientRequest) -> tuple[bool, str, int]:
        """A contribution of a peer: accepted, the reason why not, and the round here."""
        rounds = self.rounds
        if rounds is None or not self.enabled:
            return False, "this node does not take part in rounds", 0
        # A disk that fails meanwhile ends these rounds.
        reason = await rounds.take(message)
        return reason is None, reason or "", rounds.replica.round_id

    async def run(self) -> None:
        """Train whenever it is enabled.

        What the operator can mend, a folder or a disk, is said in ``problem`` and tried again:
        serving goes on without training.
        """
        if self.part is not None:
            await self.part.run()
        thread = QuietThread()
        # What was in memory when an earlier run failed is read from the disk again.
        self.rounds = None
        try:
            while True:
                if not self._settings().training.enabled:
                    self.problem = ""
                    await trio.sleep(TICK_S)
                    continue
                try:
                    if self.rounds is None:
                        self.beginning = True
                        try:
                            self.rounds = await self._begin(thread)
                        finally:
                            self.beginning = False
                        self.problem = ""
                    await self.rounds.run()
                    log.info("training: switched off")
                except* (StartupError, OSError) as group:
                    self.rounds, self.problem = None, _in_words(group)
                    log.error("training: %s", self.problem)
                    await self._pause()
        finally:
            thread.close()

    async def _pause(self) -> None:
        """Wait for a while, or until training is switched off."""
        with trio.move_on_after(RETRY_S):
            while self._settings().training.enabled:  # noqa: ASYNC110 - settings have no event
                await trio.sleep(TICK_S)

    async def _begin(self, thread: QuietThread) -> Rounds:
        model, data = await thread(self._load)
        if 4 * model.parameters > MOST_CONTRIBUTION:
            raise StartupError("training: the model is too large for one message a round")
        initial = Weights(0, model.anchor.model_hash)
        disk = await trio.to_thread.run_sync(partial(TrainingDisk, self._folder, initial))
        persisted, anchor, losses = await thread(partial(disk.load, model.shapes))
        if anchor is not None:
            await thread(partial(model.adopt, anchor))
        filed = await thread(partial(filed_contribution, disk, persisted.contributed))
        return Rounds(
            key=self._key,
            settings=self._settings,
            gossip=self.gossip,
            model=model,
            data=data,
            disk=disk,
            thread=thread,
            persisted=persisted,
            filed=filed,
            losses=losses,
            timings=self._timings,
            rule=self._rule,
        )


def _in_words(group: BaseExceptionGroup[BaseException]) -> str:
    """The first of the failures."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first).removeprefix("training: ")


async def serve_training(
    training: Training, *, task_status: trio.TaskStatus[Training] = trio.TASK_STATUS_IGNORED
) -> None:
    """Train until cancelled, whenever it is enabled; starts with ``training`` itself.

    A damaged folder, or a model that cannot be trained, is said in ``training.problem``.
    """
    task_status.started(training)
    await training.run()
