"""Calls to a peer over one stream that stays open (decision 0263).

Terms: a *line* is that stream, of which a channel has one at most; calls on it wait for their
answers by number. A unary call costs a stream of its own, with headers each way, and between two
computations these cost more than its messages (decision 0109).

=========  ==========================================  ==========================
line       event                                       next
=========  ==========================================  ==========================
closed     a call that could use it                    opening; the call goes alone
opening    the peer's first message                    open
opening    the peer does not know lines                refused
open       no call for IDLE_S                          closed
any        the stream or the connection ends           closed; its calls fail
=========  ==========================================  ==========================

One that ended with a failure is not opened again for ``AGAIN_S``.

Invariants: only calls whose messages are small, and fit what the peer reads now, go over it, so
none is cut off in the middle; each has a deadline, which the peer is told; a call that is left
before its answer is abandoned at the peer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio
from google.protobuf.message import Message

from meshnode.rpc.decoding import decode, unusable_answer
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.metadata import CONVOY, received_metadata, sent_metadata
from meshnode.wire import line_pb2 as pb

if TYPE_CHECKING:
    from meshnode.rpc.limits import RpcLimits

REQUEST_BYTES, ANSWER_BYTES = 128 * 1024, 1024 * 1024
"""The largest messages; the states of one position have 32 KiB in a model of 70 billion."""
CALLS = 64
"""The most calls on a line at a time."""
IDLE_S = 30.0
"""Less than the pause after which a server ends a stream."""
AGAIN_S = 10.0
LIFE_S = 24 * 3600.0
"""The deadline of a line. One that is older than half of it takes no more calls."""

Gives = TypeVar("Gives", bound=Message)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call on the line."""

    came: trio.Event = field(default_factory=trio.Event)
    answer: pb.LineAnswer | None = None
    failure: tuple[Code, str] | None = None


class LineStream(Protocol):
    """The call whose messages are the line's."""

    async def __aenter__(self) -> LineStream:
        """Begin it."""

    async def __aexit__(self, *_: object) -> None:
        """End it."""

    async def receive(self) -> pb.LineAnswer | None:
        """The next message, or None after the last. Raises CallFailed."""

    def fits(self, size: int) -> bool:
        """Whether a message of about this size would be sent at once."""

    def send_at_once(self, request: pb.LineCall, *, together: bool) -> None:
        """Send a message that fits; ``together`` with what other tasks send now."""


class LineChannel(Protocol):
    """What a line needs from its channel."""

    @property
    def usable(self) -> bool:
        """Whether a call can still be made."""

    @property
    def limits(self) -> RpcLimits:
        """The bounds of messages and times."""

    def count_call(self) -> None:
        """Note a call that goes over the line."""

    def line_stream(self) -> LineStream:
        """A call that carries a line, not begun."""


class Line:
    """The client's side of the line of a channel."""

    def __init__(
        self, channel: LineChannel, spawn: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        """``spawn`` starts a task that ends with the channel."""
        self._channel = channel
        self._spawn = spawn
        self._call: LineStream | None = None
        self._begun = False
        """Whether it is opening or open."""
        self._refused = False
        self._idle = trio.CancelScope()
        """Its deadline is the end of the pause between two calls."""
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0
        """The number of the latest call."""
        self._old_at = self._again_at = -math.inf

    @property
    def quiet(self) -> bool:
        """Whether a stream of the channel is an open line without calls."""
        return self._call is not None and not self._waiting

    def takes(self, size: int, most_bytes: int) -> bool:
        """Whether a call can go over it now; if it is closed, it is opened for later ones.

        ``size`` is that of the request, ``most_bytes`` the most that its answer may have.
        """
        if size > REQUEST_BYTES or most_bytes > ANSWER_BYTES:
            return False
        call = self._call
        if call is None:
            again = trio.current_time() >= self._again_at
            if again and not (self._begun or self._refused):
                self._begun = True
                self._spawn(self._run)
            return False
        return (
            len(self._waiting) < CALLS
            and trio.current_time() < self._old_at
            and not self._idle.cancel_called
            and self._channel.usable
            and call.fits(size)
        )

    async def ask(
        self,
        operation: str,
        request: bytes,
        metadata: Mapping[str, str],
        response_type: type[Gives],
        most_bytes: int,
    ) -> tuple[Gives, Mapping[str, str]]:
        """Make a call that it takes; the answer and its metadata. Raises CallFailed."""
        call, now = self._call, trio.current_time()
        if call is None:
            raise RuntimeError("the line is not open")
        deadline = trio.current_effective_deadline()
        if deadline == math.inf:
            deadline = now + self._channel.limits.default_call_s
        self._last += 1
        number, waiting = self._last, _Waiting()
        message = pb.LineCall(
            number=number,
            operation=operation,
            request=request,
            metadata=dict(sent_metadata(metadata)),
            timeout_s=max(1e-3, deadline - now),
        )
        self._waiting[number] = waiting
        self._idle.deadline = math.inf
        self._channel.count_call()
        call.send_at_once(message, together=CONVOY in metadata and len(self._waiting) > 1)
        try:
            with trio.CancelScope(deadline=deadline):
                await waiting.came.wait()
        finally:
            del self._waiting[number]
            if not waiting.came.is_set() and call.fits(0):
                # Without room for it, the call ends at its deadline.
                call.send_at_once(pb.LineCall(number=number), together=False)
            if not self._waiting:
                self._idle.deadline = trio.current_time() + IDLE_S
        if waiting.failure is not None:
            raise CallFailed(*waiting.failure)
        if waiting.answer is None:
            raise CallFailed(Code.DEADLINE_EXCEEDED, "the peer did not answer in time")
        return await _read(waiting.answer, response_type, most_bytes)

    async def _run(self) -> None:
        failure = (Code.UNAVAILABLE, "the line has ended")
        self._idle = trio.CancelScope()
        try:
            with self._idle:
                await self._hold()
        except CallFailed as error:
            failure = (error.code, error.message)
            self._again_at = trio.current_time() + AGAIN_S
            self._refused = error.code is Code.UNIMPLEMENTED
        finally:
            self._call, self._begun = None, False
            for waiting in self._waiting.values():
                if not waiting.came.is_set():
                    waiting.failure = failure
                    waiting.came.set()

    async def _hold(self) -> None:
        call = self._channel.line_stream()
        async with call:
            # Not before, since it would be the deadline of the whole line.
            self._idle.deadline = trio.current_time() + IDLE_S
            if await call.receive() is None:
                return
            self._old_at = trio.current_time() + LIFE_S / 2
            self._call = call
            while (answer := await call.receive()) is not None:
                waiting = self._waiting.get(answer.number)
                if waiting is not None and not waiting.came.is_set():
                    waiting.answer = answer
                    waiting.came.set()


async def _read(
    answer: pb.LineAnswer, response_type: type[Gives], most_bytes: int
) -> tuple[Gives, Mapping[str, str]]:
    """The message of an answer, and its metadata."""
    try:
        code = Code(answer.code)
    except ValueError:
        code = Code.UNKNOWN
    if code is not Code.OK:
        raise CallFailed(code, answer.message)
    if len(answer.response) > most_bytes:
        text = f"message of {len(answer.response)} bytes is larger than the limit of {most_bytes}"
        raise CallFailed(Code.RESOURCE_EXHAUSTED, text)
    message = await decode(response_type, bytearray(answer.response), unusable_answer)
    return message, received_metadata(answer.metadata.items())
