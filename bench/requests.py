"""Processor time of small requests, beside an application that does nothing but answer.

``python -m bench requests``

The node serves ``GET /api/v1/status`` with rate limits, log line and metrics on. The peer is a bare
Quart-Trio application under Hypercorn that answers a JSON object of the same size. Both are asked
over one connection, in turns. Processor time depends less on other programs than time does. What
the node does by itself meanwhile is measured before, and subtracted.

A transfer through ``POST /rpc`` (``broadcast_tx_sync``) is measured against a limit: the time of a
node that makes the blocks itself, with everything until the transfer is in a block on the disk. The
peer is the same bare application, which answers that path with a fixed result.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psutil

from bench.node_process import RunningNode, running_node
from bench.serving import serving
from bench.table import BenchRow, in_turn, latency_row
from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.identity import key_from_seed

PATH = "/api/v1/status"
REQUESTS = 500
TRANSFERS = 400
TOGETHER, BLOCK_S = 80, 1.5
"""An account may have a hundred transactions waiting for a block, so there are pauses for one."""
TRANSFER_MS = 1.5
TO = key_from_seed("11" * 32).public_key
ROUNDS = 5
IDLE_S = 4.0
TARGET = 1 / 1.05
BARE = """
import sys
from functools import partial
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart import request
from quart_trio import QuartTrio

app = QuartTrio(__name__)
body = {"status": "running", "filler": "x" * int(sys.argv[2])}

@app.route("/api/v1/status")
async def status():
    return body

@app.route("/rpc", methods=["POST"])
async def rpc():
    asked = await request.get_json(force=True)
    return {"jsonrpc": "2.0", "id": asked["id"], "result": {"code": 0, "filler": "x" * 100}}

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

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of one answer."""
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        found = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} is answered with {answer.status}: {found[:200]!r}")
        return found

    def status_ms(self) -> float:
        """Milliseconds of processor time of a status request."""
        return self._cost_ms(partial(self.ask, "GET", PATH), REQUESTS)

    def transfer_ms(self, transfers: Iterator[bytes]) -> float:
        """Milliseconds of processor time of a transfer, which must be accepted."""
        # They are signed beforehand, by this process.
        bodies = list(itertools.islice(transfers, TRANSFERS))

        def send() -> None:
            if len(bodies) % TOGETHER == 0:
                time.sleep(BLOCK_S)
            result = json.loads(self.ask("POST", "/rpc", bodies.pop(0)))["result"]
            if result["code"]:
                raise RuntimeError(f"a transfer is refused: {result}")

        return self._cost_ms(send, TRANSFERS)

    def _cost_ms(self, ask: Callable[[], object], times: int) -> float:
        before, begun = self._used(), time.monotonic()
        for _ in range(times):
            ask()
        idle = self._idle * (time.monotonic() - begun)
        return 1e3 * (self._used() - before - idle) / times

    def _used(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


def transfers(node: RunningNode) -> Iterator[bytes]:
    """Bodies of calls that transfer an atom from the node's account to another one."""
    key = json.loads((node.data_dir / "key.json").read_text())
    account = _get(node, f"/api/account?public_key={key['public_key']}")
    chain_id = _get(node, "/api/network")["chain_id"]
    for nonce in itertools.count(account["nonce"]):
        body = {"kind": "transfer", "chain_id": chain_id, "nonce": nonce, "to": TO, "amount": 1}
        signed = base64.b64encode(encode(sign_envelope(body, key["seed"]))).decode()
        call = {"jsonrpc": "2.0", "id": nonce, "method": "broadcast_tx_sync"}
        yield json.dumps({**call, "params": {"tx": signed}}).encode()


def _get(node: RunningNode, path: str) -> Any:
    with urllib.request.urlopen(node.url + path) as answer:  # noqa: S310 - our own node
        return json.load(answer)


def run() -> list[BenchRow]:
    """Measure the node and the bare application in turns."""
    with running_node() as node:
        ours = Asked(node.url, node.pid, node.token)
        # The answers have about the same length.
        filler = str(max(0, len(ours.ask("GET", PATH)) - 40))
        with serving(BARE, filler) as (port, pid):
            peer = Asked(f"http://127.0.0.1:{port}", pid, "none")
            ours.measure_idle()
            mine, theirs = in_turn(ROUNDS, ours.status_ms, peer.status_ms)
            spent, bare = in_turn(
                ROUNDS,
                partial(ours.transfer_ms, transfers(node)),
                partial(peer.transfer_ms, transfers(node)),
            )
    return [
        _row("GET /status", mine, theirs, TARGET, "processor time; the peer is bare Quart-Trio"),
        latency_row("a transfer through /rpc, processor time", spent, TRANSFER_MS, "ms"),
        _row("the same", spent, bare, None, "the peer answers it without looking at it"),
    ]


def _row(
    name: str, mine: list[float], theirs: list[float], target: float | None, note: str
) -> BenchRow:
    ours, peer = statistics.median(mine), statistics.median(theirs)
    return BenchRow(name, ours, peer, peer / ours, target, "ms", note)
