"""The copy of the model that is trained, and the data it learns from (interface 1).

Everything that computes runs in a thread of its own at low priority, one computation at a time, so
that serving goes on beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import trio
from torch import Tensor

from meshnode.config import TrainingConfig
from meshnode.domain.errors import StartupError
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.weighting import weights_of
from meshnode.model.anchor_pieces import Unit
from meshnode.model.data import Shuffled, TokenData
from meshnode.model.diloco import Rule, SparseTensor
from meshnode.model.feedback import contribute
from meshnode.model.overlap import alike
from meshnode.model.trained_model import Anchor, TrainedModel
from meshnode.services.gradient_values import PackedGradients, packed, unpacked
from meshnode.services.training.fetching import CheckpointHolder
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.services.training.progress import Counts, Progress
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import Packing

VALIDATION_BATCH = 8
VALIDATION_ROWS = 64
"""Held-out sequences that are measured after each round: a few seconds at most."""


MAX_MEASURED = 64
"""Losses that are remembered. What is served is measured again if it was forgotten."""


class RoundModel(Protocol):
    """What the rounds know of the model that is trained."""

    @property
    def anchor(self) -> Anchor:
        """The weights that a round starts from."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by name."""

    @property
    def parameters(self) -> int:
        """Of the whole model."""


class RoundLearner(ABC):
    """Trains a model in rounds, wherever its layers are."""

    model: RoundModel

    def __init__(self, data: TokenData, thread: LowPriorityThread, *, seed: int) -> None:
        """``seed`` decides the order of the data."""
        self.progress = Progress(begun_at=trio.current_time())
        self.shards: set[int] = set()
        """Shards of the data that were read."""
        self.all_shards = data.shards
        self.losses: dict[str, float] = {}
        """Held-out losses that were measured since the start, by the hash of the weights."""
        self._data = data
        self._thread = thread
        self._seed = seed
        self._reading: tuple[tuple[int, ...], int, Iterator[Shuffled]] | None = None
        """Shards, batch size, and the batches that are left of them."""

    def resume(self, counts: Counts) -> None:
        """Go on with the counts of earlier starts."""
        progress = self.progress
        progress.steps = progress.begun_with = counts.steps
        progress.tokens, progress.loss = counts.tokens, counts.loss
        self.shards = set(counts.shards)

    async def prepare(self) -> bool:
        """Prepare without the help of other nodes. False if that takes them."""
        return True

    async def ready(self, holders: Sequence[CheckpointHolder]) -> None:  # noqa: B027 - optional
        """Prepare for a round; ``holders`` are nodes that have the anchor. Raises StartupError."""

    @abstractmethod
    async def original(self) -> Anchor:
        """The untrained weights."""

    @abstractmethod
    async def rewind(self) -> None:
        """Go back to the anchor."""

    @abstractmethod
    async def unload(self) -> None:
        """Free what only training needs; it is loaded again when it is used."""

    @abstractmethod
    async def step(self, shards: tuple[int, ...], config: TrainingConfig, round_id: int) -> float:
        """Take one inner step; returns its loss. Raises FloatingPointError."""

    @abstractmethod
    async def contribution(
        self, packing: Packing, feedback: Mapping[str, Tensor]
    ) -> tuple[dict[str, bytes], dict[str, Tensor]]:
        """The values of a contribution, and the feedback that it leaves."""

    @abstractmethod
    async def applied(self, messages: Sequence[pb.GossipGradientRequest]) -> Anchor:
        """A new anchor: the contributions applied to a copy of the present one."""

    @abstractmethod
    async def effects(
        self,
        before: Anchor,
        messages: Sequence[pb.GossipGradientRequest],
        assigned: Sequence[Sequence[int]],
        round_id: int,
        part: float,
    ) -> list[tuple[float, float]]:
        """How much each contribution lowers the loss of the weights that it was made from.

        First on sequences of the shards ``assigned`` to its maker, then on others; relatively, of
        so large a ``part`` of it. Empty if that cannot be measured.
        """

    @abstractmethod
    async def adopt(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Go on from another anchor, which is that version."""

    @abstractmethod
    async def validation_loss(self) -> float:
        """The loss of the anchor on held-out data."""

    @abstractmethod
    async def measure(self, model_hash: str, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Measure other weights on the same data, unless that was done. ``weights`` blocks."""

    async def piece(self, unit: Unit) -> bytes:
        """A piece of weights that are not at this node. Raises StartupError."""
        raise StartupError(f"training: {unit} is not here")

    async def alike(self, messages: Sequence[pb.GossipGradientRequest]) -> list[list[int]]:
        """Groups of contributions that are alike, by their places."""
        shapes = self.model.shapes

        def compare() -> list[list[int]]:
            return alike([PackedGradients(m.layer_gradients, shapes) for m in messages])

        return await self._thread(compare)

    def _count(self, shuffled: Shuffled, loss: float, tokens: int) -> None:
        self.shards |= shuffled.shards
        self.progress.steps += 1
        self.progress.sequences += len(shuffled.batch.inputs)
        self.progress.tokens += tokens
        self.progress.loss = loss

    def _note(self, model_hash: str, loss: float) -> None:
        self.losses.pop(model_hash, None)
        self.losses[model_hash] = loss
        while len(self.losses) > MAX_MEASURED:
            del self.losses[next(iter(self.losses))]

    def _batches(self, shards: tuple[int, ...], size: int, round_id: int) -> Iterator[Shuffled]:
        """The batches that follow the previous round's, so that everything is read before a repeat.

        Other shards, or another batch size, begin a new order.
        """
        if self._reading is None or self._reading[:2] != (shards, size):
            seed = (self._seed ^ round_id) + self.progress.steps
            self._reading = (shards, size, self._data.batches(shards, size, seed))
        return self._reading[2]


class Learner(RoundLearner):
    """Trains a model that this node holds as a whole."""

    model: TrainedModel

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
        super().__init__(data, thread, seed=seed)
        self.model = model
        self._rule = rule

    async def original(self) -> Anchor:
        """The untrained weights."""
        return await self._thread(self.model.original)

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
        self._count(shuffled, report.loss, report.tokens)
        return report.loss

    async def contribution(
        self, packing: Packing, feedback: Mapping[str, Tensor]
    ) -> tuple[dict[str, bytes], dict[str, Tensor]]:
        """The values of a contribution, and the feedback that it leaves."""
        shapes = self.model.shapes

        def encode(name: str, tensor: Tensor) -> tuple[bytes, Tensor | SparseTensor]:
            data = packed(tensor, packing)
            return data, unpacked(data, shapes[name], name)

        def make() -> tuple[dict[str, bytes], dict[str, Tensor]]:
            return contribute(self.model.pseudo_gradient(), feedback, encode)

        return await self._thread(make)

    async def applied(self, messages: Sequence[pb.GossipGradientRequest]) -> Anchor:
        """A new anchor: the contributions applied to a copy of the present one."""

        def apply() -> Anchor:
            shapes = self.model.shapes
            gradients = [PackedGradients(m.layer_gradients, shapes) for m in messages]
            weights = weights_of([message.batch_size for message in messages])
            return self.model.applied(gradients, self._rule, weights)

        return await self._thread(apply)

    async def effects(
        self,
        before: Anchor,
        messages: Sequence[pb.GossipGradientRequest],
        assigned: Sequence[Sequence[int]],
        round_id: int,
        part: float,
    ) -> list[tuple[float, float]]:
        """How much each contribution lowers the loss of the weights that it was made from.

        First on sequences of the shards ``assigned`` to its maker, then on others; relatively, of
        so large a ``part`` of it. Empty if there are too few sequences.
        """
        every = range(self.all_shards)

        def measure() -> list[tuple[float, float]]:
            shapes = self.model.shapes
            samples = []
            for place, shards in enumerate(assigned):
                seed = (self._seed ^ round_id) + place
                own = self._data.sample(shards, VALIDATION_BATCH, seed)
                rest = [shard for shard in every if shard not in shards]
                other = self._data.sample(rest, VALIDATION_BATCH, seed)
                if own is None or other is None:
                    return []
                samples.append((own, other))
            gradients = [PackedGradients(m.layer_gradients, shapes) for m in messages]
            return self.model.effects(before, gradients, samples, part)

        return await self._thread(measure)

    async def adopt(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Go on from another anchor."""
        await self._thread(partial(self.model.adopt, anchor))

    async def validation_loss(self) -> float:
        """The loss of the anchor on held-out data."""
        model_hash = self.model.anchor.model_hash
        if model_hash not in self.losses:
            self._note(model_hash, await self._validated(None))
        return self.losses[model_hash]

    async def measure(self, model_hash: str, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Measure other weights on the same data, unless that was done. ``weights`` blocks."""
        if model_hash not in self.losses:
            self._note(model_hash, await self._validated(weights))

    async def _validated(self, weights: Callable[[], Mapping[str, Tensor]] | None) -> float:
        batches = self._data.validation_batches(VALIDATION_BATCH, VALIDATION_ROWS)

        def validate() -> float:
            return self.model.validate(batches, weights() if weights else None).loss

        return await self._thread(validate)
