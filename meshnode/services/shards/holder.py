"""The holder's side of pipelines: the sessions of peers (interface 2.3, 4.3; decision 0033).

Terms: a *session* belongs to its *owner* alone: the address that opened it or, if that address
relayed the call for others, the whole list of addresses on the way. A session's key is its owner,
the id that the owner chose, and the first layer that it runs. A session whose place was needed for
others is *evicted* (decision 0132); its next message is refused as one without a session.

=================================  ============================================================
a message that starts              is
=================================  ============================================================
at the session's length            computed
below it                           computed, after the session has been rewound to its start
beyond it, or without a session    refused: the driver replays
=================================  ============================================================

Invariants: the number of sessions is bounded, in all and for each address, and so are the bytes of
all messages; a session that is idle too long is dropped; a message that fails or is cancelled opens
no session, and leaves its session as it was, or rewound to the message's start if that lies below
the session's length.
"""

from __future__ import annotations

import ipaddress
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import trio

from meshnode.domain.errors import InvalidRequest, RateLimited, Unavailable
from meshnode.domain.ratelimit import address_key
from meshnode.domain.shares import Requester, largest_above
from meshnode.services.executor import Executor, SessionEvicted, ShardSession
from meshnode.services.shards.convoys import Gatherings
from meshnode.services.shards.decoding import FLIGHT, WANTED
from meshnode.services.shards.flights import Flight, FlightOrder
from meshnode.services.shards.messages import (
    MAX_TENSOR_BYTES,
    POSITIONS,
    ForwardAnswer,
    ForwardCall,
    ForwardInputs,
    SessionBehind,
    answer_bytes,
    off_loop,
    unpack,
    validate_mask,
)
from meshnode.services.shards.peer_session import PeerSession, lost
from meshnode.services.shards.stateless import (
    answer_of,
    caller_at,
    forward_stateless,
)
from meshnode.services.shards.wanted import WantedLogits

log = logging.getLogger(__name__)

MAX_UNPACKED_BYTES = 4 * MAX_TENSOR_BYTES
"""Bytes of all messages that are being answered; compressed tensors count with their full size."""
MAX_WAITING = 4
"""Messages of one session that wait for one another. A driver sends one at a time."""
NO_SHARE = "no more memory for sessions of this address"
FIRST_POSITIONS = 64
"""Positions reserved for a session whose first message does not say how long it will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderLimits:
    """Bounds on the sessions that peers keep here. Times are in seconds."""

    sessions: int = 32
    """Of all peers together; at most the number of places in the batch."""
    share: float = 0.5
    """Part of sessions and memory that one address may have. Loopback addresses may have all."""
    idle_s: float = 60.0
    """A session without a message for this long is dropped."""
    crowded_idle_s: float = 10.0
    """The same limit while others wait for a place."""
    open_s: float = 1.0
    """Longest wait for a place. After that the driver had better try another holder."""

    def of_one(self, ip: str) -> int:
        """Sessions that one address may have."""
        return max(1, int(self.sessions * self.share_of(ip)))

    def share_of(self, ip: str) -> float:
        """The share of an address."""
        return 1.0 if ipaddress.ip_address(ip.partition("%")[0]).is_loopback else self.share


Key = tuple[str, str, int]
Observer = Callable[[ForwardCall, ForwardAnswer], None]
CallerTest = Callable[[str, str], bool]


async def serve_holder(
    executor: Executor,
    limits: HolderLimits,
    *,
    accepting: Callable[[], bool],
    observe: Observer = lambda call, answer: None,
    by_peer: CallerTest = lambda credential, ip: True,
    task_status: trio.TaskStatus[Holder],
) -> None:
    """Keep sessions for peers until cancelled, then drop them; starts with the :class:`Holder`.

    New sessions are taken while ``accepting()`` is true. ``observe`` is called with every call that
    was computed and its answer; it must neither block nor raise. ``by_peer`` tells calls of peers
    from those of strangers, by the credential and the address of the caller (decision 0164).
    """
    holder = Holder(executor, limits, accepting, observe, by_peer)
    try:
        task_status.started(holder)
        while True:
            await trio.sleep(limits.crowded_idle_s / 2)
            holder.expire()
    finally:
        holder.close_all()


class Holder:
    """Handle of the service."""

    def __init__(
        self,
        executor: Executor,
        limits: HolderLimits,
        accepting: Callable[[], bool],
        observe: Observer,
        by_peer: CallerTest,
    ) -> None:
        """Made by :func:`serve_holder`."""
        self._by_peer = by_peer
        self._observe = observe
        self._executor = executor
        self._limits = limits
        self._accepting = accepting
        self._records: dict[Key, PeerSession] = {}
        self._orders: dict[Key, FlightOrder] = {}
        """The order of sessions with messages that were sent ahead; some are not open yet."""
        self._gatherings = Gatherings(lambda: executor.speed.turn_s)
        self._opening: list[tuple[str, int]] = []
        """Addresses and bytes of the sessions that wait for a place."""
        self._unpacked = 0
        """Bytes of the messages that are being answered."""

    def __len__(self) -> int:
        """How many sessions peers have here."""
        return len(self._records)

    async def forward(self, call: ForwardCall) -> ForwardAnswer:
        """Answer one message.

        Raises InvalidRequest, LayerNotHeld, RateLimited when there is no room, Unavailable while
        the node drains, SessionBehind, and ComputationFailed.
        """
        call.validate_ids()
        if call.closes:
            self.close(call.owner, call.session_id)
            return ForwardAnswer(b"", (), is_final=False)
        context = self._executor.card.context_length
        read = partial(unpack, call, self._executor.config, context)
        # No more than this is unpacked, whatever the message's shape claims.
        size = min(call.nbytes, MAX_TENSOR_BYTES)
        if self._unpacked + size > MAX_UNPACKED_BYTES:
            raise RateLimited(1, "too many large messages at once")
        self._unpacked += size
        try:
            inputs = await off_loop(call.nbytes, read)
            if call.has_session:
                answer = await self._continue(call, inputs)
            elif not self._accepting():
                raise Unavailable("the node is draining")
            else:
                answer = await forward_stateless(
                    self._executor, call, inputs, self._limits.open_s, self._requester(call)
                )
        finally:
            self._unpacked -= size
        self._observe(replace(call, model_hash=answer.model_hash), answer)
        return answer

    def most_bytes(self, shape: Sequence[int]) -> int:
        """The largest answer to ``[batch, seq, hidden]`` states: logits of every position."""
        config = self._executor.config
        width = max(config.hidden_size, config.vocab_size)
        return answer_bytes(math.prod(shape[:2]), width)

    def close(self, owner: str, session_id: str) -> None:
        """End an owner's sessions with an id, including those that others opened on its behalf."""
        for key in list(self._records):
            whose, name, _ = key
            if name == session_id and (whose == owner or whose.startswith(f"{owner},")):
                self._drop(key)

    def close_all(self) -> None:
        """End all sessions."""
        for key in list(self._records):
            self._drop(key)

    def expire(self) -> None:
        """Drop the sessions that were evicted, or have been idle too long."""
        crowded = self._executor.queued > 0 or len(self._records) >= self._limits.sessions
        idle_s = self._limits.crowded_idle_s if crowded else self._limits.idle_s
        oldest = trio.current_time() - idle_s
        for key, record in list(self._records.items()):
            if record.session.closed:
                self._drop(key)
            elif not record.busy and record.touched <= oldest:
                log.info("session of %s expired", record.ip)
                self._drop(key)

    # -- sessions ---------------------------------------------------------------------------------

    async def _continue(self, call: ForwardCall, inputs: ForwardInputs) -> ForwardAnswer:
        if inputs.states.shape[0] != 1:
            raise InvalidRequest("hidden_shape", "a session has one row")
        key = (call.owner, call.session_id, call.layers.start)
        if call.flight:
            await self._wait_turn(key, Flight.read(call.flight, FLIGHT), inputs)
        record = self._records.get(key)
        if record is None:
            try:
                return await self._begin(key, call, inputs)
            finally:
                if key not in self._records:
                    self._end_order(key)
        if record.session.layers != call.layers:
            raise InvalidRequest("target_shard", "the session runs other layers")
        if record.turn.statistics().tasks_waiting >= MAX_WAITING:
            raise RateLimited(1, "too many messages of one session at once")
        async with record.turn:
            return await self._compute(key, record, call, inputs)

    async def _wait_turn(self, key: Key, flight: Flight, inputs: ForwardInputs) -> None:
        """Wait until a message that was sent ahead follows what has been computed."""
        if inputs.start is None:
            raise InvalidRequest(POSITIONS, "must be there in a message that is sent ahead")
        if key not in self._orders and len(self._orders) >= 2 * self._limits.sessions:
            raise RateLimited(1, "no more sessions here")
        order = self._orders.setdefault(key, FlightOrder())
        try:
            await order.wait_turn(flight, inputs.start, begun=key in self._records)
        finally:
            # Of a session that never began nothing stays.
            if key not in self._records and not order.waiting and inputs.start:
                self._orders.pop(key, None)

    async def _begin(self, key: Key, call: ForwardCall, inputs: ForwardInputs) -> ForwardAnswer:
        """Open a session for its first message; none is left if that fails or is cancelled."""
        if inputs.start:
            raise SessionBehind(None)
        validate_mask(call.mask, 1, inputs.states.shape[1])
        session = await self._open(call, inputs)
        if key in self._records:
            session.close()
            raise RateLimited(1, "the session is being opened")
        record = self._records[key] = PeerSession(
            session, address_key(call.caller_ip), trio.current_time()
        )
        computed = False
        try:
            async with record.turn:
                answer = await self._compute(key, record, call, inputs)
            computed = True
            return answer
        finally:
            if not computed and self._records.get(key) is record:
                self._drop(key)

    async def _open(self, call: ForwardCall, inputs: ForwardInputs) -> ShardSession:
        if not self._accepting():
            raise Unavailable("the node is draining")
        ip, limits = address_key(call.caller_ip), self._limits
        self.expire()
        mine = sum(record.ip == ip for record in self._records.values())
        mine += sum(whose == ip for whose, _ in self._opening)
        if mine >= limits.of_one(call.caller_ip) or not self._make_room(mine):
            raise RateLimited(1, "no more sessions here")
        context = self._executor.card.context_length
        wanted = FIRST_POSITIONS
        if call.reserve is not None:
            # A lack of memory may limit the context here: another holder may have the full context.
            wanted = min(call.reserve, self._executor.config.context_length)
            if wanted > context:
                raise RateLimited(1, f"a session has {context} positions here at most")
        positions = min(max(wanted, inputs.states.shape[1]), context)
        if positions > self._room(call.caller_ip, len(call.layers)):
            raise RateLimited(1, NO_SHARE)
        opening = (ip, self._executor.kv_bytes(positions, len(call.layers)))
        self._opening.append(opening)
        try:
            return await self._executor.open_session(
                call.layers, positions, self._requester(call), call.model_hash, limits.open_s
            )
        finally:
            self._opening.remove(opening)

    def _requester(self, call: ForwardCall) -> Requester:
        peer = self._by_peer(call.credential, call.caller_ip)
        return caller_at(call.caller_ip, peer=peer)

    def _make_room(self, mine: int) -> bool:
        """Whether an address that has ``mine`` sessions may have one more, in place of another's.

        It may if the address that has the most keeps as many: that one's session that has been idle
        for longest is dropped then.
        """
        if len(self._records) + len(self._opening) < self._limits.sessions:
            return True
        most = largest_above((record.ip for record in self._records.values()), mine)
        theirs = [key for key, record in self._records.items() if record.ip == most]
        if not theirs:
            return False
        self._drop(min(theirs, key=lambda key: self._records[key].touched))
        return True

    async def _compute(
        self, key: Key, record: PeerSession, call: ForwardCall, inputs: ForwardInputs
    ) -> ForwardAnswer:
        session = record.session
        convoy = await self._gatherings.wait(call, inputs.states.shape[1])
        if self._records.get(key) is not record:
            raise SessionBehind(None)
        if session.failure is not None:
            self._drop(key)
            raise lost(session.failure)
        record.validate_new(call.request_id)
        flight = Flight.read(call.flight, FLIGHT) if call.flight else None
        if (order := self._orders.get(key)) is not None and flight is not None:
            order.validate_current(flight)
        wanted = WantedLogits.read(call.wanted, WANTED) if call.wanted else WantedLogits()
        start = session.length if inputs.start is None else inputs.start
        if start > session.length:
            raise SessionBehind(session.length)
        stop = start + inputs.states.shape[1]
        if stop > self._executor.card.context_length:
            raise InvalidRequest(POSITIONS, "must lie within the context")
        validate_mask(call.mask, 1, stop)
        session.limit = session.capacity + self._room(call.caller_ip, len(call.layers))
        if stop > session.limit:
            raise RateLimited(1, NO_SHARE)
        record.touched = trio.current_time()
        session.rewind(start)
        try:
            output = await self._executor.forward(
                session, inputs.states, call.decode_from, rows=wanted.rows, convoy=convoy
            )
        except SessionEvicted as error:
            raise lost(error) from None
        packed = False
        try:
            answer = await answer_of(
                [output], past=(), wanted=wanted, model_hash=session.model_hash
            )
            packed = True
        finally:
            if not packed and not session.closed:
                session.rewind(start)
        record.answered(call.request_id, trio.current_time())
        if order is not None:
            order.computed(flight, stop)
        log.debug(
            "%s: positions %d to %d, queue %.2f ms, compute %.2f ms",
            record.ip,
            start,
            stop,
            answer.queue_ms,
            answer.compute_ms,
        )
        return answer

    def _room(self, ip: str, num_layers: int) -> int:
        """Positions in ``num_layers`` layers that an address's share of memory still allows."""
        name = address_key(ip)
        sessions = (record.session for record in self._records.values() if record.ip == name)
        used = sum(self._executor.kv_bytes(s.capacity, len(s.layers)) for s in sessions)
        used += sum(size for whose, size in self._opening if whose == name)
        share = int(self._limits.share_of(ip) * self._executor.kv_bytes_limit)
        return max(0, share - used) // self._executor.kv_bytes(1, num_layers)

    def _drop(self, key: Key) -> None:
        self._records.pop(key).session.close()
        self._end_order(key)

    def _end_order(self, key: Key) -> None:
        if (order := self._orders.pop(key, None)) is not None:
            order.end()
