"""Pipelines over real executors: sessions of layer ranges, driven by a plain loop."""

from __future__ import annotations

import itertools
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import trio
from torch import Tensor

from meshnode.domain.generation import GenerationRequest
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.metering import TrafficMeter
from meshnode.edges.grpc_pipeline import PipelineServicer
from meshnode.edges.grpc_service import node_services
from meshnode.model.loading import LoadedModel, load_model
from meshnode.model.manifest import parts_of
from meshnode.model.sampler import Sampler
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import EngineLimits, Executor, ShardSession, serve_executor
from meshnode.services.peers import PeerBook
from meshnode.services.shards.exchange import LayerExchange
from meshnode.services.shards.exchange_files import ExchangeFiles, original_layers
from meshnode.services.shards.holder import Holder, HolderLimits, serve_holder
from meshnode.services.shards.kept_graphs import TrainingLimits
from meshnode.services.shards.members import TrainingMembers
from meshnode.services.shards.messages import ForwardCall
from meshnode.services.shards.relay import ShardRelay
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.shards.training_call import TrainingCall
from meshnode.services.shards.training_service import serve_training
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb

LIMITS = EngineLimits(max_batch=8, max_queue=8, kv_bytes=1 << 22, prefill_chunk=16)
HOLDER_LIMITS = HolderLimits(sessions=8)
TRAINING_LIMITS = TrainingLimits()
LONG_S = 180.0
"""Timeout in seconds, reached only when a test is about to fail."""


@asynccontextmanager
async def executor_of(model: LoadedModel, limits: EngineLimits = LIMITS) -> AsyncIterator[Executor]:
    """Yield an executor; at the end it must become idle and free all memory."""
    async with trio.open_nursery() as nursery:
        executor: Executor = await nursery.start(serve_executor, model, limits)
        yield executor
        with trio.fail_after(LONG_S):
            await until_free(executor)
        nursery.cancel_scope.cancel()


async def until_free(executor: Executor) -> None:
    """Wait until all memory is freed; steps in progress may keep some until they end."""
    while executor.active or executor.kv_bytes_in_use:  # noqa: ASYNC110 - it tells no event
        await trio.sleep(0.002)


@dataclass
class Driven:
    """The sessions of one pipeline, in the order of its layers, each with its executor."""

    shards: list[tuple[Executor, ShardSession]]

    async def forward(self, tokens: Sequence[int], decode_from: int | None = None) -> Tensor:
        """Continue the sessions with ``tokens``, and return the logits ``[vocab]`` after them."""
        states = torch.tensor([list(tokens)])
        for executor, session in self.shards:
            output = await executor.forward(session, states, decode_from=decode_from)
            states = output.states
        assert output.is_logits
        return states[0, -1]

    async def generate(self, prompt: Sequence[int], request: GenerationRequest) -> list[int]:
        """Return ``request.max_tokens`` tokens that continue ``prompt``."""
        sampler = Sampler(request)
        tokens = [sampler.choose(await self.forward(prompt))]
        while len(tokens) < request.max_tokens:
            tokens.append(sampler.choose(await self.forward(tokens[-1:])))
        return tokens


@asynccontextmanager
async def driven(
    executors: Sequence[Executor], ranges: Sequence[range], positions: int = 64
) -> AsyncIterator[Driven]:
    """Yield a pipeline with one session for each range."""
    async with AsyncExitStack() as stack:
        shards = []
        for executor, layers in zip(executors, ranges, strict=True):
            session = await executor.open_session(layers, positions)
            stack.callback(session.close)
            shards.append((executor, session))
        yield Driven(shards)


def splits(num_layers: int) -> list[list[range]]:
    """Return every way to cut the layers into contiguous ranges."""
    found = []
    for count in range(num_layers):
        for cuts in itertools.combinations(range(1, num_layers), count):
            edges = [0, *cuts, num_layers]
            found.append([range(a, b) for a, b in itertools.pairwise(edges)])
    return found


DRIVER = key_from_seed("d" * 64)
"""The key of a peer that holds all layers, as every node of these tests knows."""
KEYS = map(key_from_seed, (f"{number:064x}" for number in itertools.count(1)))


@dataclass(frozen=True)
class Member:
    """A peer that may train."""

    node_id: str


@dataclass
class KnownPeers:
    """Stands in for the peer book: knows the addresses that may be called."""

    addresses: set[tuple[str, int]] = field(default_factory=set)
    members: dict[str, Sequence[int]] = field(default_factory=dict)
    """The layers of each peer that may train, by its node id."""

    def knows(self, host: str, grpc_port: int) -> bool:
        return (host, grpc_port) in self.addresses

    def holders(self, layer: int, model_hash: str = "") -> list[Member]:
        found = [Member(name) for name, layers in self.members.items() if layer in layers]
        return [Member(DRIVER.node_id), *found]

    @property
    def as_peer_book(self) -> PeerBook:
        """This object, typed as a ``PeerBook`` for the services."""
        return cast(PeerBook, self)


@dataclass
class HolderNode:
    """The parts of a node that pipelines need, for some layers, on a real port."""

    node_id: str
    port: int
    executor: Executor
    holder: Holder
    training: ShardTrainer
    drain: Drain
    known: KnownPeers
    pool: ChannelPool
    key: NodeKey
    exchange: LayerExchange

    @property
    def hop(self) -> pb.SwarmHop:
        layers = self.executor.card.layers
        return pb.SwarmHop(
            node_id=self.node_id,
            address=f"127.0.0.1:{self.port}",
            first_layer=layers[0],
            last_layer=layers[-1],
        )

    async def stub(self) -> NodeServiceStub:
        """Return a client for the node, over the node's own pool: it calls from 127.0.0.1."""
        return await self.pool.stub("127.0.0.1", self.port)


@asynccontextmanager
async def holder_node(
    directory: Path,
    layers: Sequence[int] | None = None,
    *,
    node_id: str = "",
    limits: EngineLimits = LIMITS,
    holder_limits: HolderLimits = HOLDER_LIMITS,
    training_limits: TrainingLimits = TRAINING_LIMITS,
    trains: bool = True,
    has_room: bool = True,
    dtype: str = "float32",
) -> AsyncIterator[HolderNode]:
    """Serve some layers of a model; at the end all memory must be freed."""
    model = load_model(directory, layers, threads=1, dtype=dtype)
    node_id = node_id or f"{model.card.layers[0]:040x}"
    drain, known, key = Drain(), KnownPeers(), next(KEYS)
    async with trio.open_nursery() as nursery:
        executor: Executor = await nursery.start(serve_executor, model, limits)
        pool: ChannelPool = await nursery.start(serve_pool, TrafficMeter())
        holder: Holder = await nursery.start(
            partial(serve_holder, executor, holder_limits, accepting=lambda: not drain.draining)
        )
        training: ShardTrainer = await nursery.start(
            partial(
                serve_training,
                executor,
                partial(load_model, directory, model.card.layers, trainable=True),
                training_limits,
                enabled=lambda: trains,
                pool=pool,
                peers=known.as_peer_book,
                members=TrainingMembers(key, known),
                make_room=lambda: has_room,
            )
        )
        relay = ShardRelay(
            node_id=node_id,
            holder=holder,
            held=model.card.layers,
            num_layers=model.card.num_layers,
            pool=pool,
            peers=known.as_peer_book,
        )
        held = range(model.card.layers[0], model.card.layers[-1] + 1)
        shapes = {name: one.shape for name, one in parts_of(executor.config, held).items()}
        files = ExchangeFiles(
            directory / "no-such-folder",
            TrainedLayers(directory / "no-such-folder", "m", held),
            shapes,
            partial(original_layers, directory, held),
        )
        exchange = LayerExchange(training, files, shapes)
        service = PipelineServicer(
            holder=holder,
            relay=relay,
            training=training,
            held=model.card.layers,
            exchange=exchange,
        )
        port = await nursery.start(
            partial(
                serve_grpc, node_services([service], drain), "127.0.0.1", 0, traffic=TrafficMeter()
            )
        )
        address = node_id, port[1]
        yield HolderNode(*address, executor, holder, training, drain, known, pool, key, exchange)
        holder.close_all()
        with trio.fail_after(LONG_S):
            await until_free(executor)
        nursery.cancel_scope.cancel()


TOKENS = [7, 8, 9, 10, 11]


def ids(tokens: Sequence[int]) -> dict[str, Any]:
    data = struct.pack(f"<{len(tokens)}q", *tokens)
    return {"hidden_states": data, "hidden_shape": [1, len(tokens)], "target_shard": 0}


def states(values: np.ndarray, target: int) -> dict[str, Any]:
    return {
        "hidden_states": values.astype("<f4").tobytes(),
        "hidden_shape": values.shape,
        "target_shard": target,
    }


def at(start: int, count: int) -> bytes:
    return struct.pack(f"<{count}q", *range(start, start + count))


async def send(
    node: HolderNode, session: str = "s", metadata: dict[str, str] | None = None, **fields: Any
) -> pb.PipelineForwardResponse:
    fields = {"session_id": session, "use_cache": True, **fields}
    stub = await node.stub()
    return await stub.PipelineForward(pb.PipelineForwardRequest(**fields), metadata=metadata or {})


async def refused(node: HolderNode, **fields: Any) -> Code:
    with pytest.raises(CallFailed) as caught:
        await send(node, **fields)
    return caught.value.code


async def close(node: HolderNode, session: str = "s") -> None:
    answer = await send(node, session, use_cache=False)
    assert answer.success


def logits_of(answer: pb.PipelineForwardResponse) -> np.ndarray:
    assert answer.success, answer.error_message
    assert answer.is_final
    assert not answer.hidden_states
    return np.frombuffer(answer.logits, "<f4").reshape(answer.logits_shape)


@asynccontextmanager
async def shards(
    directory: Path,
    *parts: Sequence[int],
    limits: TrainingLimits = TRAINING_LIMITS,
    trains: bool = True,
    has_room: bool = True,
) -> AsyncIterator[list[HolderNode]]:
    async with AsyncExitStack() as stack:
        nodes = []
        for part in parts:
            starting = holder_node(
                directory, list(part), training_limits=limits, trains=trains, has_room=has_room
            )
            nodes.append(await stack.enter_async_context(starting))
        members = {node.key.node_id: node.executor.card.layers for node in nodes}
        for node in nodes:
            node.known.members |= members
            node.known.addresses |= {("127.0.0.1", other.port) for other in nodes}
        yield nodes


def signed(
    node: HolderNode, message: pb.PipelineForwardRequest, *, update: bool = True
) -> dict[str, str]:
    """Return the metadata with which the driver sends a message that trains to ``node``."""
    turn = node.training.members.rounds.latest(DRIVER.node_id).next
    members = TrainingMembers(DRIVER, node.known)
    return members.signed(message, node.key.node_id, turn, update=update)


def signed_back(message: pb.PipelineBackwardRequest, square: str = "") -> dict[str, str]:
    """Return the metadata with which the driver, which holds all layers, sends gradients back."""
    return TrainingMembers(DRIVER, KnownPeers()).signed_gradient(message, square)


def targets_of(tokens: torch.Tensor) -> torch.Tensor:
    """Return the next token after each; the last and the third have no target (-100)."""
    targets = tokens.roll(-1, dims=1)
    targets[:, -1] = -100
    targets[:, 2] = -100
    return targets


def training_call(tokens: torch.Tensor, request: str = "r") -> TrainingCall:
    """Return a training message for a holder of all layers."""
    return TrainingCall(
        call=ForwardCall(
            caller_ip="127.0.0.1",
            session_id="s",
            request_id=request,
            layers=range(4),
            data=tokens.numpy().tobytes(),
            shape=tuple(tokens.shape),
        ),
        labels=targets_of(tokens).numpy().tobytes(),
        sender_url="",
        source_shard=-1,
        backward=True,
    )
