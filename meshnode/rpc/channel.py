"""A client's connection to a peer's gRPC interface (document, sections 4.3, 7.3 and 8).

Terms: a *channel* is one connection; it is not made again when it breaks. Its user opens another,
or goes to another peer.

Invariants: every call has a deadline, the caller's own or that of the limits, and the peer is told;
a call that is left before its end is reset at the peer; a call that waits when the peer goes away,
says goodbye or stops answering pings ends with UNAVAILABLE. No more calls run at a time than both
sides allow; the others wait within their deadlines.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import h2.events
import trio
from google.protobuf.message import DecodeError, Message
from h2.exceptions import ProtocolError

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.connection import Connection, text_headers
from meshnode.rpc.errors import RESET_CODES, CallFailed, Code
from meshnode.rpc.headers import ResponseEnd, parse_response, parse_trailers, sent_timeout
from meshnode.rpc.keepalive import Keepalive
from meshnode.rpc.limits import ByteCount, RpcLimits
from meshnode.rpc.streams import MessageStream
from meshnode.rpc.transport import Transport

CANCEL = 8
"""HTTP/2 error code of a call that its caller gives up."""

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)
T = TypeVar("T")


class ClientStream(MessageStream):
    """A call's messages, and how the peer ended it."""

    outcome: ResponseEnd | None = None


class ClientConnection(Connection):
    """The client's side of a connection."""

    streams: dict[int, ClientStream]  # type: ignore[assignment]

    def __init__(self, transport: Transport, limits: RpcLimits, held: ByteCount) -> None:
        """Wait for :meth:`wait_known` before the first call: the peer's settings limit them."""
        super().__init__(transport, limits, held, client_side=True)
        self.gone: str | None = None
        """Why no further call can be made, if so."""
        self.room = trio.lowlevel.ParkingLot()
        self.keepalive = Keepalive()
        self._changed = trio.lowlevel.ParkingLot()
        self._handlers |= {
            h2.events.ResponseReceived: self._response_received,
            h2.events.TrailersReceived: self._trailers_received,
        }

    async def wait_known(self) -> None:
        """Wait for the peer's settings. Raises CallFailed when it does not speak HTTP/2."""
        while not self.peer_is_known:
            if self.gone is not None:
                raise CallFailed(Code.UNAVAILABLE, self.gone)
            await self._changed.park()

    def has_room(self) -> bool:
        """Whether one more call may begin."""
        most = min(self.limits.calls_per_connection, self.h2.remote_settings.max_concurrent_streams)
        # Counted by h2 too: a stream may live on there until its last frame has come.
        return len(self.streams) < most and self.h2.open_outbound_streams < most

    def lost(self, reason: str) -> None:
        """End all calls, and let no other begin."""
        self.gone = self.gone or reason
        super().lost(reason)
        for stream in self.streams.values():
            stream.stop_listening()
        self._changed.unpark_all()
        self.room.unpark_all()

    def forget(self, stream_id: int) -> None:
        """A call is over, another may begin."""
        super().forget(stream_id)
        self.room.unpark()

    def _response_received(self, event: h2.events.ResponseReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is None:
            return
        head = parse_response(text_headers(event.headers), ended=event.stream_ended is not None)
        if isinstance(head, ResponseEnd):
            self._outcome(stream, head)
        else:
            stream.set_encoding(head.encoding)

    def _trailers_received(self, event: h2.events.TrailersReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            self._outcome(stream, parse_trailers(text_headers(event.headers)))

    def _stream_ended(self, event: h2.events.StreamEnded) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None and stream.outcome is None:
            self._outcome(stream, ResponseEnd(Code.INTERNAL, "the answer ended without a status"))

    def _stream_reset(self, event: h2.events.StreamReset) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is None:
            return
        stream.was_reset = True
        if stream.outcome is None:
            code = RESET_CODES.get(int(event.error_code or 0), Code.INTERNAL)
            self._outcome(stream, ResponseEnd(code, "the peer reset the call"))

    def _outcome(self, stream: ClientStream, outcome: ResponseEnd) -> None:
        if stream.outcome is not None:
            return
        stream.outcome = outcome
        if outcome.code is not Code.OK:
            stream.fail(outcome.code, outcome.message)
        stream.ended()
        stream.stop_listening()

    def _settings_changed(self, event: h2.events.RemoteSettingsChanged) -> None:
        super()._settings_changed(event)
        self._changed.unpark_all()
        self.room.unpark_all()

    def _ping_acknowledged(self, event: h2.events.PingAckReceived) -> None:
        self.keepalive.answered()

    def _goaway_received(self, event: h2.events.ConnectionTerminated) -> None:
        self.gone = "the peer is going away"
        last = event.last_stream_id or 0
        for stream in list(self.streams.values()):
            if stream.id > last:
                # The peer has not looked at these: they may be made again elsewhere.
                stream.fail(Code.UNAVAILABLE, self.gone)
                stream.stop_listening()
        self.room.unpark_all()


class ClientCall(Generic[Takes, Gives]):
    """One call. An async context manager: leaving it early resets the call at the peer."""

    first: Takes | None = None
    """Sent, as the only message, when the call is entered."""

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
        self._deadline = min(trio.current_effective_deadline(), now + MOST_S)
        if self._deadline >= now + MOST_S:
            self._deadline = now + self._default_s
        self._stream = await self._in_time(self._begin())
        sent = False
        try:
            if self.first is not None:
                await self.send(self.first, last=True)
            else:
                # Without a message to travel with, the head leaves now.
                self._channel.connection.transmit()
            sent = True
        finally:
            if not sent:
                self._leave()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Reset the call if it has not ended."""
        self._leave()

    async def send(self, request: Takes, *, last: bool = False) -> None:
        """Send a message; ``last`` ends our side with it. Raises CallFailed at the deadline."""
        await self._in_time(self._open.send(request.SerializeToString(), last=last))

    def end(self) -> None:
        """Send no more messages."""
        self._open.end()

    async def receive(self) -> Gives | None:
        """The next message, None after the last. Raises CallFailed."""
        stream = self._open
        data = await self._in_time(stream.receive())
        if data is None:
            return None
        message = self._response_type()
        try:
            message.ParseFromString(data)  # type: ignore[arg-type]
        except DecodeError:
            raise CallFailed(Code.INTERNAL, "the peer's message cannot be read") from None
        return message

    async def receive_only(self) -> Gives:
        """The one message of an operation that answers one. Raises CallFailed."""
        message = await self.receive()
        if message is None or await self.receive() is not None:
            raise CallFailed(Code.INTERNAL, "the peer did not answer one message")
        return message

    def __aiter__(self) -> ClientCall[Takes, Gives]:
        """The messages, until the last."""
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

    async def _begin(self) -> ClientStream:
        connection = self._channel.connection
        while connection.gone is None and not connection.has_room():
            await connection.room.park()
        if connection.gone is not None:
            raise CallFailed(Code.UNAVAILABLE, connection.gone)
        return self._channel.begin(
            self._path, self._request_type.DESCRIPTOR.full_name, self._deadline
        )

    async def _in_time(self, step: Awaitable[T]) -> T:
        with trio.CancelScope(deadline=self._deadline):
            return await step
        # Only the deadline ends the scope; a caller's own, at the same time, is seen first.
        self._leave()
        raise CallFailed(Code.DEADLINE_EXCEEDED, "the peer did not answer in time")

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.reset(CANCEL)
            self._stream.close()


class Channel:
    """A connection to a peer, and its calls. Made by :func:`open_channel`."""

    def __init__(self, connection: ClientConnection, authority: str, traffic: TrafficMeter) -> None:
        """``authority`` is the peer's ``host:port``."""
        self.connection = connection
        self.limits = connection.limits
        self._authority = authority
        self._traffic = traffic

    @property
    def usable(self) -> bool:
        """Whether a call can still be made."""
        return self.connection.gone is None

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

    def begin(self, path: tuple[str, str], message_type: str, deadline: float) -> ClientStream:
        """Write the head of a request; the caller transmits it."""
        connection = self.connection
        service, operation = path
        timeout = sent_timeout(deadline - trio.current_time())
        try:
            stream_id = connection.h2.get_next_available_stream_id()
            connection.grpc.start_request(
                stream_id, "http", service, operation, message_type, self._authority, timeout
            )
        except ProtocolError:
            connection.gone = "the connection cannot take another call"
            raise CallFailed(Code.UNAVAILABLE, connection.gone) from None
        stream = ClientStream(connection, stream_id, "identity", CallFailed)
        connection.streams[stream_id] = stream
        self._traffic.rpc_calls += 1
        return stream


@asynccontextmanager
async def open_channel(
    host: str, port: int, *, traffic: TrafficMeter, limits: RpcLimits | None = None
) -> AsyncIterator[Channel]:
    """Connect to ``host:port`` without encryption, and keep the connection while inside.

    Raises CallFailed with UNAVAILABLE when nobody answers there, or not with HTTP/2. The caller
    sets a deadline around entering.
    """
    limits = limits or RpcLimits()
    try:
        opened = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise CallFailed(Code.UNAVAILABLE, f"cannot connect to {host}:{port}") from error
    transport = Transport(_detach(opened), traffic, stall_s=limits.stall_s)
    connection = ClientConnection(transport, limits, ByteCount(limits.bytes_in_flight))
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.read)
            nursery.start_soon(transport.run_writer)
            nursery.start_soon(connection.keepalive.run, connection)
            try:
                await connection.wait_known()
                yield Channel(connection, f"{host}:{port}", traffic)
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the nursery
                # The nursery would wrap it, and a channel's user is not to see that one exists.
                failure = error
            connection.say_goodbye()
            nursery.cancel_scope.cancel()
    finally:
        transport.close()
    if failure is not None:
        raise failure


MOST_S = 30 * 24 * 3600.0
"""A deadline further away than a month is none."""


def _detach(stream: trio.SocketStream) -> socket.socket:
    """The plain socket under a stream that is used no more."""
    return socket.socket(fileno=stream.socket.detach())
