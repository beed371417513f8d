"""One session over the holders of a path (document, sections 2.3, 4.3; decisions/0036, 0037).

Terms: a *chain* sends ``SwarmForward`` to the first holder, which passes on to the next; a *star*
calls ``PipelineForward`` at each holder in turn. Both give the same bits.

Invariants: the session's id is random and of this path alone; every request has an id of its own;
each call has a deadline; an answer of a wrong shape, or with numbers that are not finite, is a
failure of the hop that gave it.
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
from meshnode.services.pipeline.policy import HopFailed, told
from meshnode.services.pipeline.records import HopTime
from meshnode.services.shards.messages import BYTES_PER_NUMBER, answer_bytes, off_loop
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats, pack_integers, unpack_floats

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.rpc.node_grpc import NodeServiceStub
    from meshnode.rpc.stubs import Answer, UnaryUnary
    from meshnode.services.pipeline.ports import Pool
    from meshnode.services.pipeline.routes import Stop

SESSION_BYTES = 16
"""128 random bits: nobody guesses a session."""
POSITIONS_A_CALL = 32
"""So many more positions give a call as much time again: a prompt waits for other prompts."""
MOST_MS = 1e9
CLOSE_S = 2.0
"""For a holder to hear that a session is over. One that does not hear it lets it expire."""

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)


class RemotePath:
    """A session over ``stops``."""

    def __init__(
        self,
        stops: Sequence[Stop],
        pool: Pool,
        *,
        chain: bool,
        call_s: float,
        positions: int,
        vocab_size: int,
    ) -> None:
        """``positions`` is how many the session may come to hold; nothing is sent yet."""
        self.stops = tuple(stops)
        self.chain = chain
        self.session_id = secrets.token_hex(SESSION_BYTES)
        self.length = 0
        """Positions that the holders have computed."""
        self._pool = pool
        self._call_s = call_s
        self._positions = positions
        self._vocab_size = vocab_size
        self._begun = False
        self._most_bytes = 0
        self._deadline_s = call_s

    async def forward(
        self, states: Tensor, decode_from: int | None = None
    ) -> tuple[Tensor, list[HopTime]]:
        """Send ``[1, seq, hidden]`` states of the next positions through all hops.

        Returns the logits ``[vocab]`` of the last position, and what each hop took. Raises
        HopFailed. ``decode_from`` is the position from which on the holders compute as if one
        position came at a time.
        """
        metadata = {} if self._begun else {"session-positions": str(self._positions)}
        if decode_from is not None:
            metadata["decode-from"] = str(decode_from)
        self._begun = True
        # Logits of every position are the most that an answer may hold.
        width = max(states.shape[2], self._vocab_size)
        self._deadline_s = self._call_s * (1 + (states.shape[1] - 1) / POSITIONS_A_CALL)
        self._most_bytes = answer_bytes(states.shape[1], width)
        pass_through = self._chained if self.chain else self._starred
        logits, times = await pass_through(states, metadata)
        self.length += states.shape[1]
        return logits, times

    async def close(self) -> None:
        """Tell every holder that the session is over, those of a broken path too.

        Waits ``CLOSE_S`` at most. A holder that cannot be told lets the session expire.
        """
        if not self._begun:
            return
        with trio.move_on_after(CLOSE_S, shield=True):
            async with trio.open_nursery() as nursery:
                for stop in self.stops:
                    nursery.start_soon(self._close_at, stop)

    async def _chained(
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
            0, lambda stub: stub.SwarmForward, request, metadata, chained=True
        )
        elapsed_ms = (trio.current_time() - began) * 1e3
        answer = answered.message
        if not answer.success:
            place = min(len(answer.hops), len(self.stops) - 1)
            code, lost = told(answer.error_message)
            raise self._failed(place, code, answer.error_message, lost=lost, chained=True)
        seq = states.shape[1]
        logits = await self._logits(len(self.stops) - 1, answer.logits, answer.logits_shape, seq)
        return logits, self._chain_times(answer.hops, elapsed_ms)

    async def _starred(
        self, states: Tensor, metadata: dict[str, str]
    ) -> tuple[Tensor, list[HopTime]]:
        times: list[HopTime] = []
        data, shape = await _packed(states), tuple(states.shape)
        for place, stop in enumerate(self.stops):
            request = pb.PipelineForwardRequest(
                session_id=self.session_id,
                request_id=secrets.token_hex(SESSION_BYTES),
                hidden_states=data,
                hidden_shape=shape,
                position_ids=_positions(self.length, shape[1]),
                use_cache=True,
                source_shard=self.stops[place - 1].first if place else 0,
                target_shard=stop.first,
            )
            began = trio.current_time()
            answered = await self._call(place, lambda stub: stub.PipelineForward, request, metadata)
            elapsed_ms = (trio.current_time() - began) * 1e3
            answer = answered.message
            if not answer.success:
                code, lost = told(answer.error_message)
                raise self._failed(place, code, answer.error_message, lost=lost)
            times.append(_star_time(stop, answered.metadata, elapsed_ms))
            if answer.is_final != (place == len(self.stops) - 1):
                raise self._failed(place, Code.NOT_FOUND, "it holds other layers than it said")
            if answer.is_final:
                logits = await self._logits(place, answer.logits, answer.logits_shape, shape[1])
                return logits, times
            if tuple(answer.hidden_shape) != shape:
                raise self._failed(place, Code.INTERNAL, "states of another shape")
            data = answer.hidden_states
            # Looked at here, so that the next holder is not blamed for them.
            await self._read(place, data, shape)
        raise AssertionError("a path without hops")

    async def _call(
        self,
        place: int,
        operation: Callable[[NodeServiceStub], UnaryUnary[Takes, Gives]],
        request: Takes,
        metadata: Mapping[str, str],
        *,
        chained: bool = False,
    ) -> Answer[Gives]:
        stop = self.stops[place]
        with trio.move_on_after(self._deadline_s):
            try:
                stub = await self._pool.stub(stop.host, stop.grpc_port)
                return await operation(stub).ask(
                    request, metadata=metadata, most_bytes=self._most_bytes
                )
            except CallFailed as error:
                if error.code is Code.DEADLINE_EXCEEDED:
                    self._pool.distrust(stop.host, stop.grpc_port)
                raise self._failed(place, error.code, error.message, chained=chained) from None
        self._pool.distrust(stop.host, stop.grpc_port)
        raise self._failed(place, Code.DEADLINE_EXCEEDED, "no answer in time", chained=chained)

    async def _close_at(self, stop: Stop) -> None:
        # Straight to each, also of a chain: the holders before it may be gone.
        request = pb.PipelineForwardRequest(session_id=self.session_id, target_shard=stop.first)
        try:
            stub = await self._pool.stub(stop.host, stop.grpc_port)
            await stub.PipelineForward(request)
        except CallFailed:
            # It is gone, or will let the session expire.
            return

    def _route(self) -> list[pb.SwarmHop]:
        return [
            pb.SwarmHop(
                node_id=stop.node_id,
                address=stop.address,
                first_layer=stop.first,
                last_layer=stop.last,
            )
            for stop in self.stops
        ]

    async def _logits(self, place: int, data: bytes, shape: Sequence[int], seq: int) -> Tensor:
        """Those of the last of ``seq`` positions, whether the others came as well or not."""
        if len(shape) != 3 or (shape[0], shape[2]) != (1, self._vocab_size):
            raise self._failed(place, Code.INTERNAL, "logits of another shape")
        # Before anything is unpacked: a frame may hold far more than it has bytes.
        if not 1 <= shape[1] <= seq:
            raise self._failed(place, Code.INTERNAL, "logits of another shape")
        return (await self._read(place, data, shape))[0, -1]

    async def _read(self, place: int, data: bytes, shape: Sequence[int]) -> Tensor:
        """The tensor in an answer, of a checked shape. Large ones are read off the event loop."""
        size = BYTES_PER_NUMBER * math.prod(shape)
        try:
            values = await off_loop(size, lambda: unpack_floats(data, shape, "tensor"))
        except InvalidRequest as error:
            raise self._failed(place, Code.INTERNAL, str(error)) from None
        return torch.from_numpy(values)

    def _chain_times(self, hops: Sequence[pb.SwarmHopReport], elapsed_ms: float) -> list[HopTime]:
        """A holder reports the network to the next one; a record has the network to the hop."""
        if len(hops) != len(self.stops):
            return []
        told = [(_usable(h.queue_ms), _usable(h.compute_ms), _usable(h.network_ms)) for h in hops]
        inside = sum(sum(figures) for figures in told)
        network = [max(0.0, elapsed_ms - inside), *(onward for _, _, onward in told)]
        return [
            HopTime(stop.node_id, stop.first, stop.last, queue_ms, compute_ms, between)
            for stop, (queue_ms, compute_ms, _), between in zip(
                self.stops, told, network, strict=False
            )
        ]

    def _failed(
        self, place: int, code: Code, message: str, *, lost: bool = False, chained: bool = False
    ) -> HopFailed:
        node_id = self.stops[place].node_id
        return HopFailed(place, node_id, code, message, lost=lost, chained=chained)


async def _packed(states: Tensor) -> bytes:
    """``[1, seq, hidden]`` as bytes. Large ones are copied off the event loop."""
    return await off_loop(states.nbytes, lambda: pack_floats(states.numpy()))


def _positions(start: int, count: int) -> bytes:
    """``[1, count]`` consecutive positions as bytes."""
    return pack_integers(np.arange(start, start + count))


def _star_time(stop: Stop, received: Mapping[str, str], elapsed_ms: float) -> HopTime:
    queue_ms, compute_ms = (
        _milliseconds(received, "queue-ms"),
        _milliseconds(received, "compute-ms"),
    )
    network_ms = max(0.0, elapsed_ms - queue_ms - compute_ms)
    return HopTime(stop.node_id, stop.first, stop.last, queue_ms, compute_ms, network_ms)


def _milliseconds(received: Mapping[str, str], key: str) -> float:
    """A figure that a peer may have added to its answer, 0.0 if it is none."""
    try:
        value = float(received.get(key, "0"))
    except ValueError:
        return 0.0
    return _usable(value)


def _usable(milliseconds: float) -> float:
    """What a peer says, if it can be a duration; else 0.0."""
    return milliseconds if 0.0 <= milliseconds < MOST_MS else 0.0
