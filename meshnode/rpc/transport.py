"""One TCP connection of the gRPC interface: bytes in, bytes out, counted.

``write`` never waits: it passes the kernel as much as it accepts and buffers the rest. So a
cancelled task cannot cut a frame in two, and a small answer leaves without waking another task.
Tasks that write large amounts wait for :meth:`Transport.wait_room` first.

Invariants: bytes leave in the order of the calls of ``write``; the meter counts the bytes that the
kernel accepted and delivered; after :meth:`Transport.abort` nothing is buffered, and the reader
sees the end; once either side has ended, no task waits for room.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from meshnode.accepting import has_left
from meshnode.domain.kademlia.address import canonical
from meshnode.domain.kademlia.refusals import NotAnAddress
from meshnode.tls import handshake, say_goodbye, wrap

if TYPE_CHECKING:
    from meshnode.domain.metering import TrafficMeter

LARGE_READ = 256 * 1024
"""Size of one read of message bytes. Larger reads are no faster."""
SMALL_READ = 16 * 1024
"""Size of any other read: it is parsed before other tasks run, and small frames cost most."""
PROBE_AFTER_S = 30
PROBE_EVERY_S = 10
PROBES = 3
"""TCP keepalive probes, which detect a vanished machine after about a minute."""


class Transport:
    """A connected socket. One task reads; any task writes."""

    def __init__(
        self,
        sock: socket.socket,
        traffic: TrafficMeter,
        *,
        stall_s: float,
        tls: ssl.SSLContext | None = None,
        server_side: bool = False,
    ) -> None:
        """Take over a connected TCP socket. ``stall_s`` limits the wait for the peer to read.

        With ``tls``, :meth:`shake_hands` comes before anything else. Raises OSError.
        """
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", PROBE_AFTER_S),
            ("TCP_KEEPINTVL", PROBE_EVERY_S),
            ("TCP_KEEPCNT", PROBES),
        ):
            # Some systems lack one of the three options; they use their own default for it.
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self.peer = endpoint(sock.getpeername())
        self.here = endpoint(sock.getsockname())[0]
        self._tls = None if tls is None else wrap(sock, tls, server_side=server_side)
        self._sock = sock if self._tls is None else self._tls
        self.traffic = traffic
        """Counts what passes here."""
        self._stall_s = stall_s
        self._unsent: deque[memoryview] = deque()
        self._source: Callable[[], bytes] | None = None
        self._wake = trio.Event()
        self._room = trio.lowlevel.ParkingLot()
        self._closed = False
        self.pending = 0
        """Bytes written that the kernel has not accepted yet."""
        self.moved = 0
        """Bytes that the kernel has accepted and delivered."""
        self.broken = False
        traffic.active_connections += 1

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self._tls is not None

    @property
    def left(self) -> bool:
        """Whether the peer has closed the connection, as far as that can be seen unread."""
        return has_left(self._sock.fileno())

    async def shake_hands(self) -> None:
        """Shake hands if there is TLS; the caller sets the deadline. Raises OSError."""
        if self._tls is not None:
            await handshake(self._tls)

    async def receive(self, size: int = LARGE_READ) -> bytes:
        """The next bytes, at most ``size``; empty when the connection has ended for any reason."""
        while not self.broken:
            if self._tls is not None and self._tls.pending():
                # The rest of a record has been read already, so nothing need become readable.
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._sock)
            try:
                data = self._sock.recv(size)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            except OSError:
                return b""
            self.traffic.bytes_received += len(data)
            self.moved += len(data)
            return data
        return b""

    def write(self, data: bytes) -> None:
        """Send ``data``, or buffer it until the kernel accepts it."""
        if self.broken or self._closed or not data:
            return
        sent = 0 if self._unsent else self._send(data)
        if sent < len(data) and not self.broken:
            self._unsent.append(memoryview(data)[sent:])
            self.pending += len(data) - sent
            self._wake.set()

    def write_soon(self, source: Callable[[], bytes]) -> None:
        """Send what ``source`` gives once the tasks that are ready now have run.

        So the answers of many calls leave together. Anything that is written until then leaves
        first. Only the latest ``source`` is asked, so a caller gives the same one each time.
        """
        if self._unsent:
            # The kernel takes nothing at present, so the bytes have to be counted.
            self.write(source())
        else:
            self._source = source
            self._wake.set()

    async def wait_room(self, limit: int) -> None:
        """Wait until at most ``limit`` bytes are pending, or nothing can be sent any more."""
        while self.pending > limit and not self.broken:
            await self._room.park()

    async def run_writer(self) -> None:
        """Send buffered bytes. Runs as long as the connection."""
        while not self.broken:
            await self._wake.wait()
            self._wake = trio.Event()
            if self._source is not None:
                source, self._source = self._source, None
                self.write(source())
            while self._unsent:
                with trio.move_on_after(self._stall_s) as stalled:
                    await trio.lowlevel.wait_writable(self._sock)
                if stalled.cancelled_caught:
                    self.abort()
                if self.broken:
                    # The connection was aborted, here or meanwhile; nothing is left to send.
                    return
                chunk = self._unsent[0]
                sent = self._send(chunk)
                if self.broken:
                    return
                if sent == len(chunk):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = chunk[sent:]
                self.pending -= sent
                self._room.unpark_all()

    async def drain(self) -> None:
        """Shut down the sending side, and read until the peer has shut down its own."""
        if self.broken or self._closed:
            return
        if self._tls is not None:
            say_goodbye(self._tls)
        with contextlib.suppress(OSError):
            # TLS's own method would read what still comes in as if it were not encrypted.
            socket.socket.shutdown(self._sock, socket.SHUT_WR)
        while await self.receive():
            pass

    def abort(self) -> None:
        """Abandon the connection and wake the reader and all waiting writers."""
        if self.broken or self._closed:
            return
        self.broken = True
        self._unsent.clear()
        self.pending = 0
        self._room.unpark_all()
        self._wake.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the socket. Nobody may be reading or writing."""
        if self._closed:
            return
        self._closed = self.broken = True
        self._room.unpark_all()
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()
        self.traffic.active_connections -= 1

    def _send(self, data: bytes | memoryview) -> int:
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            return 0
        except OSError:
            self.abort()
            return 0
        self.traffic.bytes_sent += sent
        self.moved += sent
        return sent


def endpoint(name: Any) -> tuple[str, int]:
    """One end of a socket as IP and port; the IP is empty if it is not an internet address."""
    if not isinstance(name, tuple):
        return "", 0
    try:
        return canonical(name[0]), int(name[1])
    except NotAnAddress:
        return "", 0
