"""The socket of a connection of the HTTP port, without TLS.

Between two requests nothing is to be read, and an answer nearly always fits what the kernel takes.
Trio's own sockets try to read before they wait, and give up their turn after each call; here a
socket waits before it reads, and sends before it waits.
"""

from __future__ import annotations

import socket
from contextlib import suppress

import trio


class PlainSocket:
    """The methods of a trio socket that a connection uses."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        sock.setblocking(False)
        self._sock = sock
        self.family = sock.family
        self.shutdown, self.fileno = sock.shutdown, sock.fileno
        self.getpeername, self.getsockname = sock.getpeername, sock.getsockname

    async def recv(self, size: int) -> bytes:
        """The next bytes; nothing at the end. Raises ClosedResourceError on a closed socket."""
        while self._sock.fileno() >= 0:
            await trio.lowlevel.wait_readable(self._sock)
            with suppress(BlockingIOError):
                return self._sock.recv(size)
        raise trio.ClosedResourceError

    def send_now(self, data: bytes) -> int:
        """Send what the kernel takes at this moment, and return how many bytes that were."""
        with suppress(BlockingIOError):
            return self._sock.send(data)
        return 0

    async def send(self, data: memoryview) -> int:
        """Send some bytes, and return how many. Raises ClosedResourceError on a closed socket."""
        while self._sock.fileno() >= 0:
            await trio.lowlevel.wait_writable(self._sock)
            with suppress(BlockingIOError):
                return self._sock.send(data)
        raise trio.ClosedResourceError

    def close(self) -> None:
        """Release the socket; whoever waits for it is woken."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
        self._sock.close()
