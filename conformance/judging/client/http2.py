"""A connection that only pings: enough of HTTP/2 for that, and no more.

Invariant: when a method returns, whoever reads the connection's frames has read this one.
"""

import socket

from conformance.peer.tap import ACK, PING, PREFACE

SETTINGS = 4
_HEAD = 9


class PingingConnection:
    """Opened by the constructor. `closed` says whether either side has ended it."""

    def __init__(self, host: str, port: int) -> None:
        """Connect and greet."""
        self._socket = socket.create_connection((host, port), timeout=30)
        self._socket.sendall(PREFACE + _frame(SETTINGS))
        self.closed = False
        self._read_until(SETTINGS, ack=True)

    def ping(self, *, answered: bool) -> None:
        """Send a ping; `answered` says whether an answer may be waited for."""
        self._socket.sendall(_frame(PING, payload=b"toy-ping"))
        if answered:
            self._read_until(PING, ack=True)
            return
        # The answers to settings come after those to pings, and nobody withholds them.
        self._socket.sendall(_frame(SETTINGS))
        self._read_until(SETTINGS, ack=True)

    def close(self) -> None:
        """End it, and wait until the other side has seen that."""
        if self.closed:
            return
        self.closed = True
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(4096):
                pass
        except OSError:
            pass
        self._socket.close()

    def _read_until(self, kind: int, *, ack: bool) -> None:
        while True:
            head = self._take(_HEAD)
            self._take(int.from_bytes(head[:3], "big"))
            if head[3] == SETTINGS and not head[4] & ACK:
                self._socket.sendall(_frame(SETTINGS, ACK))
            if head[3] == kind and bool(head[4] & ACK) == ack:
                return

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the peer hung up")
            data += more
        return data


def _frame(kind: int, flags: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags, 0, 0, 0, 0]) + payload
