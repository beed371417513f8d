"""One session over the holders of a path (interface 2.3, 4.3; decisions 0036, 0037).

Terms: a *relayed* call is ``SwarmForward`` to the first holder, which calls the next one itself;
*direct* calls are ``PipelineForward`` to each holder in turn. Both give the same bits.

Invariants: the session's id is random and is used on this path only; every request has an id of its
own; each call has a deadline; an answer of the wrong shape, or with numbers that are not finite, is
a failure of the hop that gave it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
import trio
from google.protobuf.message import Message

from meshnode.domain.errors import InvalidRequest
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.pipeline.policy import HopFailed, parse_failure
from meshnode.services.pipeline.records import HopTime
from meshnode.services.shards.decoding import COMPUTE_MS, DECODE_FROM, QUEUE_MS, RESERVE
from meshnode.services.shards.messages import BYTES_PER_NUMBER, answer_bytes, off_loop
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats, pack_integers, unpack_floats

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.rpc.node_grpc import NodeServiceStub
    from meshnode.rpc.stubs import Answer, UnaryUnary
    from meshnode.services.pipeline.routes import RemoteHop
    from meshnode.services.stub_pool import StubPool

SESSION_BYTES = 16
"""128 random bits, so that a session's id cannot be guessed."""
POSITIONS_A_CALL = 32
"""Every further 32 positions extend the deadline by ``call_s``: prompts wait for one another."""
MAX_MS = 1e9
CLOSE_S = 2.0
"""Deadline for closing a session at its holders. A holder that is not reached lets it expire."""

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)


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
    ) -> None:
        """``positions`` is the most that the session will hold. Nothing is sent yet."""
        self.hops = tuple(hops)
        self.relay = relay
        self.session_id = secrets.token_hex(SESSION_BYTES)
        self.length = 0
        """Positions that the holders have computed."""
        self.took_ms: tuple[float, ...] = ()
        """What each hop of the latest call took, its network included. In a relayed call the hops'
        own reports divide the time that the driver measured; they never add to it."""
        self._pool = pool
        self._call_s = call_s
        self._positions = positions
        self._vocab_size = vocab_size
        self._begun = False
        self._most_bytes = 0
        self._deadline_s = call_s

    def __repr__(self) -> str:
        """Hops, positions and only the start of the session's id: the full id gives access to
        it."""
        how = "relayed" if self.relay else "direct"
        nodes = ", ".join(hop.node_id[:8] for hop in self.hops)
        session = self.session_id[:8]
        return (
            f"<session {session} at {nodes}, {how}, {self.length} of {self._positions} positions>"
        )

    async def forward(
        self, states: Tensor, decode_from: int | None = None, within_s: float = math.inf
    ) -> tuple[Tensor, list[HopTime]]:
        """Send ``[1, seq, hidden]`` states of the next positions through all hops.

        Returns the logits ``[vocab]`` of the last position, and what each hop took. Raises
        HopFailed, also when a call takes longer than its deadline or ``within_s`` seconds; a
        relayed path is one call, a direct one a call for each hop. From the position
        ``decode_from`` on, the holders compute as if one position came at a time.
        """
        metadata = {} if self._begun else {RESERVE: str(self._positions)}
        if decode_from is not None:
            metadata[DECODE_FROM] = str(decode_from)
        self._begun = True
        # The largest possible answer has logits of every position.
        width = max(states.shape[2], self._vocab_size)
        deadline_s = self._call_s * (1 + (states.shape[1] - 1) / POSITIONS_A_CALL)
        self._deadline_s = min(deadline_s, within_s)
        self._most_bytes = answer_bytes(states.shape[1], width)
        run = self._relay if self.relay else self._call_each
        logits, times = await run(states, metadata)
        self.length += states.shape[1]
        return logits, times

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

    async def _relay(
        self, states: Tensor, metadata: dict[str, str]
    ) -> tuple[Tensor, list[HopTime]]:
        request = pb.SwarmForwardRequest(
            session_id=self.session_id,
            request_id=secrets.token_hex(SESSION_BYTES),
            hidden_states=await _packed(states),
            hidden_shape=states.shape,
            position_ids=_positions(self.length, states.shape[1]),
            use_cache=True,
            route=self._route(),
        )
        began = trio.current_time()
        answered = await self._call(
            0, lambda stub: stub.SwarmForward, request, metadata, relayed=True
        )
        elapsed_ms = (trio.current_time() - began) * 1e3
        answer = answered.message
        if not answer.success:
            place = min(len(answer.hops), len(self.hops) - 1)
            code, lost = parse_failure(answer.error_message)
            raise self._failed(place, code, answer.error_message, lost=lost, relayed=True)
        seq = states.shape[1]
        logits = await self._logits(len(self.hops) - 1, answer.logits, answer.logits_shape, seq)
        times = self._relay_times(answer.hops, elapsed_ms)
        self.took_ms = _shares_of(elapsed_ms, [time.total_ms for time in times], len(self.hops))
        return logits, times

    async def _call_each(
        self, states: Tensor, metadata: dict[str, str]
    ) -> tuple[Tensor, list[HopTime]]:
        times: list[HopTime] = []
        took_ms: list[float] = []
        data, shape = await _packed(states), tuple(states.shape)
        for place, hop in enumerate(self.hops):
            request = pb.PipelineForwardRequest(
                session_id=self.session_id,
                request_id=secrets.token_hex(SESSION_BYTES),
                hidden_states=data,
                hidden_shape=shape,
                position_ids=_positions(self.length, shape[1]),
                use_cache=True,
                source_shard=self.hops[place - 1].first if place else 0,
                target_shard=hop.first,
            )
            began = trio.current_time()
            answered = await self._call(place, lambda stub: stub.PipelineForward, request, metadata)
            elapsed_ms = (trio.current_time() - began) * 1e3
            answer = answered.message
            if not answer.success:
                code, lost = parse_failure(answer.error_message)
                raise self._failed(place, code, answer.error_message, lost=lost)
            times.append(_direct_time(hop, answered.metadata, elapsed_ms))
            took_ms.append(elapsed_ms)
            if answer.is_final != (place == len(self.hops) - 1):
                raise self._failed(
                    place, Code.NOT_FOUND, "it does not hold the layers that it announced"
                )
            if answer.is_final:
                logits = await self._logits(place, answer.logits, answer.logits_shape, shape[1])
                self.took_ms = tuple(took_ms)
                return logits, times
            if tuple(answer.hidden_shape) != shape:
                raise self._failed(place, Code.INTERNAL, "hidden states of the wrong shape")
            data = answer.hidden_states
            # Checked here, so that the next holder is not blamed for invalid states.
            await self._read(place, data, shape)
        raise AssertionError("a path without hops")

    async def _call(
        self,
        place: int,
        operation: Callable[[NodeServiceStub], UnaryUnary[Takes, Gives]],
        request: Takes,
        metadata: Mapping[str, str],
        *,
        relayed: bool = False,
    ) -> Answer[Gives]:
        hop = self.hops[place]
        with trio.move_on_after(self._deadline_s):
            try:
                stub = await self._pool.stub(hop.host, hop.grpc_port)
                return await operation(stub).ask(
                    request, metadata=metadata, most_bytes=self._most_bytes
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

    async def _logits(self, place: int, data: bytes, shape: Sequence[int], seq: int) -> Tensor:
        """Logits ``[vocab]`` of the last of ``seq`` positions, also if the answer has all of
        them."""
        if len(shape) != 3 or (shape[0], shape[2]) != (1, self._vocab_size):
            raise self._failed(place, Code.INTERNAL, "logits of the wrong shape")
        # Checked before unpacking: a compressed frame may expand to far more than its size.
        if not 1 <= shape[1] <= seq:
            raise self._failed(place, Code.INTERNAL, "logits of the wrong shape")
        return (await self._read(place, data, shape))[0, -1]

    async def _read(self, place: int, data: bytes, shape: Sequence[int]) -> Tensor:
        """The tensor in an answer whose shape was checked; large ones are read off the loop."""
        size = BYTES_PER_NUMBER * math.prod(shape)
        try:
            values = await off_loop(size, lambda: unpack_floats(data, shape, "tensor"))
        except InvalidRequest as error:
            raise self._failed(place, Code.INTERNAL, str(error)) from None
        return torch.from_numpy(values)

    def _relay_times(self, hops: Sequence[pb.SwarmHopReport], elapsed_ms: float) -> list[HopTime]:
        """Each hop's times. A report's network time is to the next hop; a HopTime's, to its own."""
        if len(hops) != len(self.hops):
            return []
        reported = [
            (_usable(h.queue_ms), _usable(h.compute_ms), _usable(h.network_ms)) for h in hops
        ]
        inside = sum(sum(figures) for figures in reported)
        network = [max(0.0, elapsed_ms - inside), *(onward for _, _, onward in reported)]
        return [
            HopTime(hop.node_id, hop.first, hop.last, queue_ms, compute_ms, between)
            for hop, (queue_ms, compute_ms, _), between in zip(
                self.hops, reported, network, strict=False
            )
        ]

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


def _shares_of(elapsed_ms: float, reported_ms: Sequence[float], hops: int) -> tuple[float, ...]:
    """The elapsed time, divided over the hops as they reported, or evenly if that is no help."""
    total = sum(reported_ms)
    if len(reported_ms) != hops or total <= 0.0:
        return (elapsed_ms / hops,) * hops
    return tuple(elapsed_ms * each / total for each in reported_ms)


def _direct_time(hop: RemoteHop, received: Mapping[str, str], elapsed_ms: float) -> HopTime:
    queue_ms, compute_ms = (
        _milliseconds(received, QUEUE_MS),
        _milliseconds(received, COMPUTE_MS),
    )
    network_ms = max(0.0, elapsed_ms - queue_ms - compute_ms)
    return HopTime(hop.node_id, hop.first, hop.last, queue_ms, compute_ms, network_ms)


def _milliseconds(received: Mapping[str, str], key: str) -> float:
    """A duration from the metadata of a peer's answer; 0.0 if missing or malformed."""
    try:
        value = float(received.get(key, "0"))
    except ValueError:
        return 0.0
    return _usable(value)


def _usable(milliseconds: float) -> float:
    """The figure that a peer reported if it can be a duration, else 0.0."""
    return milliseconds if 0.0 <= milliseconds < MAX_MS else 0.0
