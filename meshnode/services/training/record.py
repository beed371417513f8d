"""The training state that a node has saved and reported to its peers (decision 0095).

Invariant: this node saves its state to the disk before it reports it.
"""

from __future__ import annotations

from functools import partial

import trio

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.replica import Replica, Report
from meshnode.model.trained_model import Anchor
from meshnode.services.training.disk import TrainingDisk
from meshnode.services.training.gossip import History, remember
from meshnode.services.training.progress import MAX_LOSSES


class RoundRecord:
    """Saves the state of a replica, and publishes it once it is saved."""

    def __init__(self, replica: Replica, disk: TrainingDisk, losses: list[float]) -> None:
        """``losses`` are those from the disk, oldest first."""
        self.published: Report = replica.report()
        """The report that peers get."""
        self.validation_loss = 0.0
        """The loss of the weights in ``published``."""
        self.losses = losses
        """Validation losses of the weights that were kept, oldest first."""
        self.history: History = {}
        self._replica = replica
        self._disk = disk
        self._measured = 0.0
        """The loss of the newest weights, which may not be published yet."""
        self._dirty = False
        remember(self.history, self.published.kept)

    def measured(self, validation_loss: float) -> None:
        """Note the loss of the newest weights."""
        self._measured = validation_loss

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
            remember(self.history, self.published.kept)

    async def save(self) -> None:
        """Save the state of the replica, then publish it. Raises OSError."""
        save = partial(self._disk.save, self._replica.persisted(), self.losses)
        await trio.to_thread.run_sync(save)
        self.release()
        self.publish()

    async def save_kept(self) -> None:
        """Save the weights' version that was just kept, with its loss. Raises OSError."""
        self.losses = [*self.losses, self._measured][-MAX_LOSSES:]
        await self.save()

    async def save_anchor(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Save an anchor that the replica may keep next. Raises OSError."""
        await trio.to_thread.run_sync(self._disk.save_anchor, anchor, weights)

    async def save_contribution(self, message: bytes) -> None:
        """Save this node's contribution before it is sent. Raises OSError."""
        await trio.to_thread.run_sync(self._disk.save_contribution, message)
