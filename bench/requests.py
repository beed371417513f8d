"""Processor time of small requests, beside an application that does nothing but answer.

``python -m bench requests``

The node serves ``GET /api/v1/status`` with rate limits, log line and metrics on. The peer is a bare
Quart-Trio application under Hypercorn that answers a JSON object of the same size. Both are asked
over one connection, in turns. Processor time depends less on other programs than time does. What
the node does by itself meanwhile is measured before, and subtracted.
"""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

import psutil

from bench.node_process import running_node
from bench.serving import serving
from bench.table import BenchRow, in_turn

REQUESTS = 500
ROUNDS = 5
IDLE_S = 4.0
TARGET = 1 / 1.05
BARE = """
import sys
from functools import partial
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart_trio import QuartTrio

app = QuartTrio(__name__)
body = {"status": "running", "filler": "x" * int(sys.argv[2])}

@app.route("/api/v1/status")
async def status():
    return body

config = Config()
config.bind = [f"127.0.0.1:{sys.argv[1]}"]
trio.run(partial(serve, app, config))
"""


class Asked:
    """A server process that is asked over one connection."""

    def __init__(self, url: str, pid: int, token: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._process = psutil.Process(pid)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._idle = 0.0

    def measure_idle(self) -> None:
        """Measure what the process does by itself, as a share of one processor."""
        before, begun = self._used(), time.monotonic()
        time.sleep(IDLE_S)
        self._idle = (self._used() - before) / (time.monotonic() - begun)

    def length(self) -> int:
        """The length of one answer."""
        self._connection.request("GET", "/api/v1/status", headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"/api/v1/status is answered with {answer.status}")
        return len(body)

    def cost_ms(self) -> float:
        """Milliseconds of processor time of a request."""
        before, begun = self._used(), time.monotonic()
        for _ in range(REQUESTS):
            self.length()
        idle = self._idle * (time.monotonic() - begun)
        return 1e3 * (self._used() - before - idle) / REQUESTS

    def _used(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


def run() -> list[BenchRow]:
    """Measure the node and the bare application in turns."""
    with running_node() as node:
        ours = Asked(node.url, node.pid, node.token)
        # The answers have about the same length.
        filler = str(max(0, ours.length() - 40))
        with serving(BARE, filler) as (port, pid):
            peer = Asked(f"http://127.0.0.1:{port}", pid, "none")
            ours.measure_idle()
            mine, theirs = (sorted(x) for x in in_turn(ROUNDS, ours.cost_ms, peer.cost_ms))
    middle = ROUNDS // 2
    ratio = theirs[middle] / mine[middle]
    note = "processor time; the peer is bare Quart-Trio under Hypercorn"
    row = BenchRow("GET /status", mine[middle], theirs[middle], ratio, TARGET, "ms", note)
    return [row]
