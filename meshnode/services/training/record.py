"""The training state that a node has saved and reported to its peers (decision 0095).

Invariant: this node saves its state to the disk before it reports it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import trio
from torch import Tensor

from meshnode.domain.errors import StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Replica, Report
from meshnode.model.feedback import FeedbackUnreadable
from meshnode.model.trained_model import Anchor
from meshnode.services.gradient_values import Shapes
from meshnode.services.training.disk import Judging, TrainingDisk
from meshnode.services.training.gossip import History, remember
from meshnode.services.training.progress import MAX_LOSSES, Counts

log = logging.getLogger(__name__)


class RoundRecord:
    """Saves the state of a replica, and publishes it once it is saved."""

    def __init__(
        self,
        replica: Replica,
        disk: TrainingDisk,
        losses: list[float],
        counts: Callable[[], Counts] = Counts,
        judging: Judging = Judging(),  # noqa: B008 - frozen
    ) -> None:
        """``losses`` are those from the disk, oldest first; ``counts`` gives the present ones."""
        self.judging = judging
        """What is known for a verdict on the kept weights."""
        self._counts = counts
        self.published: Report = replica.report()
        """The report that peers get."""
        self.validation_loss = 0.0
        """The loss of the weights in ``published``."""
        self.momentum_hash = ""
        """Of the outer momentum of these weights."""
        self.losses = losses
        """Validation losses of the weights that were kept, oldest first."""
        self.history: History = {}
        self._replica = replica
        self._disk = disk
        self._measured = 0.0
        """The loss of the newest weights, which may not be published yet."""
        self._momentum_hash = ""
        self._dirty = False
        remember(self.history, self.published.kept)

    def measured(self, validation_loss: float, momentum_hash: str) -> None:
        """Note the loss of the newest weights, and the hash of their outer momentum."""
        if not self.losses:
            # The loss before the first round, with which that of the first is compared.
            self.losses = [validation_loss]
        self._measured, self._momentum_hash = validation_loss, momentum_hash

    def hold(self) -> None:
        """Publish nothing before the next :meth:`save` or :meth:`release`."""
        self._dirty = True

    def release(self) -> None:
        """Undo :meth:`hold`, because nothing has changed that must be saved."""
        self._dirty = False

    def publish(self) -> None:
        """Publish the state of the replica, unless it must be saved first."""
        if not self._dirty:
            self.published = self._replica.report()
            self.validation_loss = self._measured
            self.momentum_hash = self._momentum_hash
            remember(self.history, self.published.kept)

    async def save(self) -> None:
        """Save the state of the replica, then publish it. Raises OSError."""
        state = self._replica.persisted(), self.losses, self._counts(), self.judging
        await trio.to_thread.run_sync(self._disk.save, *state)
        self.release()
        self.publish()

    async def save_kept(self) -> None:
        """Save the weights' version that was just kept, with its loss. Raises OSError."""
        self.losses = [*self.losses, self._measured][-MAX_LOSSES:]
        await self.save()

    async def save_anchor(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Save an anchor that the replica may keep next. Raises OSError."""
        await trio.to_thread.run_sync(self._disk.save_anchor, anchor, weights)

    async def earlier(self, shapes: Shapes) -> Anchor | None:
        """The weights that the kept ones were made from; None for the untrained ones.

        Raises StartupError if they cannot be read.
        """
        previous = self.judging.previous
        if previous is None:
            raise StartupError("the weights of the round before are not here")
        return await trio.to_thread.run_sync(self._disk.anchor, previous, shapes)

    async def save_contribution(
        self, digest: str, message: bytes, feedback: Mapping[str, Tensor]
    ) -> None:
        """Save this node's contribution before it is sent, with what it leaves. Raises OSError."""
        await trio.to_thread.run_sync(self._disk.save_feedback, digest, feedback)
        await trio.to_thread.run_sync(self._disk.save_contribution, message)

    async def feedback(self, shapes: Shapes) -> dict[str, Tensor]:
        """What earlier contributions left unsent; empty if that is nothing, or was lost."""
        digest = self._replica.persisted().feedback
        if digest is None:
            return {}
        try:
            return await trio.to_thread.run_sync(self._disk.feedback, digest, shapes)
        except FeedbackUnreadable as problem:
            log.warning("%s; what was not sent in earlier rounds is lost", problem)
            return {}
