"""The model of a pipeline in the rounds: its layers are at several nodes (decision 0222).

What ``learner`` does with the whole model, this does by commands to the holders of its layers. The
driver has no weights but its own: of the others it knows the hashes, from which that of the model
follows.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import trio
from torch import Tensor

from meshnode.config import TrainingConfig
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.message import digest_of
from meshnode.domain.training.position import PipelineVersion
from meshnode.domain.training.weighting import weights_of
from meshnode.model.anchor_pieces import CONTENTS, Contents, Unit, momentum_of
from meshnode.model.data import TokenData
from meshnode.model.diloco import scales_of
from meshnode.model.manifest import TensorFacts, hash_of_tensors
from meshnode.model.outer_step import STEPS, step_of
from meshnode.model.trained_model import Anchor
from meshnode.model.transfer import FIELD
from meshnode.services.gradient_values import PackedGradients, Shapes
from meshnode.services.pipeline.exchange import LayersFailed, PipelineLayers, version_of
from meshnode.services.shards.exchange import tensor_messages
from meshnode.services.training.fetching import CheckpointHolder
from meshnode.services.training.learner import VALIDATION_BATCH, VALIDATION_ROWS, RoundLearner
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.services.training.messages import contribution_in
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import Packing

log = logging.getLogger(__name__)

NAME_BYTES = 16
Facts = Mapping[str, TensorFacts]


@dataclass(frozen=True, slots=True)
class PipelineAnchor(Anchor):
    """Weights whose tensors are at several nodes."""

    facts: Facts = field(default_factory=dict)
    """Of all tensors, those of the outer momentum behind ``velocity.``."""
    source: WeightsVersion | None = None
    """The version that the weights are, or were, if the holders have kept them as one."""
    candidate: str = ""
    """What the holders call them, if they have not."""

    @classmethod
    def of_facts(
        cls, facts: Facts, shapes: Shapes, source: WeightsVersion | None, candidate: str = ""
    ) -> PipelineAnchor:
        """The anchor of the tensors with these facts."""
        weights = {name: facts[name] for name in shapes}
        model_hash = hash_of_tensors(weights)
        return cls({}, {}, model_hash, momentum_of(facts), facts, source, candidate)


class PipelineModel:
    """What the rounds know of the model."""

    def __init__(self, anchor: PipelineAnchor, shapes: Shapes, parameters: int) -> None:
        self.anchor: PipelineAnchor = anchor
        self.shapes = dict(shapes)
        self.parameters = parameters


class PipelineLearner(RoundLearner):
    """Trains the layers of a pipeline, as its driver."""

    model: PipelineModel

    def __init__(
        self,
        model: PipelineModel,
        layers: PipelineLayers,
        data: TokenData,
        thread: LowPriorityThread,
        *,
        seed: int,
        untrained: PipelineAnchor,
        feedback: Callable[[], str | None],
    ) -> None:
        """``feedback`` gives the digest of the contribution whose rest is fed back."""
        super().__init__(data, thread, seed=seed)
        self.model = model
        self.rest = ""
        """The holders' name for what the latest contribution has left, before it has a digest."""
        self._layers = layers
        self._untrained = untrained
        self._before = untrained
        """What the holders had kept before the anchor."""
        self._feedback = feedback
        self._sources: Sequence[CheckpointHolder] = ()

    async def prepare(self) -> bool:
        """Bring the holders of all layers to the anchor, if they have it."""
        try:
            await self.rewind()
        except LayersFailed as failure:
            log.info("%s", failure)
            return False
        return True

    async def ready(self, holders: Sequence[CheckpointHolder]) -> None:
        """Bring the holders of all layers to the anchor; ``holders`` are nodes that have it."""
        self._sources = holders
        await self.rewind()

    async def original(self) -> Anchor:
        """The untrained weights."""
        return self._untrained

    async def rewind(self) -> None:
        """Go back to the anchor."""
        await self._layers.gather(self._version, self._missing)

    async def unload(self) -> None:
        """Each holder frees its layers by itself."""

    async def step(self, shards: tuple[int, ...], config: TrainingConfig, round_id: int) -> float:
        """Take one step of the whole pipeline; returns its loss. Raises LayersFailed."""
        shuffled = next(self._batches(shards, config.batch_size, round_id))
        loss = await self._layers.step(shuffled.batch)
        self._count(shuffled, loss, shuffled.batch.tokens)
        return loss

    async def contribution(
        self, packing: Packing, feedback: Mapping[str, Tensor]
    ) -> tuple[dict[str, bytes], dict[str, Tensor]]:
        """The values of a contribution. What they leave unsent stays with the holders."""
        self.rest = secrets.token_hex(NAME_BYTES)
        frames = await self._layers.parts(
            self._version, packing, self.model.parameters, self._feedback() or "", self.rest
        )
        return frames, {}

    async def file_rest(self, digest: str) -> None:
        """File what the latest contribution has left, before it is sent."""
        await self._layers.name_rest(self.rest, digest)

    async def applied(self, messages: Sequence[pb.GossipGradientRequest]) -> Anchor:
        """New weights: the contributions applied to the anchor, at each holder."""
        shapes = self.model.shapes

        weights = weights_of([message.batch_size for message in messages])

        def weigh() -> tuple[dict[str, Mapping[str, bytes]], list[float], int]:
            gradients = [PackedGradients(m.layer_gradients, shapes) for m in messages]
            digests = [digest_of(contribution_in(m).statement()) for m in messages]
            frames: dict[str, Mapping[str, bytes]] = {}
            for digest, message in zip(digests, messages, strict=True):
                frames[digest] = message.layer_gradients
            return frames, scales_of(gradients, weights), STEPS.index(step_of(gradients))

        frames, scales, step = await self._thread(weigh)
        name = secrets.token_hex(NAME_BYTES)
        facts = await self._layers.apply(self._version, frames, scales, weights, name, step=step)
        return PipelineAnchor.of_facts(facts, shapes, None, name)

    async def effects(
        self,
        before: Anchor,
        messages: Sequence[pb.GossipGradientRequest],
        assigned: Sequence[Sequence[int]],
        round_id: int,
        part: float,
    ) -> list[tuple[float, float]]:
        """Nothing: a pipeline has no opinions of others, and applies those that others have."""
        return []

    async def adopt(self, anchor: Anchor, weights: WeightsVersion) -> None:
        """Go on from other weights, which all holders keep as that version first."""
        if not isinstance(anchor, PipelineAnchor):
            raise TypeError("these weights are at one node")
        source = version_of(anchor.source or self.kept)
        await self._layers.keep(weights, source, anchor.candidate)
        self._before = self.model.anchor
        self.model.anchor = PipelineAnchor.of_facts(anchor.facts, self.model.shapes, weights)

    async def validation_loss(self) -> float:
        """The loss of the anchor on held-out data."""
        model_hash = self.model.anchor.model_hash
        if model_hash not in self.losses:
            batches = self._data.validation_batches(VALIDATION_BATCH, VALIDATION_ROWS)
            losses = [await self._layers.loss(batch) for batch in batches]
            self._note(model_hash, fmean(losses))
        return self.losses[model_hash]

    async def measure(self, model_hash: str, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Nothing: what this node serves is not in its layers for training."""

    async def piece(self, unit: Unit) -> bytes:
        """The contents of the anchor or the one before, or a piece from whoever holds it.

        Raises InvalidRequest and LayersFailed.
        """
        for anchor in (self.model.anchor, self._before):
            if unit.weights == anchor.source:
                if unit.name == CONTENTS:
                    return await trio.to_thread.run_sync(Contents(anchor.facts).document)
                return await self._layers.piece(version_of(unit.weights), unit.name, unit.rows)
        raise InvalidRequest(FIELD, f"this node is at version {self.kept.version}")

    @property
    def kept(self) -> WeightsVersion:
        """The version of the anchor."""
        source = self.model.anchor.source
        return source or WeightsVersion(0, self.model.anchor.model_hash)

    @property
    def _version(self) -> PipelineVersion:
        return version_of(self.kept)

    def _missing(self) -> pb.LayerCommand:
        return fetch_command(self.kept, self.model.anchor.facts, self._sources)


def fetch_command(
    weights: WeightsVersion, facts: Facts, holders: Sequence[CheckpointHolder]
) -> pb.LayerCommand:
    """The command to fetch weights with these facts from nodes that have them."""
    return pb.LayerCommand(
        action="fetch",
        version=str(version_of(weights)),
        name=secrets.token_hex(NAME_BYTES),
        model_hash=weights.model_hash,
        tensors=tensor_messages(facts),
        nodes=[holder.node_id for holder in holders],
    )
