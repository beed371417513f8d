"""One TCP connection: Hypercorn's HTTP/1 protocol over a Trio socket, with every wait bounded.

Hypercorn parses and frames; reading, writing, deadlines and the end of the connection are here,
where the stock server leaves them unbounded:

===========================  ==============================================================
stock server                 here
===========================  ==============================================================
a send is shielded, so one   a send may be cancelled, and one that made no progress for
stalled reader blocks the    ``STALL_S`` closes the connection; a half-written message
shutdown for ever            never stays in use
closing with unread input    the sending side is closed first, and input is read and
resets the connection, and   dropped for up to ``LINGER_S``
the client loses its answer
a parser error has no body   it has the error body of the API that its path belongs to
a parser error cuts an       the answer that has begun is finished; what comes in meanwhile is
answer that has begun        read and dropped
HTTP/2 with prior knowledge  refused with 505
an ``Upgrade`` is taken      it is ignored, and the request answered as HTTP/1.1
                             (decisions/0026)
===========================  ==============================================================

States of a connection: *idle* (waiting for a request's head, at most ``KEEP_ALIVE_S``, however
slowly it dribbles in), *busy* (a response is being made), *closing* (nothing more is served).
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import h11
import trio
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from meshnode.http.errors import http_failure
from meshnode.http.exchange import error_message, new_request_id
from meshnode.http.native import is_native

if TYPE_CHECKING:
    from hypercorn.config import Config
    from hypercorn.events import Event
    from hypercorn.protocol.events import Event as StreamEvent
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import AppWrapper

RECEIVE_BYTES = 64 * 1024
HEADER_EXTRA = len(b": \r\n")
BEGINNING_BYTES = 256
"""Of a request: enough to see which API it is for."""
KEEP_ALIVE_S = 20.0
"""For the next request's head to arrive in full, the first one's included."""
STALL_S = 30.0
"""For a client to take anything at all of what is being sent."""
LINGER_S = 2.0
"""For a client to stop sending after its answer."""
CLOSE_S = 5.0
"""For the tasks of a connection to end once it is closed."""


class _HeadRefused(Exception):
    """The head of a request is well formed, and not served."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Parser(h11.Connection):
    """Remembers how the current request begins: a head that is not understood is gone."""

    beginning = b""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event."""
        if self.their_state is h11.IDLE:
            self.beginning = self.trailing_data[0][:BEGINNING_BYTES]
        return super().next_event()


_REQUEST_LINE = re.compile(rb"\s*[^\s]+ +(?:https?://[^/?\s]*)?(/[^?\s]*)", re.IGNORECASE)


def path_of(beginning: bytes) -> str:
    """The path in the first bytes of a request; empty where none can be seen."""
    found = _REQUEST_LINE.match(beginning)
    return unquote(found[1].decode("latin-1")) if found else ""


class _Protocol(H11Protocol):
    """Hypercorn's HTTP/1 protocol alone, and with a body in its own errors."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._parser = _Parser(h11.SERVER, self.config.h11_max_incomplete_size)
        self.connection = self._parser

    async def handle(self, event: Event) -> None:
        try:
            await super().handle(event)
        except _HeadRefused as refused:
            await self._send_error_response(refused.status)
            await self.send(Closed())

    async def stream_send(self, event: StreamEvent) -> None:
        # Hypercorn sends a 500 for an application that ended without an answer, and takes one that
        # was cancelled while its answer was being sent for such a one.
        await trio.lowlevel.checkpoint_if_cancelled()
        await super().stream_send(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version not in (b"1.0", b"1.1"):
            raise _HeadRefused(505)
        lines = sum(len(name) + len(value) + HEADER_EXTRA for name, value in event.headers)
        if len(event.target) + lines > self.config.h11_max_incomplete_size:
            raise _HeadRefused(431)
        # RFC 9112, 6.1: two statements of one body's length are how requests are smuggled.
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
        native = is_native(path_of(self._parser.beginning))
        failure = http_failure(status_code)
        headers, body = error_message(failure, new_request_id(), native=native)
        headers += [(b"connection", b"close"), *self.config.response_headers("h11")]
        answer = (
            h11.Response(status_code=status_code, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        # At once: an application that answers meanwhile must not come in between.
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
        self, app: AppWrapper, config: Config, context: WorkerContext, stream: trio.SocketStream
    ) -> None:
        self._app = app
        self._config = config
        self._context = context
        self._socket = stream.socket
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._deadline = trio.current_time() + KEEP_ALIVE_S
        self._idle = True
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
            # The client was gone before it was looked at.
            self._socket.close()
            return
        try:
            with self._scope:
                async with TaskGroup() as tasks:
                    self._protocol = _Protocol(
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

    def drain(self) -> None:
        """End as soon as no response is in the making: at once, if idle."""
        self._draining = True
        if self._idle:
            self._read_until(-math.inf)

    async def _read(self) -> None:
        data = await self._receive()
        while data:
            if not self._closing and not self._ignoring:
                await self._protocol.handle(RawData(data))
            data = await self._receive()
        # The client has gone, or is let go: the application hears of it and ends. Whatever does
        # not listen is cancelled.
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
                # What is on the wire is cut in the middle, so nothing may ever follow it.
                self._socket.close()
                self._scope.cancel()

    async def _close(self) -> None:
        """The server's wish to close: after an error, or after the last response."""
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
        # A reader that waits for a pipelined request to get its turn would wait for ever.
        self._scope.deadline = now + LINGER_S + CLOSE_S
        if self._protocol.stream is not None:
            await self._protocol.handle(Closed())
