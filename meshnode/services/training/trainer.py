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
from meshnode.domain.training.replica import Replica, Tally
from meshnode.model.diloco import Rule
from meshnode.services.settings import LiveSettings
from meshnode.services.training.contributions import (
    FORWARD_POLLS,
    ContributionStore,
    filed_contribution,
)
from meshnode.services.training.disk import anchor_file
from meshnode.services.training.gossip import GradientGossip
from meshnode.services.training.learner import RoundLearner
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.services.training.messages import report_message
from meshnode.services.training.part import PipelinePart
from meshnode.services.training.progress import Counts
from meshnode.services.training.resting import RestingTraining
from meshnode.services.training.rounds import Rounds, Served
from meshnode.services.training.timings import TRAINING_TIMINGS, TrainingTimings
from meshnode.services.training.trainable import Load, PipelineRounds, Trainable, WholeModel
from meshnode.services.wakeup import Wakeup
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import LARGEST, packing_of

log = logging.getLogger(__name__)

HOUR_S = 3600.0


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
        origin: str = "",
        layers: PipelineRounds | None = None,
    ) -> None:
        """``load`` blocks; it is called when training is first enabled.

        With ``layers`` this node drives a pipeline in the rounds, and ``load`` is not called.

        ``origin`` is the hash of the untrained weights, by which the node knows what an earlier
        start kept of their training; empty if that does not matter.

        A node with a ``part`` in a pipeline trains that part, and takes part in no rounds.
        ``freed`` is called while training is off, after its memory has been freed: at the start,
        when it is switched off, and after each later change of a setting.
        """
        self.gossip = gossip
        self.node_id = key.node_id
        self.rounds: Rounds | None = None
        """None until training is first enabled."""
        self.resting: RestingTraining | None = None
        """What an earlier start kept, while ``rounds`` is None."""
        self.part = part
        self.beginning = False
        """Whether the model to train is being loaded."""
        self.problem = ""
        """Why this node does not train although it should, in words for the operator."""
        self._key = key
        self._settings = settings
        self._folder = folder
        self._timings = timings
        self._layers = layers
        seed = int(key.node_id[:8], 16)
        self._trainable: Trainable = layers or WholeModel(load, folder, timings, seed, rule)
        self._freed = freed
        self._origin = origin
        self.loaded = False
        """Whether the model to train is in memory."""
        self.kept = Wakeup()
        """Set when other weights were kept and measured."""
        self.served: Served = lambda: None
        """Gives what this node serves, to be measured beside what is kept."""

    @property
    def enabled(self) -> bool:
        """Whether this node trains now."""
        ready = self.rounds is not None or self.part is not None
        return ready and self._settings.current.training.enabled

    @property
    def anchor_bytes(self) -> int:
        """Memory of the weights that the rounds have kept, and of their outer momentum."""
        if self.rounds is None:
            return 0
        anchor = self.rounds.learner.model.anchor
        return sum(t.nbytes for t in (*anchor.weights.values(), *anchor.velocity.values()))

    @property
    def inner_steps(self) -> int:
        """Inner steps between two outer steps, by the present settings."""
        return self._settings.current.training.diloco_steps

    def status(self) -> pb.TrainingStatus | None:
        """This node's report on its rounds; None while it takes part in none."""
        if self.rounds is None or self.rounds.stopped or not self.enabled:
            return None
        record = self.rounds.record
        report = replace(record.published, left_s=self.rounds.left_s)
        return report_message(report, self.figures_message(), record.momentum_hash)

    @property
    def newest(self) -> tuple[WeightsVersion, Path] | None:
        """The newest weights that the network agreed on, and their file; None before a round."""
        if self._layers is not None:
            return None
        if self.rounds is not None:
            kept = self.rounds.record.published.kept
        elif self.resting is not None:
            kept = self.resting.kept
        else:
            return None
        return (kept, anchor_file(self._folder, kept)) if kept.version else None

    @property
    def kept_by_pipeline(self) -> WeightsVersion | None:
        """The newest weights that a pipeline in the rounds has kept; None before a round."""
        if self._layers is None or self.rounds is None:
            return None
        kept = self.rounds.record.published.kept
        return kept if kept.version else None

    def loss_of(self, weights: WeightsVersion) -> float | None:
        """The held-out loss of weights, if it was measured since the start."""
        rounds = self.rounds
        return None if rounds is None else rounds.learner.losses.get(weights.model_hash)

    @property
    def losses(self) -> list[float]:
        """Held-out losses of the weights that were kept, oldest first."""
        if self.part is not None:
            return list(self.part.losses)
        if self.rounds is not None:
            return list(self.rounds.record.losses)
        return list(self.resting.saved.losses) if self.resting is not None else []

    def nodes(self) -> list[tuple[str, pb.TrainingStatus]]:
        """The reports of the nodes that take part in rounds, this one's first."""
        own = self.status()
        found = [] if own is None else [(self.node_id, own)]
        for node_id, peer in sorted(self.gossip.peers.items()):
            found.append((node_id, report_message(peer.report, peer.figures, peer.momentum_hash)))
        return found

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
            return self.resting.figures() if self.resting is not None else TrainingFigures()
        progress = self.rounds.learner.progress
        hours = max(trio.current_time() - progress.begun_at, 1.0) / HOUR_S
        return TrainingFigures(
            epoch=self.rounds.replica.kept.version,
            step=progress.inner_step,
            loss=progress.loss,
            held_out_loss=self.rounds.record.validation_loss,
            steps_total=progress.steps,
            steps_per_hour=round((progress.steps - progress.begun_with) / hours),
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
        await self._rest()
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
                    if self.rounds.stopped:
                        self.problem = self.rounds.stopped
                        await self._until_changed()
                        self.rounds.resume()
                        self.problem = ""
                    else:
                        log.info("switched off")
                except* (StartupError, OSError) as group:
                    failure = _first(group)
                    self.rounds, self.problem = None, _in_words(failure)
                    await self._rest()
                    self.loaded = False
                    # Only the log names folders: anyone may read the problem.
                    log.error("%s", str(failure).removeprefix("training: "))
                    await self._pause()
        finally:
            thread.close()

    async def _rest(self) -> None:
        """Learn what is on the disk. A damaged folder is reported once training is enabled."""
        if self._origin:
            read = partial(RestingTraining, self._folder, self._origin)
            try:
                self.resting = await trio.to_thread.run_sync(read)
            except (StartupError, OSError) as failure:
                self.resting = None
                log.warning("%s", failure)

    async def _until_changed(self) -> None:
        """Wait for a change of the settings of training."""
        before = self._settings.current.training
        while self._settings.current.training == before:
            await self._settings.changed.next.wait()

    async def _pause(self) -> None:
        """Wait for a while, or until training is switched off."""
        with trio.move_on_after(self._timings.resume_s):
            while True:
                changed = self._settings.changed.next
                if not self._settings.current.training.enabled:
                    return
                await changed.wait()

    async def _begin(self, thread: LowPriorityThread) -> Rounds:
        begun = await self._trainable.begin(thread)
        model, saved, disk = begun.learner.model, begun.saved, begun.disk
        packing = packing_of(self._settings.current.training.gradients, model.parameters)
        if packing.bytes_of(model.parameters) > LARGEST:
            kind = packing.kind.name.lower()
            raise StartupError(
                f"training: the model is too large for one message a round as {kind}"
            )
        persisted, counts = saved.persisted, saved.counts
        filed = await thread(partial(filed_contribution, disk, persisted.contributed))
        if filed is None:
            # It cannot be sent again, and a second one for the same round would contradict it.
            persisted = replace(persisted, contributed=None)
        replica = Replica(self.node_id, persisted, trio.current_time(), self._timings.rounds)
        replica.tally = Tally(
            counts.rounds, counts.successful_syncs, counts.failed_syncs, counts.adopted
        )
        contributions = ContributionStore(
            replica,
            model.shapes,
            is_peer=self.gossip.knows,
            forward_s=FORWARD_POLLS * self._timings.poll_s,
        )
        if filed is not None and persisted.contributed is not None:
            contributions.messages[persisted.contributed] = filed
        begun.learner.resume(counts)
        return Rounds(
            key=self._key,
            settings=self._settings,
            gossip=self.gossip,
            replica=replica,
            learner=begun.learner,
            contributions=contributions,
            record=begun.record(replica, partial(counted, begun.learner, replica.tally)),
            kept=self.kept,
            served=lambda: self.served(),
            fetcher=begun.fetcher,
        )


def counted(learner: RoundLearner, tally: Tally) -> Counts:
    """The counts of a node, to be saved."""
    progress = learner.progress
    return Counts(
        steps=progress.steps,
        tokens=progress.tokens,
        rounds=tally.rounds,
        successful_syncs=tally.successful_syncs,
        failed_syncs=tally.failed_syncs,
        adopted=tally.adopted,
        loss=progress.loss,
        shards=tuple(sorted(learner.shards)),
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
