"""The handle of a node's training (interface 1, 2.1, 4.3).

A node trains while ``training.enabled`` is on. A node that holds the whole model trains a copy of
it in ``rounds`` with others; the copy is loaded when training is first enabled. A node that holds
some of the layers trains those, as its ``part`` of a pipeline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from meshnode.domain.errors import StartupError, public_reason
from meshnode.domain.identity import NodeKey
from meshnode.domain.metering import TrainingFigures
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Replica
from meshnode.model.data import TokenData
from meshnode.model.diloco import Rule
from meshnode.model.trained_model import TrainedModel
from meshnode.services.settings import LiveSettings
from meshnode.services.training.contributions import (
    FORWARD_POLLS,
    ContributionStore,
    filed_contribution,
)
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.gossip import GradientGossip
from meshnode.services.training.learner import Learner
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.services.training.messages import report_message
from meshnode.services.training.part import PipelinePart
from meshnode.services.training.record import RoundRecord
from meshnode.services.training.rounds import Rounds
from meshnode.services.training.timings import TRAINING_TIMINGS, TrainingTimings
from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)

MAX_CONTRIBUTION = 90 * 1024 * 1024
"""A contribution travels in one message (interface 8), which bounds the size of the model."""
HOUR_S = 3600.0

Load = Callable[[], tuple[TrainedModel, TokenData]]


class TrainingService:
    """The node's training, as the rest of the node sees it."""

    def __init__(
        self,
        *,
        key: NodeKey,
        settings: LiveSettings,
        gossip: GradientGossip,
        load: Load,
        folder: Path,
        timings: TrainingTimings = TRAINING_TIMINGS,
        rule: Rule = Rule.TRIMMED_MEAN,
        part: PipelinePart | None = None,
        freed: Callable[[], None] = lambda: None,
    ) -> None:
        """``load`` blocks; it is called when training is first enabled.

        A node with a ``part`` in a pipeline trains that part, and takes part in no rounds.
        ``freed`` is called while training is off, after its memory has been freed: at the start,
        when it is switched off, and after each later change of a setting.
        """
        self.gossip = gossip
        self.node_id = key.node_id
        self.rounds: Rounds | None = None
        """None until training is first enabled."""
        self.part = part
        self.beginning = False
        """Whether the model to train is being loaded."""
        self.problem = ""
        """Why this node does not train although it should, in words for the operator."""
        self._key = key
        self._settings = settings
        self._load = load
        self._folder = folder
        self._timings = timings
        self._rule = rule
        self._freed = freed
        self.loaded = False
        """Whether the model to train is in memory."""

    @property
    def enabled(self) -> bool:
        """Whether this node trains now."""
        ready = self.rounds is not None or self.part is not None
        return ready and self._settings.current.training.enabled

    @property
    def inner_steps(self) -> int:
        """Inner steps between two outer steps, by the present settings."""
        return self._settings.current.training.diloco_steps

    def status(self) -> pb.TrainingStatus | None:
        """This node's report on its rounds; None while it takes part in none."""
        if self.rounds is None or not self.enabled:
            return None
        return report_message(self.rounds.record.published, self.figures_message())

    def figures_message(self) -> pb.TrainingFigures:
        """The figures that this node has measured."""
        if self.rounds is None:
            return pb.TrainingFigures()
        learner, tally = self.rounds.learner, self.rounds.replica.tally
        progress = learner.progress
        return pb.TrainingFigures(
            loss=progress.loss,
            validation_loss=self.rounds.record.validation_loss,
            steps=progress.steps,
            tokens=progress.tokens,
            rounds=tally.rounds,
            successful_syncs=tally.successful_syncs,
            failed_syncs=tally.failed_syncs,
            data_shards=sorted(learner.shards),
        )

    def figures(self) -> TrainingFigures:
        """For ``GET /status`` and ``/metrics``. An epoch is a round whose weights were kept."""
        if self.part is not None:
            return self.part.figures()
        if self.rounds is None:
            return TrainingFigures()
        progress = self.rounds.learner.progress
        hours = max(trio.current_time() - progress.begun_at, 1.0) / HOUR_S
        return TrainingFigures(
            epoch=self.rounds.replica.kept.version,
            step=progress.inner_step,
            loss=progress.loss,
            steps_total=progress.steps,
            steps_per_hour=round(progress.steps / hours),
            gradients_submitted=self.gossip.submitted,
            gradients_accepted=self.rounds.contributions.accepted,
        )

    async def take(self, message: pb.GossipGradientRequest) -> tuple[bool, str, int]:
        """Take a contribution of a peer. Returns whether it was accepted, why not, and the
        round."""
        rounds = self.rounds
        if rounds is None or not self.enabled:
            return False, "this node does not take part in rounds", 0
        # ``self.rounds`` may become None in the meantime, if the disk fails.
        reason = await rounds.take(message)
        return reason is None, reason or "", rounds.replica.round_id

    async def run(self) -> None:
        """Train whenever it is enabled.

        A problem that the operator can mend, such as a full disk, is reported in ``problem``, and
        training is tried again; the node goes on serving without it.
        """
        if self.part is not None:
            await self.part.run()
        thread = LowPriorityThread()
        # After a run that failed, the state is read from the disk again.
        self.rounds = None
        try:
            while True:
                changed = self._settings.changed.next
                if not self._settings.current.training.enabled:
                    self.problem = ""
                    if self.rounds is not None:
                        await self.rounds.learner.unload()
                    self.loaded = False
                    self._freed()
                    await changed.wait()
                    continue
                try:
                    if self.rounds is None:
                        self.beginning = self.loaded = True
                        try:
                            self.rounds = await self._begin(thread)
                        finally:
                            self.beginning = False
                        self.problem = ""
                    self.loaded = True
                    await self.rounds.run()
                    log.info("training: switched off")
                except* (StartupError, OSError) as group:
                    failure = _first(group)
                    self.rounds, self.problem = None, _in_words(failure)
                    self.loaded = False
                    # Only the log names folders: anyone may read the problem.
                    log.error("training: %s", str(failure).removeprefix("training: "))
                    await self._pause()
        finally:
            thread.close()

    async def _pause(self) -> None:
        """Wait for a while, or until training is switched off."""
        with trio.move_on_after(self._timings.resume_s):
            while True:
                changed = self._settings.changed.next
                if not self._settings.current.training.enabled:
                    return
                await changed.wait()

    async def _begin(self, thread: LowPriorityThread) -> Rounds:
        model, data = await thread(self._load)
        if 4 * model.parameters > MAX_CONTRIBUTION:
            raise StartupError("training: the model is too large for one message a round")
        initial = WeightsVersion(0, model.anchor.model_hash)
        disk = await trio.to_thread.run_sync(partial(TrainingDisk, self._folder, initial))
        persisted, anchor, losses = await thread(partial(disk.load, model.shapes))
        if anchor is not None:
            await thread(partial(model.adopt, anchor))
        filed = await thread(partial(filed_contribution, disk, persisted.contributed))
        if filed is None:
            # It cannot be sent again, and a second one for the same round would contradict it.
            persisted = replace(persisted, contributed=None)
        replica = Replica(self.node_id, persisted, trio.current_time(), self._timings.rounds)
        contributions = ContributionStore(
            replica,
            model.shapes,
            is_peer=self.gossip.knows,
            forward_s=FORWARD_POLLS * self._timings.poll_s,
        )
        if filed is not None and persisted.contributed is not None:
            contributions.messages[persisted.contributed] = filed
        seed = int(self.node_id[:8], 16)
        return Rounds(
            key=self._key,
            settings=self._settings,
            gossip=self.gossip,
            replica=replica,
            learner=Learner(model, data, thread, seed=seed, rule=self._rule),
            contributions=contributions,
            record=RoundRecord(replica, disk, losses),
        )


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The first failure of a group."""
    failure = group.exceptions[0]
    return _first(failure) if isinstance(failure, ExceptionGroup) else failure


def _in_words(failure: Exception) -> str:
    """A failure as text for clients without a token."""
    return public_reason(failure).removeprefix("training: ")


async def serve_training(
    training: TrainingService,
    *,
    task_status: trio.TaskStatus[TrainingService] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Train until cancelled, whenever it is enabled; starts with ``training`` itself.

    A damaged folder, or a model that cannot be trained, is reported in ``training.problem``.
    """
    task_status.started(training)
    await training.run()
