"""Accepting connections: neither a flood nor a shortage of descriptors ends a listener.

trio's own loop starts a task for each connection before anybody has looked at it, and writes a
traceback ten times a second while there are no descriptors. Here a connection of an address that
opens them too fast is closed at once, which costs some microseconds (decision 0127), and a shortage
is logged once a minute (decision 0126).

Invariants: each accepted socket is either closed here or passed to ``serve``, which owns it from
then on; only an error of the listening socket itself ends the loop.
"""

from __future__ import annotations

import errno
import logging
import resource
import select
import socket
from collections.abc import Awaitable, Callable, Sequence

import trio

from meshnode.domain.connections import is_here
from meshnode.domain.errors import StartupError
from meshnode.domain.ratelimit import Rate, RateLimit, address_key
from meshnode.domain.shortage import SHORTAGES

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Connections accepted before other tasks run again: some milliseconds' worth."""
REFUSED_PAUSE_S = 0.01
"""No connection is accepted for so long after one that came too fast. So a flood of them takes a
twentieth of a processor, and whoever connects meanwhile waits in the system's queue."""
BACKLOG = 256
SHORTAGE_PAUSE_S = 0.1
KEPT_FREE = 32
"""Descriptors that no accepted connection takes, for files and the ledger. The shares of the
listeners leave more (decision 0124), but a limit may be lowered while the node runs."""
SAY_AGAIN_S = 60.0
_LISTENER_IS_GONE = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})
"""Any other error is a shortage, or concerns only the connection that was to be accepted: see
accept(2)."""


class AddressRate:
    """How fast one address may do something. Addresses of this machine may at any rate."""

    def __init__(self, rate: Rate, exempt: Callable[[str], bool] = lambda ip: False) -> None:
        """Admit ``rate`` from each address, and any rate from those that are exempt."""
        self._limit = RateLimit(rate)
        self._exempt = exempt

    def admits(self, ip: str) -> bool:
        """Whether another one from this address is welcome now. Counts it if so."""
        if is_here(ip) or self._exempt(ip):
            return True
        return self._limit.wait(address_key(ip), trio.current_time()) == 0.0


async def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of ``host``, on one and the same port; port 0 takes a free one.

    Never with SO_REUSEPORT: a taken port is an error. Raises :class:`StartupError` in one line.
    """
    try:
        opened = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    except socket.gaierror:
        raise StartupError(f"cannot listen on {host}: there is no such address") from None
    except OSError as error:
        # With several addresses, the first cause is the one that the operator can act on.
        code = error.errno or getattr(error.__cause__, "errno", None)
        if code == errno.EADDRINUSE:
            raise StartupError(f"port {port} is already in use on {host}") from None
        reason = error.strerror or str(error)
        raise StartupError(f"cannot listen on port {port} of {host}: {reason}") from None
    listeners = [socket.socket(fileno=listener.socket.detach()) for listener in opened]
    if port == 0:
        # Each address has a free port of its own, and only one can be told.
        for listener in listeners[1:]:
            listener.close()
        del listeners[1:]
    return listeners


async def accept_connections(
    listeners: Sequence[socket.socket],
    serve: Callable[[trio.SocketStream], Awaitable[None]],
    rate: AddressRate,
    *,
    handlers: trio.Nursery,
) -> None:
    """Accept until cancelled; start ``serve`` in ``handlers`` for each connection.

    The listening sockets must not block. They stay open.
    """
    shortages = _Shortages()
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(_accept_on, listener, serve, rate, handlers, shortages)


async def _accept_on(
    listener: socket.socket,
    serve: Callable[[trio.SocketStream], Awaitable[None]],
    rate: AddressRate,
    handlers: trio.Nursery,
    shortages: _Shortages,
) -> None:
    while True:
        await trio.lowlevel.wait_readable(listener)
        refused = False
        for _ in range(AT_ONCE):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _LISTENER_IS_GONE:
                    raise
                if error.errno in SHORTAGES:
                    shortages.note(error.strerror or "a shortage")
                    await trio.sleep(SHORTAGE_PAUSE_S)
                continue
            if _is_among_last(sock):
                shortages.note("the last descriptors are kept for files")
                sock.close()
            elif rate.admits(str(address[0])):
                handlers.start_soon(serve, _stream(sock))
            else:
                refused = True
                sock.close()
        await trio.sleep(REFUSED_PAUSE_S if refused else 0)


def has_left(descriptor: int) -> bool:
    """Whether the peer of a connected socket has closed it, or its sending side.

    Bytes that it sent before hide nothing. Only Linux tells; elsewhere this is False until the
    connection has been reset.
    """
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def _is_among_last(sock: socket.socket) -> bool:
    """Whether few descriptors are left; the system always gives the lowest that is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and sock.fileno() >= limit - KEPT_FREE


def _stream(sock: socket.socket) -> trio.SocketStream:
    sock.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


class _Shortages:
    """Logs that not all connections can be served, at most once a minute."""

    def __init__(self) -> None:
        self._said_at = -SAY_AGAIN_S

    def note(self, reason: str) -> None:
        now = trio.current_time()
        if now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            log.error("cannot serve all connections: %s", reason)
