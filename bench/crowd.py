"""Many connections at once: how long ``GET /api/v1/status`` takes, beside FastAPI under uvicorn.

``python -m bench crowd``

Each of 256 connections asks again as soon as it is answered, for some seconds; both servers are
asked in turns. A target of 0.5 means at most twice FastAPI's 99th percentile. What bare Quart-Trio
takes, which answers without limits, log and metrics, is measured beside it.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from functools import partial
from urllib.parse import urlsplit

from bench.node_process import running_node
from bench.requests import BARE
from bench.serving import serving
from bench.table import BenchRow, in_turn, percentile

CONNECTIONS = 256
SECONDS = 5.0
ROUNDS = 5
TARGET = 0.5
FILLER = "400"
FASTAPI = """
import sys
import uvicorn
from fastapi import FastAPI

app = FastAPI()
body = {"status": "running", "filler": "x" * 400}

@app.get("/api/v1/status")
async def status():
    return body

uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""


class Client:
    """One connection."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._request = request
        self._answer = b""
        self.ask()

    def ask(self) -> None:
        """Send the request."""
        self._sent = time.monotonic()
        self.socket.send(self._request)

    def read(self) -> float | None:
        """Take what has come; the seconds that the answer took if it is whole now."""
        piece = self.socket.recv(65536)
        if not piece:
            raise RuntimeError("the server closed a connection")
        self._answer += piece
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        if not blank or len(body) < int(head.lower().split(b"content-length:")[1].split()[0]):
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.partition(b"\r\n")[0].decode())
        self._answer = b""
        return time.monotonic() - self._sent


def slowest_ms(url: str, token: str) -> float:
    """The 99th percentile of the time to an answer, in milliseconds."""
    port = urlsplit(url).port or 80
    lines = (
        "GET /api/v1/status HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
    )
    request = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
    clients = [Client(port, request) for _ in range(CONNECTIONS)]
    times: list[float] = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for key, _ in selector.select(1.0):
                if (took := key.data.read()) is not None:
                    times.append(took)
                    key.data.ask()
    for client in clients:
        client.socket.close()
    return 1e3 * percentile(times, 99)


def run() -> list[BenchRow]:
    """Measure the node beside FastAPI, and beside bare Quart-Trio, in turns."""
    name, rows = f"GET /status, {CONNECTIONS} connections, p99", []
    with running_node() as node:
        for source, note, target in (
            ((FASTAPI,), "the peer is FastAPI under uvicorn", TARGET),
            ((BARE, FILLER), "the peer is bare Quart-Trio under Hypercorn", None),
        ):
            with serving(*source) as (port, _):
                mine, other = in_turn(
                    ROUNDS,
                    partial(slowest_ms, node.url, node.token),
                    partial(slowest_ms, f"http://127.0.0.1:{port}", "none"),
                )
            ours, peer = statistics.median(mine), statistics.median(other)
            rows.append(BenchRow(name, ours, peer, peer / ours, target, "ms", note))
    return rows
