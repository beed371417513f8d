"""A client's connection to a peer's gRPC interface (interface 4.3, 7.3 and 8).

Terms: a *channel* is one connection. It does not reconnect when it breaks; its user opens another
or tries another peer.

Invariants: every call has a deadline, the caller's own or the default of the limits, and it is sent
to the peer; leaving a call before its end resets it at the peer; calls in flight end with
UNAVAILABLE when the peer disconnects, sends a GOAWAY that excludes them, or stops answering pings.
No more calls run at a time than both sides allow; others wait within their deadlines.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import trio
from google.protobuf.message import Message
from h2.exceptions import ProtocolError

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.client import CANCEL, ClientConnection, ClientStream
from meshnode.rpc.decoding import decode, unusable_answer
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.headers import sent_timeout
from meshnode.rpc.limits import ByteCount, RpcLimits
from meshnode.rpc.line import LIFE_S, Line
from meshnode.rpc.metadata import NONE, sent_metadata
from meshnode.rpc.peer_log import PeerLog
from meshnode.rpc.transport import Transport
from meshnode.wire import line_pb2

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)
T = TypeVar("T")


class ClientCall(Generic[Takes, Gives]):
    """One call. An async context manager: leaving it early resets the call at the peer."""

    first: Takes | None = None
    """The only message, sent when the call is entered; None if messages are sent later."""
    metadata: Mapping[str, str] = NONE
    """Metadata sent with the headers of the request."""
    most_bytes: int | None = None
    """The largest message to accept, if less than the limits allow."""

    def __init__(
        self,
        channel: Channel,
        path: tuple[str, str],
        request_type: type[Takes],
        response_type: type[Gives],
        default_s: float,
    ) -> None:
        """Nothing is sent before the call is entered."""
        self._channel = channel
        self._path = path
        self._request_type = request_type
        self._response_type = response_type
        self._default_s = default_s
        self._deadline = 0.0
        self._stream: ClientStream | None = None

    async def __aenter__(self) -> ClientCall[Takes, Gives]:
        """Begin the call, as soon as the connection has room for it."""
        now = trio.current_time()
        self._deadline = min(trio.current_effective_deadline(), now + MAX_CALL_S)
        if self._deadline >= now + MAX_CALL_S:
            self._deadline = now + self._default_s
        await self._in_time(self._enter())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Reset the call if it has not ended."""
        self._leave()

    async def send(self, request: Takes, *, last: bool = False) -> None:
        """Send a message; ``last`` ends our side with it. Raises CallFailed at the deadline."""
        await self._in_time(self._open.send(request.SerializeToString(), last=last))

    def fits(self, size: int) -> bool:
        """Whether a message of about this size would be sent at once."""
        return self._open.fits(size)

    def send_at_once(self, request: Takes, *, together: bool) -> None:
        """Send a message that fits; ``together`` with what other tasks send now."""
        self._open.send_at_once(request.SerializeToString(), together=together)

    @property
    def answer_metadata(self) -> Mapping[str, str]:
        """The metadata that the peer has sent so far; complete once it has ended the call."""
        return self._open.metadata

    def end(self) -> None:
        """Send no more messages."""
        self._open.end()

    async def receive(self) -> Gives | None:
        """The next message, or None after the last. Raises CallFailed."""
        return await self._in_time(self._next(self._open))

    async def receive_only(self) -> Gives:
        """The single message of a unary response. Raises CallFailed."""
        return await self._in_time(self._only(self._open))

    def __aiter__(self) -> ClientCall[Takes, Gives]:
        """Iterate over the messages until the last."""
        return self

    async def __anext__(self) -> Gives:
        """The next message."""
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    @property
    def _open(self) -> ClientStream:
        if self._stream is None:
            raise RuntimeError("the call has not been entered")
        return self._stream

    async def _next(self, stream: ClientStream) -> Gives | None:
        data = await stream.receive()
        if data is None:
            return None
        return await decode(self._response_type, data, unusable_answer)

    async def _only(self, stream: ClientStream) -> Gives:
        message = await self._next(stream)
        if message is None or await stream.receive() is not None:
            raise CallFailed(Code.INTERNAL, "the peer did not answer one message")
        return message

    async def _enter(self) -> None:
        """Begin, and send the only message if there is one."""
        stream = self._stream = await self._begin()
        sent = False
        try:
            if self.first is not None:
                await stream.send(self.first.SerializeToString(), last=True)
            else:
                # No message follows that the headers could be sent with, so they are sent now.
                self._channel.connection.transmit()
            sent = True
        finally:
            if not sent:
                self._leave()

    async def _begin(self) -> ClientStream:
        connection = self._channel.connection
        while connection.gone is None and not connection.has_room():
            await connection.room.park()
        if connection.gone is not None:
            raise CallFailed(Code.UNAVAILABLE, connection.gone)
        stream = self._channel.begin(
            self._path, self._request_type.DESCRIPTOR.full_name, self._deadline, self.metadata
        )
        stream.response_type, stream.most_bytes = self._response_type, self.most_bytes
        return stream

    async def _in_time(self, step: Awaitable[T]) -> T:
        with trio.CancelScope(deadline=self._deadline):
            return await step
        # Only this scope's deadline leads here; a caller's own scope that expires at the same time
        # has raised Cancelled above.
        self._leave()
        raise CallFailed(Code.DEADLINE_EXCEEDED, "the peer did not answer in time")

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.reset(CANCEL)
            self._stream.close()


class Channel:
    """A connection to a peer, and its calls. Made by :func:`open_channel`."""

    def __init__(
        self,
        connection: ClientConnection,
        authority: str,
        traffic: TrafficMeter,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        """``authority`` is the peer's ``host:port``; ``spawn`` starts tasks of the connection."""
        self.connection = connection
        self.line = Line(self, spawn)
        self.limits = connection.limits
        self._authority = authority
        self._traffic = traffic

    @property
    def usable(self) -> bool:
        """Whether a call can still be made."""
        return self.connection.gone is None

    @property
    def calls(self) -> int:
        """Calls in flight."""
        return len(self.connection.streams) - self.line.quiet

    def line_stream(self) -> ClientCall[line_pb2.LineCall, line_pb2.LineAnswer]:
        """A call that carries a line, not begun."""
        return self.call(
            "meshnode.Line",
            "Calls",
            request_type=line_pb2.LineCall,
            response_type=line_pb2.LineAnswer,
            default_s=LIFE_S,
        )

    def count_call(self) -> None:
        """Note a call that goes over the line."""
        self._traffic.rpc_calls += 1

    async def wait_ended(self) -> None:
        """Wait until no call is left and none can be made."""
        await self.connection.ended.wait()

    def call(
        self,
        service: str,
        operation: str,
        *,
        request_type: type[Takes],
        response_type: type[Gives],
        default_s: float,
    ) -> ClientCall[Takes, Gives]:
        """A call that has not begun; ``default_s`` is for callers without a deadline."""
        return ClientCall(self, (service, operation), request_type, response_type, default_s)

    def begin(
        self,
        path: tuple[str, str],
        message_type: str,
        deadline: float,
        metadata: Mapping[str, str] = NONE,
    ) -> ClientStream:
        """Write the headers of a request; the caller transmits them."""
        connection, custom = self.connection, sent_metadata(metadata)
        service, operation = path
        timeout = sent_timeout(deadline - trio.current_time())
        try:
            stream_id = connection.h2.get_next_available_stream_id()
            connection.grpc.start_request(
                *(stream_id, connection.scheme, service, operation, message_type),
                *(self._authority, timeout),
                custom_metadata=custom,
            )
        except ProtocolError:
            connection.gone = "the connection cannot take another call"
            raise CallFailed(Code.UNAVAILABLE, connection.gone) from None
        stream = ClientStream(connection, stream_id, "identity", CallFailed)
        stream.operation = operation
        connection.streams[stream_id] = stream
        self._traffic.rpc_calls += 1
        return stream


@asynccontextmanager
async def open_channel(
    host: str,
    port: int,
    *,
    traffic: TrafficMeter,
    limits: RpcLimits | None = None,
    peer_log: PeerLog | None = None,
    tls: ssl.SSLContext | None = None,
    source: str | None = None,
) -> AsyncIterator[Channel]:
    """Connect to ``host:port``, and keep the connection inside the context.

    It comes from the own address ``source``, or from the one that the operating system chooses.
    Raises CallFailed with UNAVAILABLE if nothing there answers with HTTP/2. The caller sets a
    deadline for entering. Connections may share a ``peer_log``.
    """
    limits = limits or RpcLimits()
    try:
        sock = _detach(await trio.open_tcp_stream(host, port, local_address=source))
    except OSError as error:
        raise CallFailed(Code.UNAVAILABLE, f"cannot connect to {host}:{port}") from error
    try:
        transport = Transport(sock, traffic, stall_s=limits.stall_s, tls=tls)
    except OSError as error:
        # The peer has disconnected already.
        sock.close()
        raise CallFailed(Code.UNAVAILABLE, f"{host}:{port} hung up") from error
    connection = ClientConnection(transport, limits, ByteCount(limits.bytes_in_flight), peer_log)
    failure: Exception | None = None
    try:
        try:
            await transport.shake_hands()
        except OSError as error:
            reason = getattr(error, "verify_message", "") or "no TLS there"
            raise CallFailed(Code.UNAVAILABLE, f"cannot trust {host}:{port}: {reason}") from error
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.read)
            nursery.start_soon(transport.run_writer)
            nursery.start_soon(connection.keepalive.run, connection)
            try:
                await connection.wait_known()
                authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

                def spawn(work: Callable[[], Awaitable[None]]) -> None:
                    nursery.start_soon(work)

                yield Channel(connection, authority, traffic, spawn)
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the nursery
                # The nursery would wrap the error in a group; callers should see it unwrapped.
                failure = error
            connection.say_goodbye()
            nursery.cancel_scope.cancel()
    finally:
        transport.close()
    if failure is not None:
        raise failure


MAX_CALL_S = 30 * 24 * 3600.0
"""A deadline further away than 30 days counts as no deadline."""


def _detach(stream: trio.SocketStream) -> socket.socket:
    """Take the plain socket out of a stream that is no longer used."""
    return socket.socket(fileno=stream.socket.detach())
