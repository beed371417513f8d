"""A pipeline in virtual time: real services, with computing and messages that take a given time.

Every node's torch thread computes at once and then sleeps for as long as the step is said to take;
messages go from node to node without sockets, and each keeps its receiver's event loop busy for a
while, as a real one does. So it can be seen exactly when each stage computes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

import trio

from meshnode.domain.batching import EngineLimits
from meshnode.domain.errors import MeshnodeError
from meshnode.domain.generation import Finished, GenerationRequest
from meshnode.domain.peers import Capacity
from meshnode.model.loading import LoadedModel
from meshnode.rpc.caller import Caller
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.stubs import Answer
from meshnode.services.executor import Executor, serve_executor, starting
from meshnode.services.executor.torch_thread import TorchThread
from meshnode.services.pipeline import Pipeline, PipelineLimits, serve_pipeline
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.shards.decoding import decode_pipeline_forward, decode_swarm_forward
from meshnode.services.shards.flights import SESSION_MESSAGES
from meshnode.services.shards.holder import Holder, HolderLimits, serve_holder
from meshnode.services.shards.relay import ShardRelay
from meshnode.services.stub_pool import StubPool
from meshnode.wire import node_pb2 as pb
from spec_tests.services.pipeline.pipelines import FixedBook, FixedPeer, loaded

LIMITS = EngineLimits(max_batch=32, max_queue=32, kv_bytes=1 << 26, prefill_chunk=16)
DRIVER = PipelineLimits(
    max_sessions=32, max_queue=32, prefill_chunk=16, call_s=20.0, speculate=False, short_cut=False
)


@dataclass(frozen=True)
class Costs:
    """What things take, in seconds."""

    step: float = 0.015
    """A step, whatever its size: the weights are read."""
    row: float = 0.0023
    """Each position of a step, beside that."""
    message: float = 0.001
    """A message, at the node that receives it."""
    way: float = 0.0
    """The network from one node to the next."""
    answer: float = 0.0
    """An answer, at the node that gives it."""


@dataclass
class VirtualNode:
    """A node, and when it has computed."""

    name: str
    layers: range
    costs: Costs
    factor: float = 1.0
    """How many times as long as usual it computes."""
    seconds: Callable[[int, bool], float] | None = None
    """What a step of so many positions takes, of one session's prompt or of several sessions."""
    steps: list[tuple[float, float, int]] = field(default_factory=list)
    """Of each step, begin, end and positions."""
    frozen: bool = False
    dead: bool = False
    calls: int = 0
    relay: ShardRelay | None = None
    holder: Holder | None = None
    executor: Executor | None = None
    loop: trio.Lock = field(default_factory=trio.Lock)

    @property
    def node_id(self) -> str:
        return self.name.ljust(40, "0")

    def takes(self, positions: int, *, prompt: bool) -> float:
        """The seconds that a step takes."""
        if self.seconds is not None:
            return self.seconds(positions, prompt)
        return (self.costs.step + positions * self.costs.row) * self.factor

    def share(self, begin: float, end: float) -> float:
        """The part of the time in which it computed."""
        inside = (min(stop, end) - max(start, begin) for start, stop, _ in self.steps)
        return sum(each for each in inside if each > 0) / (end - begin)

    def sizes(self, begin: float, end: float) -> list[int]:
        """The positions of each step in that time."""
        return [size for start, stop, size in self.steps if start >= begin and stop <= end]


class _VirtualThread(TorchThread):
    """Stands in for the torch thread of the node that starts next."""

    node: VirtualNode

    async def __call__(self, function: Callable[[], Any]) -> Any:
        node, result = self.node, function()
        rows, prompt = _rows(function)
        if rows:
            async with self._limiter:
                begun = trio.current_time()
                with trio.CancelScope(shield=True):
                    await trio.sleep(node.takes(rows, prompt=prompt))
                node.steps.append((begun, trio.current_time(), rows))
        return result


def _rows(function: Callable[[], Any]) -> tuple[int, bool]:
    """Positions of a step, and whether they are one session's; 0 for anything else."""
    name = getattr(function.func, "__name__", "") if isinstance(function, partial) else ""
    if name == "step":
        return len(cast("partial[Any]", function).args[0]), False
    if name == "extend":
        return int(cast("partial[Any]", function).args[1].shape[1]), True
    return 0, False


class _Call:
    def __init__(self, act: Callable[[Any, Mapping[str, str]], Any]) -> None:
        self._act = act

    async def ask(self, request: Any, *, metadata: Mapping[str, str], **_: Any) -> Answer[Any]:
        return Answer(await self._act(request, metadata), {})

    async def __call__(
        self, request: Any, *, metadata: Mapping[str, str] | None = None, **_: Any
    ) -> Any:
        return await self._act(request, metadata or {})


class _Stub:
    """Calls to one node."""

    def __init__(self, node: VirtualNode) -> None:
        self._node = node
        self.SwarmForward = _Call(self._swarm)
        self.PipelineForward = _Call(self._pipeline)

    async def _arrive(self) -> None:
        node = self._node
        await trio.sleep(node.costs.way)
        if node.dead:
            raise CallFailed(Code.UNAVAILABLE, "connection refused")
        async with node.loop:
            await trio.sleep(node.costs.message)
        if node.frozen:
            await trio.sleep_forever()

    async def _swarm(
        self, request: pb.SwarmForwardRequest, metadata: Mapping[str, str]
    ) -> pb.SwarmForwardResponse:
        await self._arrive()
        node = self._node
        node.calls += 1
        assert node.relay is not None
        call = decode_swarm_forward(request, Caller("127.0.0.1", 1, metadata))
        try:
            answer: pb.SwarmForwardResponse = await node.relay.forward(request, call)
        except MeshnodeError as error:
            raise CallFailed(Code.UNAVAILABLE, str(error)) from None
        async with node.loop:
            await trio.sleep(node.costs.answer)
        await trio.sleep(node.costs.way)
        if node.dead:
            raise CallFailed(Code.UNAVAILABLE, "connection reset")
        if node.frozen:
            await trio.sleep_forever()
        return answer

    async def _pipeline(
        self, request: pb.PipelineForwardRequest, metadata: Mapping[str, str]
    ) -> pb.PipelineForwardResponse:
        await self._arrive()
        node = self._node
        assert node.holder is not None
        caller = Caller("127.0.0.1", 1, metadata)
        # Only closing: all other messages are relayed.
        await node.holder.forward(decode_pipeline_forward(request, caller, list(node.layers)))
        return pb.PipelineForwardResponse(success=True)


@dataclass
class VirtualPipeline:
    """A driver and its holders."""

    driver: VirtualNode
    holders: Sequence[VirtualNode]
    pipeline: Pipeline
    book: FixedBook
    hops: HopRecorder

    @property
    def nodes(self) -> list[VirtualNode]:
        return [self.driver, *self.holders]

    async def generate(self, requests: Sequence[GenerationRequest]) -> Streams:
        """All requests at once."""
        streams = Streams([""] * len(requests), [[] for _ in requests])

        async def one(number: int, request: GenerationRequest) -> None:
            async with await self.pipeline.open(request) as generation:
                async for event in generation:
                    if not isinstance(event, Finished):
                        streams.texts[number] += event.text
                        streams.times[number].append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for number, request in enumerate(requests):
                nursery.start_soon(one, number, request)
        return streams


@dataclass
class Streams:
    """What was generated, and when."""

    texts: list[str]
    times: list[list[float]]

    @property
    def steady(self) -> tuple[float, float]:
        """From the moment at which all streams have some tokens until the first ends."""
        return max(each[8] for each in self.times), min(each[-1] for each in self.times)

    @property
    def rate(self) -> float:
        """Tokens a second in that time."""
        begin, end = self.steady
        return sum(begin < at <= end for each in self.times for at in each) / (end - begin)


class _Pool:
    """Stands in for the pool of connections."""

    def __init__(self) -> None:
        self.nodes: dict[str, VirtualNode] = {}

    async def stub(self, host: str, grpc_port: int) -> _Stub:
        return _Stub(self.nodes[host])

    def distrust(self, host: str, grpc_port: int) -> None:
        """There are no connections."""


@asynccontextmanager
async def virtual_pipeline(
    directory: Path,
    held: Sequence[range],
    costs: Costs = Costs(),
    limits: PipelineLimits = DRIVER,
    engine: EngineLimits = LIMITS,
    messages: int = SESSION_MESSAGES,
    **changes: Any,
) -> AsyncIterator[VirtualPipeline]:
    """Run a driver and its holders; the first of ``held`` are the driver's layers.

    Holders let a driver send so many ``messages`` of a session ahead.
    """
    book, pool, hops = FixedBook(), _Pool(), HopRecorder()
    nodes = [VirtualNode(f"n{index}", layers, costs) for index, layers in enumerate(held)]
    async with trio.open_nursery() as nursery:
        for node in nodes:
            model = loaded(directory, node.layers)
            executor = node.executor = await _executor(nursery, node, model, engine, changes)
            if node is nodes[0]:
                continue
            places = HolderLimits(sessions=32, open_s=20.0)
            node.holder = await nursery.start(
                partial(serve_holder, executor, places, accepting=lambda: True)
            )
            node.relay = ShardRelay(
                node_id=node.node_id,
                holder=node.holder,
                held=model.card.layers,
                num_layers=model.card.num_layers,
                pool=cast(StubPool, pool),
                peers=book.as_peer_book,
            )
            pool.nodes[node.name] = node
            capacity = Capacity(session_messages=messages)
            book.peers.append(
                FixedPeer(node.node_id, node.name, 1, tuple(node.layers), capacity=capacity)
            )
        driver = nodes[0]
        assert driver.executor is not None
        pipeline = await nursery.start(
            partial(
                serve_pipeline,
                replace(loaded(directory, driver.layers), **changes),
                driver.executor,
                book.as_peer_book,
                cast(StubPool, pool),
                limits,
                node_id="d" * 40,
                recorder=hops,
            )
        )
        yield VirtualPipeline(driver, nodes[1:], pipeline, book, hops)
        nursery.cancel_scope.cancel()


async def _executor(
    nursery: trio.Nursery,
    node: VirtualNode,
    model: LoadedModel,
    engine: EngineLimits,
    changes: Mapping[str, Any],
) -> Executor:
    """An executor whose torch thread computes in virtual time."""

    def thread() -> TorchThread:
        made = _VirtualThread()
        made.node = node
        return made

    with mock.patch.object(starting, "TorchThread", thread):
        executor: Executor = await nursery.start(
            partial(serve_executor, replace(model, **changes), engine)
        )
    return executor
