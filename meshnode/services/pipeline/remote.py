"""One session over the holders of a path (interface 2.3, 4.3; decisions 0036, 0037).

Terms: a *relayed* call is ``SwarmForward`` to the first holder, which calls the next one itself;
*direct* calls are ``PipelineForward`` to each holder in turn. Both give the same bits. The answer
to a relayed call may take a *short cut* (``short_cuts``).

Invariants: the session's id is random and is used on this path only; every request has an id of its
own; each call has a deadline; an answer of the wrong shape, or with numbers that are not finite, is
a failure of the hop that gave it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import trio
from google.protobuf.message import Message

from meshnode.domain.errors import InvalidRequest
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.metadata import CONVOY, NONE
from meshnode.services.pipeline.hop_times import direct_time, relay_times, shares_of
from meshnode.services.pipeline.logits import LogitRows, read_rows
from meshnode.services.pipeline.policy import HopFailed, parse_failure
from meshnode.services.pipeline.records import HopTime
from meshnode.services.shards.decoding import (
    DECODE_FROM,
    FLIGHT,
    MODEL,
    RESERVE,
    WANTED,
)
from meshnode.services.shards.messages import BYTES_PER_NUMBER, answer_bytes, off_loop
from meshnode.services.shards.wanted import WantedLogits
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats, pack_integers, unpack_floats

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.rpc.node_grpc import NodeServiceStub
    from meshnode.rpc.stubs import Answer, UnaryUnary
    from meshnode.services.pipeline.routes import RemoteHop
    from meshnode.services.pipeline.short_cuts import ShortCuts
    from meshnode.services.shards.flights import Flight
    from meshnode.services.stub_pool import StubPool

SESSION_BYTES = 16
"""128 random bits, so that a session's id cannot be guessed."""
POSITIONS_A_CALL = 32
"""Every further 32 positions extend the deadline by ``call_s``: prompts wait for one another."""
CLOSE_S = 2.0
"""Deadline for closing a session at its holders. A holder that is not reached lets it expire."""

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)


@dataclass(frozen=True, slots=True)
class PathMessage:
    """The states of some positions, and how they are to be computed."""

    states: Tensor
    """``[1, seq, hidden]``."""
    start: int
    """The first position."""
    wanted: WantedLogits
    decode_from: int | None = None
    """From this position on, the holders compute as if one position came at a time."""
    flight: Flight | None = None
    """Its place among the messages that are sent ahead; None for holders that take none."""
    within_s: float = math.inf
    """Seconds to wait for the answer, in addition to the deadline of a call."""
    convoy: str = ""
    """The messages of other sessions that it should be computed with (decision 0213)."""
    before: int = 0
    """Positions of earlier messages that are not answered yet."""

    @property
    def seq(self) -> int:
        """The number of positions."""
        return self.states.shape[1]

    @property
    def stop(self) -> int:
        """The position after the last."""
        return self.start + self.seq


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """What came back for one message."""

    rows: LogitRows
    times: list[HopTime]
    took_ms: tuple[float, ...]
    """What each hop took, its network included. In a relayed call the hops' own reports divide the
    time that the driver measured; they never add to it."""


@dataclass(frozen=True, slots=True)
class AnswersTo:
    """Where the answers of a path may come straight from the last holder (decision 0219)."""

    node_id: str
    """The driver's."""
    short_cuts: ShortCuts
    spawn: Callable[[Callable[[], Awaitable[None]]], None]
    """Starts a task that outlives its message: the call along the path."""


class RemotePath:
    """A session over ``hops``."""

    def __init__(
        self,
        hops: Sequence[RemoteHop],
        pool: StubPool,
        *,
        relay: bool,
        call_s: float,
        positions: int,
        vocab_size: int,
        model_hash: str = "",
        answers: AnswersTo | None = None,
    ) -> None:
        """``positions`` is the most that the session will hold. Nothing is sent yet.

        ``model_hash`` names the weights to compute with, by default those that each holder serves.
        ``answers`` take the last holder's answers of a relayed path, if they may come straight.
        """
        self._answers = answers if relay else None
        self._model_hash = model_hash
        self.hops = tuple(hops)
        self.relay = relay
        self.session_id = secrets.token_hex(SESSION_BYTES)
        self.ahead = min((hop.messages for hop in hops), default=0)
        """Messages that may be sent before the first of them is answered; 0: one at a time, and
        logits of the last position only."""
        self.opened = False
        """Whether a message was answered. The first one goes alone: holders may refuse it."""
        self._pool = pool
        self._call_s = call_s
        self._positions = positions
        self._vocab_size = vocab_size
        self._begun = False

    def __repr__(self) -> str:
        """Hops, positions and only the start of the session's id: the full id gives access to
        it."""
        how = "relayed" if self.relay else "direct"
        nodes = ", ".join(hop.node_id[:8] for hop in self.hops)
        session = self.session_id[:8]
        return f"<session {session} at {nodes}, {how}, at most {self._positions} positions>"

    @property
    def room(self) -> int:
        """How many messages may be in flight now."""
        return max(1, self.ahead) if self.opened else 1

    async def forward(self, message: PathMessage, carried: Mapping[str, str] = NONE) -> PathAnswer:
        """Send states through all hops.

        Raises HopFailed, also when a call takes longer than its deadline or ``within_s`` seconds; a
        relayed path is one call, a direct one a call for each hop. Messages may overlap if the
        holders allow it and the messages have a flight. The calls carry ``carried`` beside their
        own metadata.
        """
        metadata = dict(carried)
        if not message.start:
            metadata[RESERVE] = str(self._positions)
            if self._model_hash:
                metadata[MODEL] = self._model_hash
        if message.decode_from is not None:
            metadata[DECODE_FROM] = str(message.decode_from)
        if message.flight is not None:
            metadata[FLIGHT] = str(message.flight)
            if message.start:
                # What is ordered is computed again in full by those who judge it (decision 0098).
                metadata[WANTED] = str(message.wanted)
        if message.convoy:
            metadata[CONVOY] = message.convoy
        self._begun = True
        run = self._relay if self.relay else self._call_each
        return await run(message, metadata)

    def failed_at_end(self, message: str) -> HopFailed:
        """The failure of a path whose logits cannot be right."""
        return self._failed(len(self.hops) - 1, Code.INTERNAL, message, relayed=self.relay)

    async def close(self) -> None:
        """Close the session at every holder, also on a path that has failed.

        Takes at most ``CLOSE_S``. A holder that cannot be reached lets the session expire.
        """
        if not self._begun:
            return
        with trio.move_on_after(CLOSE_S, shield=True):
            async with trio.open_nursery() as nursery:
                for hop in self.hops:
                    nursery.start_soon(self._close_at, hop)

    async def _relay(self, message: PathMessage, metadata: dict[str, str]) -> PathAnswer:
        request = pb.SwarmForwardRequest(
            session_id=self.session_id,
            request_id=secrets.token_hex(SESSION_BYTES),
            hidden_states=await _packed(message.states),
            hidden_shape=message.states.shape,
            position_ids=_positions(message.start, message.seq),
            use_cache=True,
            route=self._route(),
        )
        began = trio.current_time()
        answer, short_cut = await self._first_answer(request, metadata, message)
        elapsed_ms = (trio.current_time() - began) * 1e3
        if not answer.success:
            place = min(len(answer.hops), len(self.hops) - 1)
            code, lost = parse_failure(answer.error_message)
            raise self._failed(place, code, answer.error_message, lost=lost, relayed=True)
        place = len(self.hops) - 1
        ids, shape = answer.logit_ids, answer.logits_shape
        rows = await self._rows(place, answer.logits, ids, shape, message)
        times = relay_times(self.hops, answer.hops, elapsed_ms, short_cut=short_cut)
        took_ms = shares_of(elapsed_ms, [time.total_ms for time in times], len(self.hops))
        return PathAnswer(rows, times, took_ms)

    async def _first_answer(
        self, request: pb.SwarmForwardRequest, metadata: dict[str, str], message: PathMessage
    ) -> tuple[pb.SwarmForwardResponse, bool]:
        """The answer, and whether it came straight from the last holder."""

        async def along() -> pb.SwarmForwardResponse:
            answered = await self._call(
                0, lambda stub: stub.SwarmForward, request, metadata, message, relayed=True
            )
            return answered.message

        if self._answers is None:
            return await along(), False
        request.answer_to = self._answers.node_id
        found = await self._answers.short_cuts.first(request, along, self._answers.spawn)
        if found.answer is None or (found.answer.delivered and not found.short_cut):
            raise self.failed_at_end("it has not delivered what it says that it has")
        return found.answer, found.short_cut

    async def _call_each(self, message: PathMessage, metadata: dict[str, str]) -> PathAnswer:
        times: list[HopTime] = []
        took_ms: list[float] = []
        data, shape = await _packed(message.states), tuple(message.states.shape)
        for place, hop in enumerate(self.hops):
            request = pb.PipelineForwardRequest(
                session_id=self.session_id,
                request_id=secrets.token_hex(SESSION_BYTES),
                hidden_states=data,
                hidden_shape=shape,
                position_ids=_positions(message.start, message.seq),
                use_cache=True,
                source_shard=self.hops[place - 1].first if place else 0,
                target_shard=hop.first,
            )
            began = trio.current_time()
            answered = await self._call(
                place, lambda stub: stub.PipelineForward, request, metadata, message
            )
            elapsed_ms = (trio.current_time() - began) * 1e3
            answer = answered.message
            if not answer.success:
                code, lost = parse_failure(answer.error_message)
                raise self._failed(place, code, answer.error_message, lost=lost)
            times.append(direct_time(hop, answered.metadata, elapsed_ms))
            took_ms.append(elapsed_ms)
            if answer.is_final != (place == len(self.hops) - 1):
                raise self._failed(
                    place, Code.NOT_FOUND, "it does not hold the layers that it announced"
                )
            if answer.is_final:
                # The ids of some logits stand where an answer that is not final has its states.
                ids = answer.hidden_states if message.flight is not None else b""
                rows = await self._rows(place, answer.logits, ids, answer.logits_shape, message)
                return PathAnswer(rows, times, tuple(took_ms))
            if tuple(answer.hidden_shape) != shape:
                raise self._failed(place, Code.INTERNAL, "hidden states of the wrong shape")
            data = answer.hidden_states
            # Checked here, so that the next holder is not blamed for invalid states.
            await self._validate_states(place, data, shape)
        raise AssertionError("a path without hops")

    async def _call(
        self,
        place: int,
        operation: Callable[[NodeServiceStub], UnaryUnary[Takes, Gives]],
        request: Takes,
        metadata: Mapping[str, str],
        message: PathMessage,
        *,
        relayed: bool = False,
    ) -> Answer[Gives]:
        hop = self.hops[place]
        # Those that were sent before it are computed before it.
        ahead = (message.before + message.seq - 1) / POSITIONS_A_CALL
        deadline_s = min(self._call_s * (1 + ahead), message.within_s)
        # The largest possible answer has logits of every position.
        width = max(message.states.shape[2], self._vocab_size)
        most_bytes = answer_bytes(message.seq, width)
        with trio.move_on_after(deadline_s):
            try:
                stub = await self._pool.stub(hop.host, hop.grpc_port)
                # Holders that take messages ahead may also take calls on a line (decision 0263).
                return await operation(stub).ask(
                    request, metadata=metadata, most_bytes=most_bytes, line=hop.messages > 0
                )
            except CallFailed as error:
                if error.code is Code.DEADLINE_EXCEEDED:
                    self._pool.distrust(hop.host, hop.grpc_port)
                raise self._failed(place, error.code, error.message, relayed=relayed) from None
        self._pool.distrust(hop.host, hop.grpc_port)
        raise self._failed(place, Code.DEADLINE_EXCEEDED, "no answer in time", relayed=relayed)

    async def _close_at(self, hop: RemoteHop) -> None:
        # Each is called directly, even on a relayed path: the holders before it may be gone.
        request = pb.PipelineForwardRequest(session_id=self.session_id, target_shard=hop.first)
        try:
            stub = await self._pool.stub(hop.host, hop.grpc_port)
            await stub.PipelineForward(request)
        except CallFailed:
            # The holder is gone, or the session will expire there.
            return

    def _route(self) -> list[pb.SwarmHop]:
        return [
            pb.SwarmHop(
                node_id=hop.node_id,
                address=hop.address,
                first_layer=hop.first,
                last_layer=hop.last,
            )
            for hop in self.hops
        ]

    async def _rows(
        self, place: int, data: bytes, ids: bytes, shape: Sequence[int], message: PathMessage
    ) -> LogitRows:
        """The rows of an answer; large ones are read off the loop."""
        try:
            return await read_rows(data, ids, shape, message.wanted, self._vocab_size, message.seq)
        except (ValueError, InvalidRequest) as error:
            raise self._failed(place, Code.INTERNAL, str(error)) from None

    async def _validate_states(self, place: int, data: bytes, shape: Sequence[int]) -> None:
        """Check states whose shape was checked; large ones off the loop."""
        size = BYTES_PER_NUMBER * math.prod(shape)
        try:
            await off_loop(size, lambda: unpack_floats(data, shape, "tensor"))
        except InvalidRequest as error:
            raise self._failed(place, Code.INTERNAL, str(error)) from None

    def _failed(
        self, place: int, code: Code, message: str, *, lost: bool = False, relayed: bool = False
    ) -> HopFailed:
        node_id = self.hops[place].node_id
        return HopFailed(place, node_id, code, message, lost=lost, relayed=relayed)


async def _packed(states: Tensor) -> bytes:
    """``[1, seq, hidden]`` as bytes. Large ones are copied off the event loop."""
    return await off_loop(states.nbytes, lambda: pack_floats(states.numpy()))


def _positions(start: int, count: int) -> bytes:
    """``[1, count]`` consecutive positions as bytes."""
    return pack_integers(np.arange(start, start + count))
