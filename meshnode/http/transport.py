"""One TCP connection: Hypercorn's HTTP/1 protocol over a Trio socket, with every wait bounded.

Hypercorn parses and frames; reading, writing, deadlines and the end of the connection are here,
where the stock server leaves them unbounded:

===========================  ==============================================================
stock server                 here
===========================  ==============================================================
a send is shielded, so one   a send may be cancelled; one that was, or that made no
stalled reader blocks the    progress for ``STALL_S``, closes the connection
shutdown for ever
closing with unread input    the sending side is closed first, and input is read and
resets the connection, and   dropped for up to ``LINGER_S``
the client loses its answer
a parser error has no body   it has the error body of the API that its path belongs to
a parser error cuts an       the answer that has begun is finished; what comes in meanwhile is
answer that has begun        read and dropped
HTTP/2 with prior knowledge  refused with 505
an ``Upgrade`` is taken      it is ignored, and the request answered as HTTP/1.1
                             (decision 0026)
===========================  ==============================================================

States of a connection: *idle* (waiting for a request's head, at most ``KEEP_ALIVE_S``, however
slowly it dribbles in), *busy* (a response is being made), *closing* (nothing more is served).
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from meshnode.domain.errors import RateLimited
from meshnode.http.errors import http_failure
from meshnode.http.exchange import error_message, new_request_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hypercorn.config import Config
    from hypercorn.events import Event
    from hypercorn.protocol.events import Event as StreamEvent
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import (
        AppWrapper,
        ASGIReceiveCallable,
        ASGISendCallable,
        Scope,
    )

    from meshnode.http.errors import ErrorForm

RECEIVE_BYTES = 64 * 1024
HEADER_EXTRA = len(b": \r\n")
FLOOD_WAIT_S = 1
"""Seconds after which an address that was cut off has room for requests again."""
FREE_CHUNKS = 1000
MIN_CHUNK_BYTES = 64
"""Mean size of a body's pieces beyond the first ``FREE_CHUNKS``. A segment has 536 bytes at least,
and programs that send a line at a time stay above this too."""
BEGINNING_BYTES = 256
"""How much is kept of a request's beginning: enough to see which API its path belongs to."""
KEEP_ALIVE_S = 20.0
"""Deadline for a request's head to arrive in full, counted from the answer before or the accept."""
STALL_S = 30.0
"""A client that accepts no byte for this long is disconnected."""
LINGER_S = 2.0
"""How long input is still read and dropped after the last answer."""
CLOSE_S = 5.0
"""Deadline for the tasks of a closed connection."""


class _HeadRefused(Exception):
    """The head of a request is well formed, but the server does not serve it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Parser(h11.Connection):
    """Keeps the beginning of the current request, since h11 drops a head that it cannot parse.

    It refuses bodies in tiny chunks: a body of 1 MiB could be a million events.
    """

    beginning = b""
    _chunks = 0
    _chunk_bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event."""
        if self.their_state is h11.IDLE:
            self.beginning = self.trailing_data[0][:BEGINNING_BYTES]
            self._chunks = self._chunk_bytes = 0
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += 1
            self._chunk_bytes += len(event.data)
            if self._chunk_bytes < (self._chunks - FREE_CHUNKS) * MIN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks are too small")
        return event


class Application(Protocol):
    """What the server serves: an ASGI application that also knows the form of its errors."""

    def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> Awaitable[None]:
        """Answer one request."""

    def errors_for(self, target: str) -> ErrorForm:
        """The form of an error about a request with this target, which may not be a path."""


_REQUEST_LINE = re.compile(rb"\s*[^\s]+ +(?:https?://[^/?\s]*)?(/[^?\s]*)", re.IGNORECASE)


def path_of(beginning: bytes) -> str:
    """The path in the first bytes of a request; empty where none can be seen."""
    found = _REQUEST_LINE.match(beginning)
    return unquote(found[1].decode("latin-1")) if found else ""


class _Protocol(H11Protocol):
    """Hypercorn's HTTP/1 protocol alone, and with a body in its own errors."""

    def __init__(
        self, errors_for: Callable[[str], ErrorForm], admits: Callable[[], bool], *arguments: Any
    ) -> None:
        super().__init__(*arguments)
        self._admits = admits
        self._errors_for = errors_for
        self._parser = _Parser(h11.SERVER, self.config.h11_max_incomplete_size)
        self.connection = self._parser

    async def handle(self, event: Event) -> None:
        try:
            await super().handle(event)
        except _HeadRefused as refused:
            await self._send_error_response(refused.status)
            await self.send(Closed())

    async def stream_send(self, event: StreamEvent) -> None:
        # Hypercorn sends a 500 for an application that ended without an answer. It would mistake an
        # application that was cancelled while it was sending for one of those.
        await trio.lowlevel.checkpoint_if_cancelled()
        await super().stream_send(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        if not self._admits():
            raise _HeadRefused(429)
        if event.http_version not in (b"1.0", b"1.1"):
            raise _HeadRefused(505)
        lines = sum(len(name) + len(value) + HEADER_EXTRA for name, value in event.headers)
        if len(event.target) + lines > self.config.h11_max_incomplete_size:
            raise _HeadRefused(431)
        # RFC 9112, 6.1: requests are smuggled by stating a body's length in two ways.
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
            raise _HeadRefused(400)

    async def _create_stream(self, request: h11.Request) -> None:
        if any(name == b"upgrade" for name, _ in request.headers):
            kept = [(name, value) for name, value in request.headers if name != b"upgrade"]
            request = h11.Request(
                method=request.method,
                target=request.target,
                headers=kept,
                http_version=request.http_version,
            )
        await super()._create_stream(request)

    async def _send_error_response(self, status_code: int) -> None:
        form = self._errors_for(path_of(self._parser.beginning))
        identifier = new_request_id()
        failure = (
            form.failure(RateLimited(FLOOD_WAIT_S), identifier)
            if status_code == 429
            else http_failure(status_code)
        )
        headers, body = error_message(form, failure, identifier)
        headers += [(b"connection", b"close"), *self.config.response_headers("h11")]
        answer = (
            h11.Response(status_code=status_code, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        # In one send: an answer of the application must not come in between.
        data = b""
        # The answer to HEAD has no body.
        with suppress(h11.LocalProtocolError):
            for event in answer:
                data += self.connection.send(event) or b""
        await self.send(RawData(data=data))

    @property
    def answering(self) -> bool:
        """Whether an answer has begun that its application is still making."""
        return self.stream is not None and self.connection.our_state is h11.SEND_BODY

    @property
    def request_complete(self) -> bool:
        """Whether the client has nothing more to send for its request."""
        return self.connection.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)


class Connection:
    """One accepted connection. ``run`` serves it to its end; ``drain`` lets it go early."""

    def __init__(
        self,
        app: Application,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        admits: Callable[[str], bool] = lambda ip: True,
    ) -> None:
        """``admits`` counts a request of an address; without its consent there is no answer."""
        self._admits = admits
        self._errors_for = app.errors_for
        self._app: AppWrapper = ASGIWrapper(app)
        self._config = config
        self._context = context
        self._socket = stream.socket
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._deadline = trio.current_time() + KEEP_ALIVE_S
        self._idle = True
        self.idle_since = trio.current_time()
        """When the latest request began or its answer was finished, or the connection accepted."""
        self.ip = _peer_ip(stream.socket)
        """The client's address; empty if it had left before it was looked at."""
        self._closing = False
        self._ignoring = False
        self._draining = False
        self._protocol: _Protocol

    async def run(self) -> None:
        """Serve requests until the connection ends. It is closed in any case."""
        try:
            client = parse_socket_addr(self._socket.family, self._socket.getpeername())
            server = parse_socket_addr(self._socket.family, self._socket.getsockname())
        except OSError:
            # The client left before the connection was served.
            self._socket.close()
            return
        try:
            with self._scope:
                async with TaskGroup() as tasks:
                    self._protocol = _Protocol(
                        self._errors_for,
                        lambda: self._admits(self.ip),
                        self._app,
                        self._config,
                        self._context,
                        tasks,
                        ConnectionState({}),
                        False,
                        client,
                        server,
                        self._handle_protocol,
                    )
                    await self._read()
        finally:
            self._socket.close()

    @property
    def idle(self) -> bool:
        """Whether the client waits for no answer: no request has arrived in full since the last."""
        return self._idle or not self._protocol.request_complete

    def evict(self) -> None:
        """End an idle connection at once, because another one takes its place."""
        self._draining = True
        self._read_until(-math.inf)

    def drain(self) -> None:
        """End as soon as no response is being made; an idle connection ends at once."""
        self._draining = True
        if self._idle:
            self._read_until(-math.inf)

    async def _read(self) -> None:
        data = await self._receive()
        while data:
            if not self._closing and not self._ignoring:
                await self._protocol.handle(RawData(data))
            data = await self._receive()
        # The client has left, or the connection is drained. The application gets the disconnect
        # event and ends; one that does not is cancelled at the deadline.
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + CLOSE_S)
        await self._protocol.handle(Closed())

    async def _receive(self) -> bytes:
        """The next bytes; nothing at the end, at the deadline, or after an error."""
        self._reading = trio.CancelScope(deadline=self._deadline)
        with self._reading:
            try:
                return await self._socket.recv(RECEIVE_BYTES)
            except (OSError, trio.ClosedResourceError):
                pass
        return b""

    def _read_until(self, deadline: float) -> None:
        self._deadline = self._reading.deadline = deadline

    async def _handle_protocol(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Updated):
            self._idle = event.idle
            self.idle_since = trio.current_time()
            if not event.idle:
                self._read_until(math.inf)
            elif self._draining:
                self._read_until(-math.inf)
            else:
                self._read_until(trio.current_time() + KEEP_ALIVE_S)
        elif isinstance(event, Closed):
            # The parser gives up on a request that was refused before all of it had come.
            if self._protocol.answering:
                self._ignoring = True
            else:
                await self._close()

    async def _send(self, data: bytes) -> None:
        sent = 0
        try:
            async with self._sending:
                while sent < len(data):
                    with trio.fail_after(STALL_S):
                        sent += await self._socket.send(memoryview(data)[sent:])
        except (OSError, trio.TooSlowError, trio.ClosedResourceError):
            pass
        finally:
            if sent < len(data):
                # The last message is cut in the middle, so nothing may follow it.
                self._socket.close()
                self._scope.cancel()

    async def _close(self) -> None:
        """Close from this side, after an error or after the last response."""
        if self._closing:
            return
        self._closing = True
        now = trio.current_time()
        async with self._sending:
            try:
                self._socket.shutdown(trio.socket.SHUT_WR)
            except OSError:
                self._scope.cancel()
        # Closing while the client still sends would reset the connection, and the reset could
        # overtake the answer.
        self._read_until(-math.inf if self._protocol.request_complete else now + LINGER_S)
        # A reader that waits for a pipelined request's turn would otherwise wait for ever.
        self._scope.deadline = now + LINGER_S + CLOSE_S
        if self._protocol.stream is not None:
            await self._protocol.handle(Closed())


def _peer_ip(sock: trio.socket.SocketType) -> str:
    try:
        client = parse_socket_addr(sock.family, sock.getpeername())
    except OSError:
        return ""
    return client[0] if client else ""
