"""The HTTP server: its own listening socket, an accept loop, and an end that is always bounded.

Hypercorn's own ``serve`` is not used: it opens the socket for others to share, lets one exception
in a connection end the node, and waits for stalled readers at shutdown. Its protocol code is, by
:mod:`meshnode.http.transport`. There is no ASGI lifespan: services live in the node's nursery, not
in the application.
"""

from __future__ import annotations

import contextlib
import logging
from contextlib import ExitStack
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from meshnode.accepting import AddressRate, accept_connections, open_listeners
from meshnode.domain.connections import ConnectionTable, share_of
from meshnode.domain.forwarded import TrustedProxies
from meshnode.domain.ratelimit import Rate
from meshnode.http.errors import ErrorForm, http_failure
from meshnode.http.exchange import error_message, new_request_id
from meshnode.http.transport import Application, Connection, Shared, peer_ip
from meshnode.newcomers import Newcomer
from meshnode.tls import ServerTls
from meshnode.turns import Turns

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 900
SHARE_OF_CONNECTIONS = 0.5
"""The share of all connections that one address may have; this machine may have all."""
RATE = Rate(per_second=100.0, burst=400.0)
"""Connections that one address may open, and requests that it may send, whatever they ask for."""
MAX_REFUSALS = 32
"""The most clients that are sent a 503 at one time. Further ones are closed without an answer,
because each answer keeps a descriptor for up to a second."""
MAX_HEAD_BYTES = 16 * 1024
"""Request line and headers together."""


async def serve_http(
    app: Application,
    host: str,
    port: int,
    *,
    shutdown: trio.Event,
    grace_s: float,
    max_connections: int = MAX_CONNECTIONS,
    rate: Rate = RATE,
    tls: ServerTls | None = None,
    proxies: TrustedProxies | None = None,
    turns: Turns | None = None,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application on ``host`` and ``port``: HTTP/1.1, and HTTP/2 with ``tls``.

    Reports the real address through ``task_status``; port 0 takes a free one. After ``shutdown`` is
    set it stops accepting, closes idle connections, gives responses in flight ``grace_s`` seconds,
    closes what is left, stalled readers included, and returns. When cancelled, it closes everything
    at once.

    An address that opens connections faster than ``rate`` has them closed without an answer; one
    that sends requests faster gets 429 and loses its connection (decision 0127). ``proxies`` are
    believed about the clients whose requests they pass on, and may be as fast as these. ``turns``
    are those of the node's clients on all ports.

    Raises :class:`StartupError` in one line when it cannot listen.
    """
    proxies = proxies or TrustedProxies("")
    listeners = await open_listeners(host, port)
    context = WorkerContext(None)
    connections: ConnectionTable[Newcomer | Connection] = ConnectionTable(
        max_connections,
        lambda ip: (
            max_connections
            if proxies.includes(ip)
            else share_of(max_connections, SHARE_OF_CONNECTIONS, ip)
        ),
    )
    refusals = trio.CapacityLimiter(MAX_REFUSALS)
    admits = AddressRate(rate, proxies.includes).admits
    shared = Shared(admits=admits, tls=tls, proxies=proxies, turns=turns or Turns())
    config = _config()

    async def serve_connection(stream: trio.SocketStream) -> None:
        try:
            await serve_admitted(stream)
        finally:
            await trio.aclose_forcefully(stream)

    async def serve_admitted(stream: trio.SocketStream) -> None:
        ip = peer_ip(stream.socket)
        client = shared.turns.of(ip)
        client.enter()
        newcomer = Newcomer(stream.socket, ip, client)
        admitted, replaced = connections.admit(newcomer)
        if replaced is not None:
            replaced.evict()
        if not admitted:
            # With TLS, a handshake would cost more than the client may have.
            if tls is None:
                await _refuse(stream, app.errors_for(""), refusals)
            return
        kept: Newcomer | Connection = newcomer
        try:
            if await newcomer.speaks(shared.silence_s):
                connection = Connection(app, config, context, stream, shared, newcomer)
                connections.exchange(newcomer, connection)
                kept = connection
                await connection.run()
        except* Exception:
            # An edge guard: no client may end the node.
            log.exception("a connection failed unexpectedly")
        finally:
            connections.discard(kept)

    async with trio.open_nursery() as handlers:
        with ExitStack() as listening:
            for listener in listeners:
                listening.enter_context(listener)
            async with trio.open_nursery() as accepting:
                accept = partial(accept_connections, listeners, serve_connection)
                connects = AddressRate(rate, proxies.includes)
                accepting.start_soon(partial(accept, connects, handlers=handlers))
                bound = listeners[0].getsockname()
                task_status.started((bound[0], bound[1]))
                await shutdown.wait()
                accepting.cancel_scope.cancel()
        # From here on a connection closes after its response instead of waiting for the next.
        await context.terminated.set()
        for connection in connections:
            connection.drain()
        handlers.cancel_scope.deadline = trio.current_time() + grace_s


async def _refuse(
    stream: trio.SocketStream, form: ErrorForm, refusals: trio.CapacityLimiter
) -> None:
    if refusals.available_tokens == 0:
        await trio.aclose_forcefully(stream)
        return
    headers, body = error_message(form, http_failure(503), new_request_id())
    lines = [b"HTTP/1.1 503 Service Unavailable", b"connection: close"]
    lines += [name + b": " + value for name, value in headers]
    with trio.move_on_after(1):
        async with refusals:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(b"\r\n".join(lines) + b"\r\n\r\n" + body)
                await stream.send_eof()
                # A request that was never read would turn the close into a reset.
                await stream.receive_some(MAX_HEAD_BYTES)
    await trio.aclose_forcefully(stream)


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    return config
