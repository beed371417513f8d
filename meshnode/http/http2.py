"""HTTP/2 on the HTTP port, for clients that agree on it in a TLS handshake (decision 0171).

Hypercorn's protocol over h2, with what it leaves unbounded or undone:

=============================  ===============================================================
stock protocol                 here
=============================  ===============================================================
a client that opens no window  a stream that makes no progress for ``STALL_S`` is reset
waits for ever
frames that bring nothing are  counted as on the gRPC port (decision 0128); a flood ends the
free                           connection with ENHANCE_YOUR_CALM
as many streams as a client    each connection has one, and as many more as the server's pool
likes on each connection       has room for
data for a stream that was     dropped, and its window given back
answered ends the connection
CONNECT, and targets that are  answered with 405 and 400
not ASCII, end the connection
a GOAWAY cuts off answers      the answers that have begun are finished
headers of HTTP/1.1 in an      left out
answer lose the answer
=============================  ===============================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h2.events
import h2.settings
import trio
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.utils import filter_pseudo_headers

from meshnode.domain.frames import FrameMeter, Passed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypercorn.events import Event
    from hypercorn.protocol.events import Event as StreamEvent

MAX_STREAMS = 32
"""Streams of one connection, if the pool has room for them."""
MAX_HEADER_BYTES = 16 * 1024
STALL_S = 30.0
BROKEN = (ProtocolError, ValueError, LookupError)
"""What h2 raises on bytes that are not HTTP/2."""
CONNECTION_HEADERS = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)


class StreamPool:
    """Room for the streams that connections have beyond their first."""

    def __init__(self, limit: int) -> None:
        """At most ``limit`` of them at a time."""
        self._free = limit

    def take(self) -> bool:
        """Take room for one; False if there is none."""
        if self._free < 1:
            return False
        self._free -= 1
        return True

    def give(self) -> None:
        """Give it back."""
        self._free += 1


class _Buffer(StreamBuffer):
    """What is to be sent on a stream; its writer does not wait for ever."""

    def __init__(self, event_class: Any) -> None:
        super().__init__(event_class)
        self._popped = 0

    async def push(self, data: bytes) -> None:
        await self._bounded(super().push, data)

    async def drain(self) -> None:
        await self._bounded(super().drain)

    async def pop(self, max_length: int) -> bytes:
        data = await super().pop(max_length)
        self._popped += len(data)
        return data

    async def _bounded(self, wait: Callable[..., Any], *arguments: bytes) -> None:
        """Wait as long as some bytes leave in every ``STALL_S``. Raises TooSlowError."""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, scope)
                await wait(*arguments)
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise trio.TooSlowError

    async def _watch(self, scope: trio.CancelScope) -> None:
        before = -1
        while self._popped > before:
            before = self._popped
            await trio.sleep(STALL_S)
        scope.cancel()


class Http2(H2Protocol):
    """One connection. The transport hands it bytes and sends what it makes of them."""

    answering = False
    """Nothing goes on after an error of the client's."""

    def __init__(
        self,
        admits: Callable[[Iterable[tuple[bytes, bytes]]], bool],
        frames: FrameMeter,
        pool: StreamPool,
        *arguments: Any,
    ) -> None:
        """``admits`` counts a request by its headers; without its consent the connection ends."""
        super().__init__(*arguments)
        self._admits = admits
        self._frames = frames
        self._pool = pool
        self._passed = Passed()
        self._extra: set[int] = set()
        """Streams that have taken room in the pool."""
        self._failed = False
        self._leaving = False
        codes = h2.settings.SettingCodes
        self.connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                codes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
            },
        )

    @property
    def stream(self) -> object | None:
        """Any request that is being answered."""
        return next(iter(self.streams.values()), None)

    @property
    def request_complete(self) -> bool:
        """Whether the connection can be closed without losing the error that was sent last."""
        return not self._failed

    async def handle(self, event: Event) -> None:
        """Take bytes, or the end of the connection."""
        if isinstance(event, RawData):
            await self._take(event.data)
        else:
            if isinstance(event, Closed) and not self.closed and not self._failed:
                await self._end(ErrorCodes.NO_ERROR)
            for stream_id in list(self._extra):
                self._give_back(stream_id)
            await super().handle(event)

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of an answer from its application."""
        # An application that was cancelled while sending is not one that ended without an answer.
        await trio.lowlevel.checkpoint_if_cancelled()
        if isinstance(event, Response):
            kept = [pair for pair in event.headers if pair[0].lower() not in CONNECTION_HEADERS]
            event = Response(event.stream_id, headers=kept, status_code=event.status_code)
        self._passed.messages += 1
        try:
            await super().stream_send(event)
        except trio.TooSlowError:
            self._reset(event.stream_id, ErrorCodes.CANCEL)
            await self._flush()
            await self._close_stream(event.stream_id)
            await self._window_updated(event.stream_id)

    async def _take(self, data: bytes) -> None:
        try:
            events = self.connection.receive_data(data)
        except BROKEN:
            await self._give_up()
            return
        self._passed.bytes += len(data)
        for event in events:
            if self._failed or self.closed:
                return
            await self._on(event)
        await self._flush()
        passed, self._passed = self._passed, Passed()
        verdict = self._frames.judge(passed, trio.current_time())
        if verdict.flood:
            await self._end(ErrorCodes.ENHANCE_YOUR_CALM)
            await self._give_up()

    async def _on(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            await self._request(event)
        elif isinstance(event, h2.events.DataReceived):
            await self._data(event)
        elif isinstance(event, h2.events.StreamEnded):
            stream = self.streams.get(event.stream_id)
            if stream is not None:
                await stream.handle(EndBody(stream_id=event.stream_id))
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._leaving = True
            if not self.streams:
                await self.send(Closed())
        else:
            self._passed.frames += 1
            if isinstance(event, h2.events.StreamReset):
                await self._close_stream(event.stream_id)
                await self._window_updated(event.stream_id)
            elif isinstance(event, h2.events.WindowUpdated):
                await self._window_updated(event.stream_id)
            elif isinstance(event, h2.events.RemoteSettingsChanged):
                await self._window_updated(None)

    async def _request(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id
        headers = list(event.headers or ())
        if self.context.terminated.is_set() or self._leaving or not self._has_room(stream_id):
            self._passed.frames += 1
            self._reset(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        if not self._admits(headers):
            await self._end(ErrorCodes.ENHANCE_YOUR_CALM)
            await self._give_up()
            return
        pseudo = dict(headers)
        method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
        if method == b"CONNECT" or not method.isascii() or not target.isascii():
            status = b"405" if method == b"CONNECT" else b"400"
            self.connection.send_headers(stream_id, [(b":status", status)], end_stream=True)
            self._give_back(stream_id)
            return
        await self._create_stream(event)
        await self.send(Updated(idle=False))

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        stream_id, headers = request.stream_id, list(request.headers or ())
        pseudo = dict(headers)
        stream = self.streams[stream_id] = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            stream_id,
        )
        self.stream_buffers[stream_id] = _Buffer(self.context.event_class)
        self.priority.insert_stream(stream_id)
        self.priority.block(stream_id)
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=filter_pseudo_headers(headers),
                http_version="2",
                method=pseudo[b":method"].decode().upper(),
                raw_path=pseudo[b":path"],
                state=self.connection_state,
            )
        )

    async def _data(self, event: h2.events.DataReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if event.data and stream is not None:
            await stream.handle(Body(stream_id=event.stream_id, data=event.data))
        else:
            self._passed.frames += 1
        try:
            self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        except ProtocolError:
            # The stream or the connection has ended.
            return

    async def _close_stream(self, stream_id: int) -> None:
        self._give_back(stream_id)
        await super()._close_stream(stream_id)
        if self._leaving and not self.streams:
            await self.send(Closed())

    def _has_room(self, stream_id: int) -> bool:
        if self.streams:
            if not self._pool.take():
                return False
            self._extra.add(stream_id)
        return True

    def _give_back(self, stream_id: int) -> None:
        if stream_id in self._extra:
            self._extra.discard(stream_id)
            self._pool.give()

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        try:
            self.connection.reset_stream(stream_id, code)
        except ProtocolError:
            return

    async def _end(self, code: ErrorCodes) -> None:
        """Send a GOAWAY."""
        try:
            self.connection.close_connection(code)
        except ProtocolError:
            return
        await self._flush()

    async def _give_up(self) -> None:
        """Send what h2 has to say about an error, and close the connection."""
        self._failed = True
        await self._flush()
        await self.send(Closed())
