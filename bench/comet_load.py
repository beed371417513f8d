"""A load for consensus engines: connections that each send one transaction after another.

One thread serves all connections with as little work for each call as possible, so that it takes a
small part of what an engine does for the same transaction.
"""

from __future__ import annotations

import base64
import hashlib
import os
import selectors
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from spec_tests.domain.chain.net import CHAIN_ID, actor

CONNECTIONS = 16
ACCOUNTS = 400
SAMPLE = 20
"""Of so many transactions of a connection, one is followed into its block."""
HEAD = b"POST / HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n"
BODY = b'{"jsonrpc":"2.0","id":1,"method":"broadcast_tx_sync","params":{"tx":"%s"}}'


class Connection:
    """One connection to an engine, with at most one call in flight."""

    def __init__(self, path: Path, transactions: list[bytes]) -> None:
        """Connect to the socket ``path``."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(path.parent, os.O_RDONLY)
        self.socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        self.sent_at = 0.0
        self.sent = 0
        self.sampled: list[tuple[bytes, int]] = []
        """Some of the transactions, and when each was sent: nanoseconds since 1970."""
        self._transactions = transactions
        self._requests = [_request(raw) for raw in transactions]
        self._kept = b""

    def send(self) -> bool:
        """Send the next call; False if there is none."""
        if self.sent == len(self._requests):
            return False
        if self.sent % SAMPLE == 0:
            self.sampled.append((self._transactions[self.sent], time.time_ns()))
        self.sent_at = time.monotonic()
        self.socket.sendall(self._requests[self.sent])
        self.sent += 1
        return True

    def receive(self) -> bytes:
        """The body of the answer; empty while it is incomplete."""
        self._kept += self.socket.recv(65536)
        head, found, rest = self._kept.partition(b"\r\n\r\n")
        if not found:
            return b""
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return b""
        self._kept = rest[length:]
        return rest[:length]


class Load:
    """CONNECTIONS connections, spread over some engines."""

    def __init__(self, paths: list[Path], transactions: list[list[bytes]]) -> None:
        """``transactions`` has a list for each connection."""
        self.accepted = self.refused = 0
        self.is_dry = False
        """Whether a connection had no more transactions to send."""
        self._waits: list[float] = []
        self._connections = [
            Connection(paths[index % len(paths)], one) for index, one in enumerate(transactions)
        ]

    @property
    def median_s(self) -> float:
        """Seconds from a call to its answer."""
        return statistics.median(self._waits)

    @property
    def sampled(self) -> list[tuple[bytes, int]]:
        """Some of the transactions, and when each was sent: nanoseconds since 1970."""
        return [sample for one in self._connections for sample in one.sampled]

    def run(self, seconds: float, enough: Callable[[], bool]) -> float:
        """Send for some seconds, and on until ``enough``; returns the seconds that it took."""
        begun = time.monotonic()
        look = begun + seconds
        with selectors.EpollSelector() as waiting:
            for one in self._connections:
                waiting.register(one.socket, selectors.EVENT_READ, one)
                one.send()
            going = True
            while waiting.get_map():
                if going and time.monotonic() > look:
                    going, look = not enough(), time.monotonic() + 1
                for key, _ in waiting.select():
                    self._take(key.data, going and not self.is_dry, waiting)
        return time.monotonic() - begun

    def _take(self, one: Connection, going: bool, waiting: selectors.BaseSelector) -> None:
        answer = one.receive()
        if not answer:
            return
        self._waits.append(time.monotonic() - one.sent_at)
        if b'"code":0' in answer:
            self.accepted += 1
        else:
            self.refused += 1
        if going and one.send():
            return
        self.is_dry = self.is_dry or going
        waiting.unregister(one.socket)

    def close(self) -> None:
        """Close the connections."""
        for one in self._connections:
            one.socket.close()


def _request(raw: bytes) -> bytes:
    body = BODY % base64.b64encode(raw)
    return HEAD % len(body) + body


def transfers(count: int) -> list[list[bytes]]:
    """Signed transfers; each account's go through one connection, in order."""
    accounts = [actor(f"sender {index}") for index in range(ACCOUNTS)]
    to = actor("receiver").key
    lists: list[list[bytes]] = [[] for _ in range(CONNECTIONS)]
    for number in range(count):
        index, nonce = number % ACCOUNTS, number // ACCOUNTS
        body = {"kind": "transfer", "chain_id": CHAIN_ID, "nonce": nonce, "to": to, "amount": 1}
        lists[index % CONNECTIONS].append(accounts[index].sign(body))  # type: ignore[arg-type]
    return lists


def pairs(count: int) -> list[list[bytes]]:
    """Transactions of ``kvstore`` that are as long as a transfer."""
    lists: list[list[bytes]] = [[] for _ in range(CONNECTIONS)]
    for number in range(count):
        name = hashlib.sha256(str(number).encode()).hexdigest()
        lists[number % CONNECTIONS].append(f"{name}={name * 5}".encode())
    return lists
