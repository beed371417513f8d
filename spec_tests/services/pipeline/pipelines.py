"""Pipelines in one process: real executors behind real gRPC, and relays that can break."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import trio

from meshnode.domain.batching import EngineLimits
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.peers import Capacity
from meshnode.edges.grpc_pipeline import PipelineServicer
from meshnode.edges.grpc_service import node_services
from meshnode.model.draft import DraftModel
from meshnode.model.loading import LoadedModel, load_model
from meshnode.model.numerics import numeric_class
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import Executor, serve_executor
from meshnode.services.peers import PeerBook
from meshnode.services.pipeline import Pipeline, PipelineLimits, serve_pipeline
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.shards.flights import SESSION_MESSAGES
from meshnode.services.shards.holder import HolderLimits, serve_holder
from meshnode.services.shards.kept_graphs import TrainingLimits
from meshnode.services.shards.members import TrainingMembers
from meshnode.services.shards.relay import ShardRelay
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.shards.training_service import serve_training
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import make_model
from spec_tests.services.executor.generations import read

NUM_LAYERS = 6
LIMITS = EngineLimits(max_batch=8, max_queue=8, kv_bytes=1 << 23, prefill_chunk=16)
PIPELINE = PipelineLimits(max_sessions=8, max_queue=8, prefill_chunk=16, call_s=900.0)
"""With this long call timeout a slow holder is never treated as frozen."""
HOLDER = HolderLimits(sessions=8, open_s=20.0)
"""On a busy machine a place comes late."""
PROMPT = "A node serves text inference, takes part in distributed training: café."
"""Takes several prefill chunks, of which the last is not full."""
GREEDY = GenerationRequest(PROMPT, max_tokens=24, temperature=0.0)
SAMPLED = replace(GREEDY, temperature=0.9, top_k=40, top_p=0.95, seed=11)


@dataclass(frozen=True)
class FixedPeer:
    """A peer in a ``FixedBook``."""

    node_id: str
    host: str
    grpc_port: int
    layers: tuple[int, ...]
    latency_ms: float = 1.0
    capacity: Capacity | None = None
    numeric_class: str = field(default_factory=partial(numeric_class, "float32"))


class FixedBook:
    """Stands in for the peer book: a test adds and removes the peers."""

    def __init__(self) -> None:
        self.peers: list[FixedPeer] = []
        self.suspected: list[str] = []

    def holders(self, layer: int, model_hash: str = "") -> list[FixedPeer]:
        return [peer for peer in self.peers if layer in peer.layers]

    def get(self, node_id: str) -> FixedPeer | None:
        return next((peer for peer in self.peers if peer.node_id == node_id), None)

    def knows(self, host: str, grpc_port: int) -> bool:
        return any((peer.host, peer.grpc_port) == (host, grpc_port) for peer in self.peers)

    def suspect(self, node_id: str) -> None:
        self.suspected.append(node_id)

    @property
    def as_peer_book(self) -> PeerBook:
        """This object, typed as a ``PeerBook`` for the services."""
        return cast(PeerBook, self)


class Relay:
    """A TCP relay in front of a holder, which simulates network failures."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._life = trio.CancelScope()
        self._streams: set[trio.SocketStream] = set()
        self._flowing = trio.Event()
        self._flowing.set()
        self.port = 0

    async def run(self, *, task_status: trio.TaskStatus[int]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        task_status.started(self.port)
        with self._life:
            await trio.serve_listeners(self._serve, [listener])

    def freeze(self) -> None:
        """Stop forwarding data, to simulate a stopped process or a cut cable."""
        self._flowing = trio.Event()

    def thaw(self) -> None:
        self._flowing.set()

    def kill(self) -> None:
        """Reset all connections and refuse new ones, to simulate a dead process."""
        for stream in self._streams:
            # With linger 0, closing sends a reset instead of an orderly end.
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._life.cancel()

    async def _serve(self, client: trio.SocketStream) -> None:
        try:
            holder = await trio.open_tcp_stream("127.0.0.1", self._target)
        except OSError:
            return
        self._streams |= {client, holder}
        async with client, holder:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, client, holder, nursery.cancel_scope)
                    nursery.start_soon(self._pump, holder, client, nursery.cancel_scope)
        self._streams -= {client, holder}

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                await self._flowing.wait()
                data = await source.receive_some(65536)
                await self._flowing.wait()
                if not data:
                    break
                await sink.send_all(data)
        both.cancel()


Script = Callable[[int], Awaitable[Any]]
"""Called with a forward call's number: raises, returns a false answer, or None to pass it on."""


class Gate(NodeServiceServicer):
    """A wrapper of a holder's service that counts calls, and fails or lies as a test specifies."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self.script: Script | None = None
        self.forwards = 0
        self.swarm = False
        """Whether the latest forward call was a ``SwarmForward``."""
        self.sessions: set[str] = set()
        self.request_ids: list[str] = []

    async def PipelineBackward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineBackwardRequest
    ) -> pb.PipelineBackwardResponse:
        answer: pb.PipelineBackwardResponse = await self._service.PipelineBackward(input_message)
        return answer

    async def PipelineForward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineForwardRequest
    ) -> pb.PipelineForwardResponse:
        found: pb.PipelineForwardResponse = await self._pass(
            input_message, self._service.PipelineForward
        )
        return found

    async def SwarmForward(  # noqa: N802 - the document's name
        self, input_message: pb.SwarmForwardRequest
    ) -> pb.SwarmForwardResponse:
        found: pb.SwarmForwardResponse = await self._pass(input_message, self._service.SwarmForward)
        return found

    async def _pass(self, message: Any, operation: Callable[[Any], Awaitable[Any]]) -> Any:
        if not message.hidden_states:
            return await operation(message)
        number, self.forwards = self.forwards, self.forwards + 1
        self.sessions.add(message.session_id)
        self.request_ids.append(message.request_id)
        self.swarm = isinstance(message, pb.SwarmForwardRequest)
        answer = None if self.script is None else await self.script(number)
        if answer is None:
            return await operation(message)
        if self.swarm:
            # ``SwarmForwardResponse`` has no such field.
            answer.pop("is_final", None)
            return pb.SwarmForwardResponse(**answer)
        return pb.PipelineForwardResponse(**answer)


@dataclass
class Holder:
    """A node that holds some layers, behind a relay."""

    node_id: str
    layers: range
    executor: Executor
    gate: Gate
    relay: Relay
    training: ShardTrainer
    messages: int = SESSION_MESSAGES
    """How many it lets a driver send ahead."""

    @property
    def peer(self) -> FixedPeer:
        return FixedPeer(
            self.node_id,
            "127.0.0.1",
            self.relay.port,
            tuple(self.layers),
            capacity=Capacity(session_messages=self.messages),
        )


@dataclass
class Cluster:
    """A driver and its holders."""

    nursery: trio.Nursery
    directory: Path
    model: LoadedModel
    executor: Executor
    pool: ChannelPool
    book: FixedBook
    pipeline: Pipeline
    holders: list[Holder]
    driving: trio.CancelScope
    """Cancelling it ends the pipeline's service."""
    hops: HopRecorder

    async def settled(self, *alive: Holder) -> None:
        """Wait until the driver and the holders (those of ``alive``, if given) hold no memory."""
        executors = [self.executor, *(holder.executor for holder in alive or self.holders)]
        while any(  # noqa: ASYNC110 - it tells no event
            each.kv_bytes_in_use or each.active for each in executors
        ):
            await trio.sleep(0.001)
        assert self.pipeline.active == 0
        assert self.pipeline.kept_bytes == 0


def small_model(directory: Path) -> Path:
    """Write a random model of ``NUM_LAYERS`` layers, and return its folder."""
    return make_model(directory, num_layers=NUM_LAYERS)


def spans(*cuts: int) -> list[range]:
    """Return the layer ranges between the cuts."""
    return [range(a, b) for a, b in itertools.pairwise([0, *cuts, NUM_LAYERS])]


@asynccontextmanager
async def cluster(
    directory: Path,
    own: range,
    held: Sequence[range],
    *,
    limits: PipelineLimits = PIPELINE,
    engine: EngineLimits = LIMITS,
    within_s: float = 300.0,
    draft: DraftModel | None = None,
    **changes: Any,
) -> AsyncIterator[Cluster]:
    """Run a driver with the layers ``own``, and a holder for each range in ``held``.

    ``changes`` replace fields of the driver's model, for instance ``eos_token_ids``.
    """
    with trio.fail_after(within_s):
        async with trio.open_nursery() as nursery:
            model = replace(loaded(directory, own), **changes)
            book = FixedBook()
            executor = await nursery.start(partial(serve_executor, model, engine))
            pool = await nursery.start(serve_pool, TrafficMeter())
            holders = [
                await start_member(nursery, directory, layers, index, book, pool, engine)
                for index, layers in enumerate(held, 1)
            ]
            book.peers = [holder.peer for holder in holders]
            driving, hops = trio.CancelScope(), HopRecorder()

            async def drive(*, task_status: trio.TaskStatus[Pipeline]) -> None:
                with driving:
                    await serve_pipeline(
                        model,
                        executor,
                        book.as_peer_book,
                        pool,
                        limits,
                        node_id="d" * 40,
                        recorder=hops,
                        draft=draft,
                        task_status=task_status,
                    )

            pipeline = await nursery.start(drive)
            yield Cluster(
                nursery, directory, model, executor, pool, book, pipeline, holders, driving, hops
            )
            nursery.cancel_scope.cancel()


async def start_member(
    nursery: trio.Nursery,
    directory: Path,
    layers: range,
    number: int,
    book: FixedBook,
    pool: ChannelPool,
    engine: EngineLimits = LIMITS,
) -> Holder:
    """Serve some layers, under the id of the key ``number``."""
    key = member_key(number)
    return await start_holder(nursery, directory, layers, key.node_id, book, pool, engine, key=key)


async def start_holder(
    nursery: trio.Nursery,
    directory: Path,
    layers: range,
    node_id: str,
    book: FixedBook,
    pool: ChannelPool,
    engine: EngineLimits = LIMITS,
    key: NodeKey | None = None,
) -> Holder:
    """Serve some layers on a port of their own. Who trains needs the ``key`` of its id."""
    model = loaded(directory, layers)
    executor = await nursery.start(partial(serve_executor, model, engine))
    drain = Drain()
    sessions = await nursery.start(
        partial(serve_holder, executor, HOLDER, accepting=lambda: not drain.draining)
    )
    training = await nursery.start(
        partial(
            serve_training,
            executor,
            partial(load_model, directory, layers, trainable=True),
            TrainingLimits(),
            enabled=lambda: True,
            pool=pool,
            peers=book.as_peer_book,
            members=TrainingMembers(key or member_key(1), book),
        )
    )
    card = model.card
    shard_relay = ShardRelay(
        node_id=node_id,
        holder=sessions,
        held=card.layers,
        num_layers=card.num_layers,
        pool=pool,
        peers=book.as_peer_book,
    )
    gate = Gate(
        PipelineServicer(holder=sessions, relay=shard_relay, training=training, held=card.layers)
    )
    _, port = await nursery.start(
        partial(serve_grpc, node_services([gate], drain), "127.0.0.1", 0, traffic=TrafficMeter())
    )
    relay = Relay(port)
    await nursery.start(relay.run)
    return Holder(node_id, layers, executor, gate, relay, training)


def member_key(number: int) -> NodeKey:
    """Return a node's key. A higher number has a higher id, as equal holders are taken by id."""
    return member_keys()[number]


@cache
def member_keys() -> list[NodeKey]:
    """Return a few keys, by their ids."""
    keys = [key_from_seed(f"{number:064x}") for number in range(16)]
    return sorted(keys, key=lambda key: key.node_id)


@cache
def loaded(directory: Path, layers: range | None = None) -> LoadedModel:
    """Load a model once per folder and range: executors share weights, which never change."""
    return load_model(directory, layers)


async def alone(directory: Path, request: GenerationRequest, **changes: Any) -> str:
    """Return the text that one node with all layers generates."""
    model = replace(loaded(directory), **changes)
    async with trio.open_nursery() as nursery:
        executor = await nursery.start(partial(serve_executor, model, LIMITS))
        async with await executor.open(request) as generation:
            tokens, _ = await read(generation)
        nursery.cancel_scope.cancel()
    return "".join(event.text for event in tokens)
