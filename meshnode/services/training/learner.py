"""The copy of the model that is trained, and the data it learns from (interface 1).

Everything that computes runs in a thread of its own at low priority, one computation at a time, so
that serving goes on beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import trio

from meshnode.config import TrainingConfig
from meshnode.model.data import Shuffled, TokenData
from meshnode.model.diloco import Rule
from meshnode.model.trained_model import Anchor, TrainedModel
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.services.training.messages import pack_gradients, unpack_gradients
from meshnode.services.training.progress import Progress
from meshnode.wire import node_pb2 as pb

VALIDATION_BATCH = 8
VALIDATION_ROWS = 64
"""Held-out sequences that are measured after each round: a few seconds at most."""


class Learner:
    """Trains the model."""

    def __init__(
        self,
        model: TrainedModel,
        data: TokenData,
        thread: LowPriorityThread,
        *,
        seed: int,
        rule: Rule,
    ) -> None:
        """``seed`` decides the order of the data; ``rule`` says how contributions are combined."""
        self.model = model
        self.progress = Progress(begun_at=trio.current_time())
        self.shards: set[int] = set()
        """Shards of the data that were read."""
        self.all_shards = data.shards
        self._data = data
        self._thread = thread
        self._seed = seed
        self._rule = rule
        self._reading: tuple[tuple[int, ...], int, Iterator[Shuffled]] | None = None
        """Shards, batch size, and the batches that are left of them."""

    async def rewind(self) -> None:
        """Go back to the anchor."""
        await self._thread(self.model.rewind)

    async def unload(self) -> None:
        """Free what only training needs; it is loaded again when it is used."""
        await self._thread(self.model.unload)

    async def step(self, shards: tuple[int, ...], config: TrainingConfig, round_id: int) -> float:
        """Take one inner step; returns its loss. Raises FloatingPointError."""
        shuffled = next(self._batches(shards, config.batch_size, round_id))
        step = partial(self.model.inner_step, shuffled.batch, config.learning_rate)
        report = await self._thread(step)
        self.shards |= shuffled.shards
        self.progress.steps += 1
        self.progress.tokens += report.tokens
        self.progress.loss = report.loss
        return report.loss

    async def gradients(self) -> dict[str, bytes]:
        """The pseudo-gradient of the inner steps, as the frames of a contribution."""
        return await self._thread(lambda: pack_gradients(self.model.pseudo_gradient()))

    async def applied(self, messages: Sequence[pb.GossipGradientRequest]) -> Anchor:
        """A new anchor: the contributions applied to a copy of the present one."""

        def apply() -> Anchor:
            shapes = self.model.shapes
            gradients = [unpack_gradients(m.layer_gradients, shapes) for m in messages]
            return self.model.applied(gradients, self._rule)

        return await self._thread(apply)

    async def adopt(self, anchor: Anchor) -> None:
        """Go on from another anchor."""
        await self._thread(partial(self.model.adopt, anchor))

    async def validation_loss(self) -> float:
        """The loss of the anchor on held-out data."""
        batches = self._data.validation_batches(VALIDATION_BATCH, VALIDATION_ROWS)
        evaluation = await self._thread(partial(self.model.validate, batches))
        return evaluation.loss

    def _batches(self, shards: tuple[int, ...], size: int, round_id: int) -> Iterator[Shuffled]:
        """The batches that follow the previous round's, so that everything is read before a repeat.

        Other shards, or another batch size, begin a new order.
        """
        if self._reading is None or self._reading[:2] != (shards, size):
            seed = (self._seed ^ round_id) + self.progress.steps
            self._reading = (shards, size, self._data.batches(shards, size, seed))
        return self._reading[2]
