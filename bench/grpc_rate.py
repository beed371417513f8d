"""Calls a second of a node's gRPC port in a closed loop, beside grpcio's asyncio server.

``python -m bench.grpc_rate [--rounds N] [--seconds S] [--at-once N...]``

The node is a real one, started as a user would start it. The call is ``GetShardInfo``, and the peer
answers the same bytes. One grpcio client keeps one connection to each for the whole run, which is
some minutes and tens of thousands of calls, so a server that takes a busy client for an attacker
fails here: the first call that fails ends the benchmark.

On a machine with other work, a server with more threads gets more of the processors, so the time
that a call takes of them is shown too: it decides the rate where nothing else runs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import grpc.aio
import psutil

from bench.node_process import running_node
from bench.table import BenchRow, throughput_row

METHOD = "/node.NodeService/GetShardInfo"
AT_ONCE = (1, 8, 32, 128)
TARGETS = {32: 0.9}
ROUNDS = 4
SECONDS = 8.0
WARM_S = 1.0
CALL_S = 30.0
GRPC_OFFSET = 1000
"""The gRPC port is the HTTP port plus this (interface 1)."""


async def _answer_of(port: int) -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer: bytes = await channel.unary_unary(METHOD)(b"", timeout=CALL_S)
        return answer


async def _serve(answer: bytes) -> None:
    """Serve ``answer`` with grpcio's asyncio server on a free port, and print the port."""

    async def handle(request: bytes, context: object) -> bytes:
        return answer

    server = grpc.aio.server()
    _, service, operation = METHOD.split("/")
    handlers = {operation: grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@dataclass(frozen=True)
class _Server:
    port: int
    process: psutil.Process

    def spent_s(self) -> float:
        """Processor seconds that it has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass
class _Samples:
    """Of one server with one number of loops."""

    rates: list[float] = field(default_factory=list)
    call_us: list[float] = field(default_factory=list)
    """Processor time of the server for a call, in microseconds."""


@contextmanager
def _peer(answer: bytes) -> Iterator[_Server]:
    command = [sys.executable, "-m", "bench.grpc_rate", "--serve", answer.hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline() if process.stdout else 0)
            yield _Server(port, psutil.Process(process.pid))
        finally:
            process.terminate()


async def _rate(channel: grpc.aio.Channel, at_once: int, seconds: float) -> float:
    """Calls a second of so many loops at once."""
    call = channel.unary_unary(METHOD)
    end = time.monotonic() + seconds

    async def loop() -> int:
        count = 0
        while time.monotonic() < end:
            await call(b"", timeout=CALL_S)
            count += 1
        return count

    return sum(await asyncio.gather(*(loop() for _ in range(at_once)))) / seconds


async def _measure(
    servers: dict[str, _Server], rounds: int, seconds: float, numbers: Sequence[int]
) -> dict[int, dict[str, _Samples]]:
    """The samples of each server, taken in turn, by the number of loops."""
    channels = {
        name: grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
        for name, server in servers.items()
    }
    samples = {at_once: {name: _Samples() for name in servers} for at_once in numbers}
    for channel in channels.values():
        await _rate(channel, numbers[0], WARM_S)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for at_once, of_each in samples.items():
            for name, channel in channels.items():
                before = servers[name].spent_s()
                rate = await _rate(channel, at_once, seconds)
                spent = servers[name].spent_s() - before
                of_each[name].rates.append(rate)
                of_each[name].call_us.append(spent / (rate * seconds) * 1e6)
    for channel in channels.values():
        await channel.close()
    return samples


def run(
    rounds: int = ROUNDS, seconds: float = SECONDS, numbers: Sequence[int] = AT_ONCE
) -> list[BenchRow]:
    """Measure the node and the peer in turn."""
    with running_node() as node:
        port = (urlsplit(node.url).port or 0) + GRPC_OFFSET
        ours = _Server(port, psutil.Process(node.pid))
        with _peer(asyncio.run(_answer_of(port))) as peer:
            samples = asyncio.run(_measure({"ours": ours, "peer": peer}, rounds, seconds, numbers))
    rows = []
    for at_once, of_each in samples.items():
        name = f"gRPC calls in a closed loop, {at_once} at once"
        mine, theirs = of_each["ours"], of_each["peer"]
        target = TARGETS.get(at_once)
        rows.append(throughput_row(name, mine.rates, theirs.rates, target, "calls/s"))
        spent, spent_by_peer = statistics.median(mine.call_us), statistics.median(theirs.call_us)
        rows.append(
            BenchRow(
                f"processor time of such a call, {at_once} at once",
                spent,
                spent_by_peer,
                spent_by_peer / spent,
                target,
                "us",
            )
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure gRPC calls a second.")
    parser.add_argument("--serve", metavar="ANSWER", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each sample")
    parser.add_argument("--at-once", type=int, nargs="+", metavar="N", help="loops at a time")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        asyncio.run(_serve(bytes.fromhex(arguments.serve)))
        return
    for row in run(arguments.rounds, arguments.seconds, arguments.at_once or AT_ONCE):
        peer, ratio = row.peer or 0.0, row.ratio or 0.0
        print(f"{row.name:44} {row.ours:8.0f} {peer:8.0f} {ratio:6.2f} {row.unit}")


if __name__ == "__main__":
    main()
