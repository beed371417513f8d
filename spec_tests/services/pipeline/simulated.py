"""Simulated holders in virtual time: what they answer depends only on the positions they have."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
import trio

from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.stubs import Answer
from meshnode.services.pipeline.context import DriverContext
from meshnode.services.pipeline.failover import RemoteLayers
from meshnode.services.pipeline.records import HopTrace, SpotChecks
from meshnode.services.pipeline.routes import Routes
from meshnode.services.stub_pool import StubPool
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats
from spec_tests.services.pipeline.pipelines import FixedBook, FixedPeer

HIDDEN, VOCAB = 4, 16
FIRST, TOTAL = 2, 6
CALL_S = 5.0
PROMPT = 10
NORMAL_MS = 20.0


@dataclass
class SimulatedHolder:
    """A holder that takes some time for each call, and fails as a test specifies."""

    name: str
    layers: range = range(FIRST, TOTAL)
    ms: float = NORMAL_MS
    latency_ms: float = 1.0
    """Of a small call, as the peer book has it."""
    refusal: Code | None = None
    hangs_after: float = math.inf
    """Calls that it answers before it hangs."""
    blames: Code | None = None
    """It reports this of the next hop, without having called it."""
    claims_ms: float | None = None
    """The time that it claims for the next hop's network; by default the truth."""
    lies: Callable[[int], bool] = lambda positions: False
    """Whether it answers so many positions with other logits, the same for each liar."""
    sessions: dict[str, int] = field(default_factory=dict)
    """Positions of each session that was ever begun here."""
    calls: int = 0

    @property
    def node_id(self) -> str:
        return self.name.ljust(40, "0")

    def logits(self, session_id: str) -> bytes:
        positions = self.sessions[session_id]
        return logits_after(-positions if self.lies(positions) else positions)

    async def compute(self, session_id: str, positions: int) -> None:
        self.calls += 1
        self.sessions.setdefault(session_id, 0)
        if self.calls > self.hangs_after:
            await trio.sleep_forever()
        if self.refusal is not None:
            raise CallFailed(self.refusal, "for a test")
        await trio.sleep(self.ms / 1e3)
        self.sessions[session_id] += positions


class _Operation:
    """One operation of a stub; ``ask`` calls ``act``, as ``UnaryUnary.ask`` calls a peer."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self._act = act

    async def ask(self, request: Any, **_: Any) -> Answer[Any]:
        return Answer(await self._act(request), {})

    async def __call__(self, request: Any, **_: Any) -> Any:
        return await self._act(request)


class _Stub:
    def __init__(self, network: SimulatedNetwork, holder: SimulatedHolder) -> None:
        self._network, self._holder = network, holder
        self.PipelineForward = _Operation(self._forward)
        self.SwarmForward = _Operation(self._swarm)

    async def _forward(self, request: pb.PipelineForwardRequest) -> pb.PipelineForwardResponse:
        if not request.hidden_states:
            return pb.PipelineForwardResponse(success=True)
        holder, shape = self._holder, tuple(request.hidden_shape)
        await holder.compute(request.session_id, shape[1])
        if holder.layers.stop == TOTAL:
            logits = holder.logits(request.session_id)
            return pb.PipelineForwardResponse(
                success=True, logits=logits, logits_shape=[1, 1, VOCAB], is_final=True
            )
        return pb.PipelineForwardResponse(
            success=True, hidden_states=request.hidden_states, hidden_shape=shape
        )

    async def _swarm(self, request: pb.SwarmForwardRequest) -> pb.SwarmForwardResponse:
        holder, session_id = self._holder, request.session_id
        report = pb.SwarmHopReport(node_id=holder.node_id, compute_ms=holder.ms)
        if holder.blames is not None:
            return pb.SwarmForwardResponse(error_message=holder.blames.name, hops=[report])
        await holder.compute(session_id, request.hidden_shape[1])
        if len(request.route) == 1:
            return pb.SwarmForwardResponse(
                success=True,
                logits=holder.logits(session_id),
                logits_shape=[1, 1, VOCAB],
                hops=[report],
            )
        onward = pb.SwarmForwardRequest()
        onward.CopyFrom(request)
        del onward.route[0]
        later = _Stub(self._network, self._network.by_id(onward.route[0].node_id))
        with trio.move_on_after((trio.current_effective_deadline() - trio.current_time()) * 0.9):
            try:
                answer = await later._swarm(onward)
            except CallFailed as error:
                return pb.SwarmForwardResponse(error_message=error.code.name, hops=[report])
            if holder.claims_ms is not None:
                report.compute_ms, report.network_ms = 0.0, holder.claims_ms
            answer.hops.insert(0, report)
            return answer
        return pb.SwarmForwardResponse(error_message="DEADLINE_EXCEEDED", hops=[report])


class SimulatedNetwork:
    """A driver's view of simulated holders: peer book and pool of connections."""

    def __init__(self, *holders: SimulatedHolder, relay: bool = True) -> None:
        self.holders = holders
        book = FixedBook()
        book.peers = [
            FixedPeer(holder.node_id, holder.name, 1, tuple(holder.layers), holder.latency_ms)
            for holder in holders
        ]
        self.book = book
        # A draw of 1 never gives a newcomer a session that a proven holder can have.
        self.draw = 1.0
        self.checks = SpotChecks()
        self.false = 0
        """False logits that were taken for true, in all generations."""
        self.routes = Routes(book.as_peer_book, FIRST, TOTAL, draw=lambda: self.draw)
        self.context = DriverContext(
            book=book.as_peer_book,
            pool=cast(StubPool, self),
            routes=self.routes,
            relay=relay,
            call_s=CALL_S,
            hidden_dim=HIDDEN,
            vocab_size=VOCAB,
            prefill_chunk=128,
            spawn=self._spawn,
            checks=self.checks,
        )
        self._tasks: trio.Nursery | None = None

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(work)

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[None]:
        """Calls are made in the background of this block."""
        async with trio.open_nursery() as self._tasks:
            yield

    def by_id(self, node_id: str) -> SimulatedHolder:
        return next(holder for holder in self.holders if holder.node_id == node_id)

    async def stub(self, host: str, grpc_port: int) -> Any:
        (holder,) = (holder for holder in self.holders if holder.name == host)
        return _Stub(self, holder)

    def distrust(self, host: str, grpc_port: int) -> None:
        """As ``ChannelPool.distrust``; there are no connections here."""

    async def generate(self, tokens: int = 40) -> float:
        """Run a generation, check all its logits, and return the virtual seconds that it took."""
        began = trio.current_time()
        remote = RemoteLayers(self.context, PROMPT, PROMPT + tokens, HopTrace("gen"))
        length = 0
        try:
            async with self.tasks():
                try:
                    for count in [PROMPT] + [1] * (tokens - 1):
                        length += count
                        await remote.send(torch.ones(1, count, HIDDEN))
                        rows, _ = await remote.receive()
                        while not rows:
                            # A replay has answers without logits that are wanted.
                            rows, _ = await remote.receive()
                        false = rows.values.numpy().tobytes() != logits_after(length)
                        assert self.checks.rate or not false
                        self.false += false
                finally:
                    remote.close()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        return trio.current_time() - began

    async def generate_all(self, count: int) -> list[float]:
        """Run generations one after another."""
        return [await self.generate() for _ in range(count)]


def logits_after(positions: int) -> bytes:
    """The logits of the last of so many positions: different ones for each number."""
    return pack_floats(
        np.sin(np.arange(VOCAB, dtype=np.float32) * math.sqrt(1 + abs(positions)) + (positions < 0))
    )


def sessions(*holders: SimulatedHolder) -> Sequence[int]:
    """How many sessions were begun at each."""
    return [len(holder.sessions) for holder in holders]
