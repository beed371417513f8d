"""The connection of the last answer, on which the next request may go.

Users of a node keep their connections, and programs that write one answer into another show it only
there. So about two requests of three are sent on a connection that stays open, and the next one
goes on it, however it is authorized. A target may end a connection at any time: one that did so
without saying so once is not asked on a used connection again. Until several reads went well,
nothing else is sent on one, since it could not be sent once more.
"""

import random
import selectors
import socket
import ssl
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import SplitResult

# So many requests go on one connection, so that what a record repeats stays short.
MOST = 3
# A target may give an idle connection up soon.
WITHIN_S = 0.5
# So many reads have to be answered on used connections before anything else is sent on one.
TRUSTED = 3
KEPT_SHARE = 2 / 3


def connection_to(parts: SplitResult, timeout_s: float) -> HTTPConnection:
    """Return a connection to the host of a URL, which is opened by the first request."""
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return HTTPConnection(host, port, timeout=timeout_s)


def _is_readable(sock: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


@dataclass
class Used:
    """An open connection, the commands of the requests that were sent on it, and since when."""

    connection: HTTPConnection
    before: tuple[str, ...]
    since_s: float


class Idle:
    """Keeps one connection at most, and chooses whether the next one is kept."""

    def __init__(self, seed: int) -> None:
        """Choose by this seed."""
        self._drawn = random.Random(seed)  # noqa: S311 - no secret
        self._kept: list[Used] = []
        self._answered = 0
        self._ended = False

    def keeps(self) -> bool:
        """Whether the next request is to leave its connection open."""
        return not self._ended and self._drawn.random() < KEPT_SHARE

    def take(self, *, reads: bool, timeout_s: float) -> Used | None:
        """Return a connection for one more request, or None; no other one stays open."""
        try:
            used = self._kept.pop()
        except IndexError:
            return None
        sock = used.connection.sock
        fits = time.monotonic() < used.since_s + WITHIN_S
        fits = fits and (reads or self._answered >= TRUSTED)
        # Readable is one that the target has ended, or on which it has sent what nobody asked for.
        if sock is None or not fits or _is_readable(sock):
            used.connection.close()
            return None
        sock.settimeout(timeout_s)
        used.connection.timeout = timeout_s
        return used

    def put(self, connection: HTTPConnection, sent: tuple[str, ...], *, kept: bool) -> None:
        """Keep a connection that is free again, unless enough requests were sent on it."""
        if len(sent) > 1:
            self._answered += 1
        spent = self._ended or self._kept or len(sent) >= MOST
        if not kept or spent or connection.sock is None:
            connection.close()
        else:
            self._kept.append(Used(connection, sent, time.monotonic()))

    def end(self) -> None:
        """Keep none any more: one was lost, or the run is over."""
        self._ended = True
        self.close()

    def close(self) -> None:
        """Close what is kept."""
        while self._kept:
            self._kept.pop().connection.close()
