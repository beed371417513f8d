"""One TCP connection: Hypercorn's protocols over a Trio socket, with every wait bounded.

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
                             (decision 0026), but for a websocket at its one path
===========================  ==============================================================

With TLS (decision 0171) a connection begins with a handshake, which may take ``HANDSHAKE_S``; a
client may agree on HTTP/2 in it, and on nothing otherwise.

States of a connection: *idle* (waiting for a request's head, at most ``KEEP_ALIVE_S``, however
slowly it dribbles in), *busy* (a response is being made), *closing* (nothing more is served).
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from meshnode.accepting import has_left
from meshnode.domain.forwarded import TrustedProxies
from meshnode.domain.frames import AddressFrames
from meshnode.http.http1 import Http1
from meshnode.http.http2 import Http2, StreamPool
from meshnode.newcomers import Newcomer
from meshnode.tls import HANDSHAKE_S, ServerTls, TlsSocket, wrap
from meshnode.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from hypercorn.config import Config
    from hypercorn.events import Event
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import (
        AppWrapper,
        ASGIReceiveCallable,
        ASGISendCallable,
        Scope,
    )

    from meshnode.http.errors import ErrorForm
    from meshnode.http.exchange import PromptRoute

RECEIVE_BYTES = 64 * 1024
KEEP_ALIVE_S = 20.0
"""Deadline for a request's head to arrive in full, counted from the answer before or the accept."""
BODY_S = 0.02
"""How long the body of a plain request is waited for, before it goes the ordinary way."""
STALL_S = 30.0
"""A client that accepts no byte for this long is disconnected."""
LINGER_S = 2.0
"""How long input is still read and dropped after the last answer."""
CONTROL = (2000.0, 500.0)
"""Frames of HTTP/2 that nothing pays for, which one address may send: a burst, and each second."""
EXTRA_STREAMS = 900
"""Streams that all connections together may have beyond one each."""
CLOSE_S = 5.0
"""Deadline for the tasks of a closed connection."""


class Application(Protocol):
    """What the server serves: an ASGI application that also knows the form of its errors."""

    def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> Awaitable[None]:
        """Answer one request."""

    def errors_for(self, target: str) -> ErrorForm:
        """The form of an error about a request with this target, which may not be a path."""

    def prompt_route(self, method: str, path: str) -> PromptRoute | None:
        """The route that a connection may answer by itself, if there is one."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the connections of a server have in common."""

    admits: Callable[[str], bool] = lambda ip: True
    """Counts a request of an address; without its consent there is no answer."""
    tls: ServerTls | None = None
    proxies: TrustedProxies = field(default_factory=lambda: TrustedProxies(""))
    frames: AddressFrames = field(default_factory=lambda: AddressFrames(*CONTROL))
    streams: StreamPool = field(default_factory=lambda: StreamPool(EXTRA_STREAMS))
    turns: Turns = field(default_factory=Turns)

    @property
    def silence_s(self) -> float:
        """How long a newcomer may say nothing."""
        return KEEP_ALIVE_S if self.tls is None else HANDSHAKE_S


class Connection:
    """One accepted connection. ``run`` serves it to its end; ``drain`` lets it go early."""

    def __init__(
        self,
        app: Application,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        shared: Shared,
        newcomer: Newcomer,
    ) -> None:
        """``shared`` is what all connections of a server have in common."""
        self._shared = shared
        self._errors_for, self._prompt_route = app.errors_for, app.prompt_route
        self._app: AppWrapper = ASGIWrapper(app)
        self._config = config
        self._context = context
        self.ip = newcomer.ip
        """The client's address; empty if it had left before it was looked at."""
        tls = self._shared.tls
        self._socket: trio.socket.SocketType | TlsSocket = stream.socket
        if tls is not None:
            self._socket = TlsSocket(wrap(_detached(stream), tls.http, server_side=True))
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._deadline = newcomer.idle_since + KEEP_ALIVE_S
        self._idle = True
        self.idle_since = newcomer.idle_since
        """When the latest request began or its answer was finished, or the connection accepted."""
        self._turns = newcomer.turns
        self._closing = False
        self._ignoring = False
        self._draining = False
        self._protocol: Http1 | Http2

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
                if not await self._shake_hands():
                    return
                async with TaskGroup() as tasks:
                    common = (
                        self._app,
                        self._config,
                        self._context,
                        tasks,
                        ConnectionState({}),
                        isinstance(self._socket, TlsSocket),
                        client,
                        server,
                        self._handle_protocol,
                    )
                    self._protocol = self._protocol_for(common)
                    await self._protocol.initiate()
                    await self._read()
        finally:
            self._socket.close()

    async def _shake_hands(self) -> bool:
        """Whether the client has shaken hands, if it must, and in time."""
        if not isinstance(self._socket, TlsSocket):
            return True
        self._reading = trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_S)
        if self._draining:
            self._reading.cancel()
        with self._reading, suppress(OSError):
            await self._socket.handshake()
            return True
        return False

    def _protocol_for(self, common: tuple[Any, ...]) -> Http1 | Http2:
        """HTTP/2 if the client has agreed on it, else HTTP/1."""
        shared = self._shared
        if isinstance(self._socket, TlsSocket) and self._socket.protocol == "h2":
            meter = shared.frames.meter(self.ip)
            return Http2(self._admits, meter, shared.streams, *common)
        own = (self._admits, self._next_turn, self._more)
        return Http1(self._errors_for, self._prompt_route, *own, *common)

    def _admits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Count a request against its client, which may be behind a proxy."""
        ip = self._shared.proxies.client(self.ip, headers)
        if self._shared.proxies:
            # Each request names its own client; the port is not known.
            self._protocol.client = (ip, 0)
        return self._shared.admits(ip)

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
                if not await self._turns.wait(self._left):
                    break
                await self._protocol.handle(RawData(data))
            data = await self._receive()
        # The client has left, or the connection is drained. The application gets the disconnect
        # event and ends; one that does not is cancelled at the deadline.
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + CLOSE_S)
        await self._protocol.handle(Closed())

    async def _next_turn(self) -> None:
        """Wait for the turn of a request that came with another; nobody answers who has left."""
        if not await self._turns.wait(self._left):
            self._scope.cancel()

    def _left(self) -> bool:
        return has_left(self._socket.fileno())

    async def _receive(self) -> bytes:
        """The next bytes; nothing at the end, at the deadline, or after an error."""
        self._reading = trio.CancelScope(deadline=self._deadline)
        with self._reading:
            try:
                return await self._socket.recv(RECEIVE_BYTES)
            except (OSError, trio.ClosedResourceError):
                pass
        return b""

    async def _more(self) -> bytes:
        """What comes within ``BODY_S``; nothing if that is nothing, or the end."""
        with trio.move_on_after(BODY_S), suppress(OSError, trio.ClosedResourceError):
            return await self._socket.recv(RECEIVE_BYTES)
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


def _detached(stream: trio.SocketStream) -> socket.socket:
    return socket.socket(fileno=stream.socket.detach())


def peer_ip(sock: trio.socket.SocketType) -> str:
    """The address of a client; empty if it has left."""
    try:
        client = parse_socket_addr(sock.family, sock.getpeername())
    except OSError:
        return ""
    return client[0] if client else ""
