"""The cost of HTTP, measured from outside, with a new node or one that is already running.

``python -m bench.http [--url http://127.0.0.1:8000 --token TOKEN] [--json FILE]``

It measures the tokens per second of many streams together, compared with one stream alone and with
a batch of ``transformers`` with the same random weights; the latency of ``/health`` meanwhile; and
the delay between the computation of a first token and its arrival. The measurements take turns in
every round, so that a slower machine affects all of them; figures are medians over the
rounds. The node's rate limits must allow the load.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import torch
import trio

from bench.node_process import running_node
from bench.peer_process import peer_process
from bench.random_model import THREADS, Peer, random_model
from bench.table import BenchRow, latency_row, percentile, throughput_row
from meshnode.model.files import TOKENIZER_FILE
from meshnode.model.tokenizer import Tokenizer

STREAMS = 8
TOKENS = 64
ROUNDS = 5
PROMPT = "Once upon a time there was a small machine. " * 4

MIN_GAIN = 3.0
MIN_SHARE_OF_PEER = 1.0
HEALTH_P99_MS = 50.0
FIRST_MS = 10.0

HEALTH_EVERY_S = 0.01
FIRST_TOKEN_REPEATS = 5
ROUND_S = 300.0
"""Time after which the benchmark gives up on a round."""


@dataclass(frozen=True)
class Load:
    """The load on the node."""

    streams: int
    tokens: int
    prompt: str


class Node:
    """The node under measurement."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._token = token

    async def stream(self, load: Load) -> AsyncIterator[float]:
        """Yield the arrival time of each token event of one stream."""
        body = {"prompt": load.prompt, "max_tokens": load.tokens, "temperature": 0, "stream": True}
        pending = b""
        async for data in self._exchange("POST", "/api/v1/inference", body):
            now = trio.current_time()
            *events, pending = (pending + data).split(b"\n\n")
            for event in events:
                if b'"error"' in event:
                    raise SystemExit(f"the stream broke off: {event.decode()}")
                if b'"index"' in event:
                    yield now

    async def generate(self, load: Load) -> dict[str, Any]:
        """Return one inference result."""
        body = {"prompt": load.prompt, "max_tokens": load.tokens, "temperature": 0}
        parts = [part async for part in self._exchange("POST", "/api/v1/inference", body)]
        result: dict[str, Any] = json.loads(b"".join(parts))
        return result

    async def health_ms(self) -> float:
        """Return the milliseconds of one health request, including its connection."""
        started = trio.current_time()
        async for _ in self._exchange("GET", "/api/v1/health"):
            pass
        return (trio.current_time() - started) * 1e3

    async def _exchange(self, method: str, path: str, body: object = None) -> AsyncIterator[bytes]:
        http = h11.Connection(h11.CLIENT)
        content = b"" if body is None else json.dumps(body).encode()
        headers = [("Host", self._host), ("Authorization", f"Bearer {self._token}")]
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        request = http.send(h11.Request(method=method, target=path, headers=headers))
        request += http.send(h11.Data(data=content)) + http.send(h11.EndOfMessage())
        async with await trio.open_tcp_stream(self._host, self._port) as connection:
            await connection.send_all(request)
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await connection.receive_some(65536))
                elif isinstance(event, h11.Response) and event.status_code != 200:
                    raise SystemExit(f"{method} {path}: status {event.status_code}")
                elif isinstance(event, h11.Data):
                    yield bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    return


async def tokens_per_second(node: Node, load: Load, streams: int) -> float:
    """Return tokens per second of ``streams`` streams at once, from first request to last token."""
    count = 0

    async def read_one() -> None:
        nonlocal count
        async for _ in node.stream(load):
            count += 1

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(streams):
            nursery.start_soon(read_one)
    return count / (trio.current_time() - started)


async def health_while(node: Node, work: Callable[[], Awaitable[None]]) -> list[float]:
    """Return the milliseconds of each health request while ``work`` runs."""
    times: list[float] = []

    async def ask() -> None:
        while True:
            times.append(await node.health_ms())
            await trio.sleep(HEALTH_EVERY_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await work()
        nursery.cancel_scope.cancel()
    return times


async def first_token_delays(node: Node, load: Load) -> list[float]:
    """Return the milliseconds by which a first event is later than the node's computation of it."""
    delays = []
    for _ in range(FIRST_TOKEN_REPEATS):
        computed = (await node.generate(Load(1, 1, load.prompt)))["timing"]["inference_ms"]
        started = trio.current_time()
        arrivals = [at async for at in node.stream(Load(1, 1, load.prompt))]
        delays.append((arrivals[0] - started) * 1e3 - computed)
    return delays


async def measure(
    node: Node, load: Load, rounds: int, theirs: Callable[[], float] | None = None
) -> list[BenchRow]:
    """Run all measurements in turn, ``rounds`` times; ``theirs`` measures the peer's batch."""
    one, many, quiet, busy, delays, peer = [], [], [], [], [], []
    await tokens_per_second(node, Load(1, 4, load.prompt), 1)  # warm-up
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        with trio.fail_after(ROUND_S):
            one.append(await tokens_per_second(node, load, 1))

            async def together() -> None:
                many.append(await tokens_per_second(node, load, load.streams))

            busy += await health_while(node, together)
            if theirs is not None:
                peer.append(await trio.to_thread.run_sync(theirs))
            quiet += [await node.health_ms() for _ in range(50)]
            delays += await first_token_delays(node, load)
    clients = f"{load.streams} SSE clients"
    beside = [
        throughput_row(
            f"{clients}, vs transformers batch", many, peer, MIN_SHARE_OF_PEER, "token/s"
        )
    ]
    return [
        BenchRow("1 SSE client", statistics.median(one), None, None, None, "token/s"),
        *(beside if peer else []),
        throughput_row(f"{clients}, vs one client", many, one, MIN_GAIN, "token/s"),
        latency_row("/health while generating, p99", [percentile(busy, 99)], HEALTH_P99_MS, "ms"),
        latency_row("/health while generating, p50", busy, HEALTH_P99_MS, "ms"),
        latency_row("/health of an idle node, p50", quiet, HEALTH_P99_MS, "ms"),
        # A delay can be negative, since its two times are from different requests.
        latency_row("first SSE token after its computation", at_least(0.1, delays), FIRST_MS, "ms"),
    ]


def at_least(floor: float, values: list[float]) -> list[float]:
    """Return the values, each raised to ``floor`` if it is below."""
    return [max(floor, value) for value in values]


def run(load: Load = Load(STREAMS, TOKENS, PROMPT), rounds: int = ROUNDS) -> list[BenchRow]:
    """Measure a new node, beside a peer with the same weights."""
    torch.set_num_threads(THREADS)
    with random_model() as directory, peer_process(Peer, directory) as peer:
        prompt = Tokenizer.read(directory / TOKENIZER_FILE).encode(load.prompt)
        theirs = partial(peer.call, "tokens_per_second", prompt, load.streams, load.tokens)
        with running_node(str(directory), THREADS) as node:
            return trio.run(measure, Node(node.url, node.token), load, rounds, theirs)


def main() -> None:
    """Measure the node at ``--url``, or a new one; print the table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description="Measure the cost of HTTP.")
    parser.add_argument("--url", help="URL of a running node; without it, a node is started")
    parser.add_argument("--token", default="", help="bearer token for the node at --url")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = Load(options.streams, options.tokens, PROMPT)
    if options.url:
        rows = trio.run(measure, Node(options.url, options.token), load, options.rounds)
    else:
        rows = run(load, options.rounds)
    for row in rows:
        against = "" if row.ratio is None else f"{row.peer:9.1f} {row.ratio:7.2f} x"
        verdict = {None: "", True: "met", False: "MISSED"}[row.met]
        print(f"{row.name:40} {row.ours:9.1f} {row.unit:9} {against:20} {verdict}")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
