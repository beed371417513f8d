"""One call that this node serves, from its headers to its status (interface 4.3 and 7.3).

A call is *idle* while it waits for its caller, to send a message or to take one. A call that never
ends by itself is always idle. Idle calls give way to others on a full server (decision 0129).

Invariants: every call ends with exactly one status, unless the peer reset it or disconnected; all
work for a call runs under the caller's deadline, and a reset cancels it within one checkpoint; an
unexpected error is logged here, and the caller sees INTERNAL.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from google.protobuf.message import Message
from h2.exceptions import ProtocolError

from meshnode.rpc._purerpc import status
from meshnode.rpc.caller import Caller, Exchange, enter
from meshnode.rpc.decoding import decode
from meshnode.rpc.errors import NOT_IMPLEMENTED, CallRefused, Code
from meshnode.rpc.outcomes import outcome
from meshnode.rpc.stubs import Operation

if TYPE_CHECKING:
    from meshnode.rpc.connection import Connection
    from meshnode.rpc.limits import RpcLimits
    from meshnode.rpc.streams import MessageStream

STOPPING = (Code.UNAVAILABLE, "the node is stopping")
GIVES_WAY = (Code.RESOURCE_EXHAUSTED, "the node is full, and this call has waited for its caller")
TOO_LATE = (Code.DEADLINE_EXCEEDED, "the request did not arrive in time")
NO_ERROR = 0
"""HTTP/2 error code by which a server tells the peer not to send the rest of a request."""


class Requests:
    """An async iterator over the decoded messages of a request.

    Once a message has begun it must arrive within ``arrival_s``; the pause between two messages is
    at most ``idle_s``. The message of a unary operation has ``arrival_s`` from the call's start.
    """

    def __init__(
        self, stream: MessageStream, request_type: type[Message], limits: RpcLimits
    ) -> None:
        self._stream = stream
        self._type = request_type
        self._arrival_s = limits.arrival_s
        self._idle_s = limits.idle_s

    def __aiter__(self) -> Requests:
        """Return itself, since a request can be read only once."""
        return self

    async def __anext__(self) -> Message:
        """The next message. Raises CallRefused if it is late or cannot be decoded."""
        with trio.move_on_after(self._idle_s) as idle:
            await self._stream.wait_begun()
        if idle.cancelled_caught:
            raise CallRefused(*TOO_LATE)
        with trio.move_on_after(self._arrival_s):
            data = await self._stream.receive()
            if data is None:
                raise StopAsyncIteration
            return await self._decode(data)
        raise CallRefused(*TOO_LATE)

    async def only(self) -> Message:
        """The single message of a unary operation; it counts as held until the call ends."""
        if self._stream.all_arrived:
            # The usual small message has come with its head; a scope costs more than reading it.
            return await self._only()
        with trio.move_on_after(self._arrival_s):
            return await self._only()
        raise CallRefused(*TOO_LATE)

    async def _only(self) -> Message:
        data = await self._stream.receive()
        if data is None or await self._stream.receive(keep=True) is not None:
            raise CallRefused(Code.INTERNAL, "a unary operation takes one message")
        return await self._decode(data)

    async def _decode(self, data: bytearray) -> Message:
        return await decode(self._type, data, CallRefused)


class ServerCall:
    """A call that is being served."""

    def __init__(
        self,
        connection: Connection,
        stream: MessageStream,
        operation: Operation | None,
        timeout_s: float | None,
        caller: Caller,
    ) -> None:
        """``operation`` is None when the node has no operation of the requested name."""
        self.stream = stream
        # Unlike this node's own calls, a caller may have no deadline and stop reading.
        stream.window_stall_s = connection.limits.stall_s
        self._connection = connection
        self._operation = operation
        self._exchange = Exchange(caller, {})
        self._began = trio.current_time()
        self._responded = False
        self._ended_early = (Code.DEADLINE_EXCEEDED, "deadline exceeded")
        """The status to send when the call is cut short."""
        self._scope = trio.CancelScope()
        if timeout_s is not None:
            self._scope.deadline = trio.current_time() + timeout_s

    @property
    def ip(self) -> str:
        """The caller's address."""
        return self._exchange.caller.ip

    @property
    def idle(self) -> bool:
        """Whether the call waits for its caller."""
        return self.idle_since < trio.current_time()

    @property
    def idle_since(self) -> float:
        """Since when it waits for its caller; infinite while it does not."""
        if self._operation is not None and not self._operation.ends:
            return self._began
        if self._exchange.inside:
            return math.inf
        return self.stream.pace.behind_since

    def drop(self) -> None:
        """End the call, which is idle, to make room for others."""
        self._ended_early = GIVES_WAY
        self._scope.cancel()

    def cancel(self) -> None:
        """Cancel the call: the caller has disconnected or will not read the answer."""
        self._scope.cancel()

    def stop(self) -> None:
        """Stop reading messages as the server closes; end a call at once if it is endless."""
        self.stream.fail(*STOPPING)
        if self._operation is not None and not self._operation.ends:
            self._ended_early = STOPPING
            self._scope.cancel()

    async def run(self) -> None:
        """Serve the call and send its status."""
        enter(self._exchange)
        code = Code.CANCELLED
        try:
            found, message = await self._guarded()
            if not self.stream.was_reset:
                code = found
                self._end(code, message)
        finally:
            if self._operation is not None:
                served = self._connection.transport.traffic.served
                served[self._operation.name, code.name] += 1
            self.stream.close()

    async def _guarded(self) -> tuple[Code, str]:
        operation = self._operation
        if operation is None:
            return NOT_IMPLEMENTED
        found = await outcome(operation.name, partial(self._within_scope, operation))
        cut_short = self._scope.cancelled_caught and found[0] is Code.OK
        return self._ended_early if cut_short else found

    async def _within_scope(self, operation: Operation) -> None:
        # A nursery may raise other errors besides its cancellation, which leave the scope.
        with self._scope:
            await self._serve(operation)

    async def _serve(self, operation: Operation) -> None:
        requests = Requests(self.stream, operation.request_type, self._connection.limits)
        argument: Any = requests
        if not operation.takes_stream:
            argument = await requests.only()
        if operation.carries:
            await operation.handler(argument, self)
            return
        answer = operation.handler(argument)
        # A message may be 100 MiB, so none is kept longer than it is used.
        del argument
        if inspect.isawaitable(answer):
            await self._send((await answer).SerializeToString(), more=True)
            return
        await self._send_all(answer)

    async def _send_all(self, answers: AsyncIterator[Message]) -> None:
        async with aclosing(answers) as each:  # type: ignore[type-var]
            async for answer in each:
                await self._send(answer.SerializeToString(), more=False)

    async def send_message(self, message: Message) -> None:
        """Send one of many answers; for operations that carry calls."""
        await self._send(message.SerializeToString(), more=False)

    def fits(self, size: int) -> bool:
        """Whether one of many answers of about this size would be sent at once."""
        return self.stream.fits(size)

    def send_at_once(self, message: Message, *, together: bool) -> None:
        """Send one of many answers that fits; ``together`` with what other tasks send now."""
        self.stream.send_at_once(message.SerializeToString(), together=together)

    @property
    def most_inside(self) -> int:
        """How many calls the caller's address may have inside its lines."""
        limits = self._connection.limits
        return limits.of_one(limits.calls, self.ip)

    def hold(self, size: int) -> bool:
        """Count bytes that the calls inside need; False if there is no room for them."""
        return self._connection.hold(self.stream.id, size)

    def release(self, size: int) -> None:
        """Count ``size`` bytes as held no longer."""
        self._connection.release(self.stream.id, size)

    async def _send(self, data: bytes, *, more: bool) -> None:
        if not self._responded:
            self._responded = True
            self._write_head()
        await self.stream.send(data, more=more)

    def _write_head(self) -> None:
        if not self.stream.was_reset:
            try:
                self._connection.grpc.start_response(self.stream.id)
            except ProtocolError:
                self.stream.was_reset = True

    def _end(self, code: Code, message: str) -> None:
        answer, metadata = status(code, message), self._exchange.answer.items()
        grpc = self._connection.grpc
        try:
            if self._responded:
                grpc.end_response(self.stream.id, answer, metadata)
            else:
                grpc.respond_status(self.stream.id, answer, custom_metadata=metadata)
        except ProtocolError:
            # The connection has ended.
            return
        self.stream.local_ended = True
        self._connection.message_passed()
        # The reset keeps the caller from sending the rest of its request.
        self.stream.reset(NO_ERROR)
        self._connection.transmit()
