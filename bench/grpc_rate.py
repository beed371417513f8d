"""Calls a second of a node's gRPC port in a closed loop, beside grpcio's asyncio server.

``python -m bench.grpc_rate [--rounds N] [--seconds S]``

The node is a real one, started as a user would start it. The call is ``GetShardInfo``, and the peer
answers the same bytes. One grpcio client keeps one connection to each for the whole run, which is
some minutes and tens of thousands of calls, so a server that takes a busy client for an attacker
fails here: the first call that fails ends the benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import grpc.aio

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


@contextmanager
def _peer(answer: bytes) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.grpc_rate", "--serve", answer.hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline() if process.stdout else 0)
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
    ports: dict[str, int], rounds: int, seconds: float
) -> dict[int, dict[str, list[float]]]:
    """The rates of each server, in turn, by the number of loops."""
    channels = {n: grpc.aio.insecure_channel(f"127.0.0.1:{port}") for n, port in ports.items()}
    rates: dict[int, dict[str, list[float]]] = {n: {"ours": [], "peer": []} for n in AT_ONCE}
    for channel in channels.values():
        await _rate(channel, AT_ONCE[0], WARM_S)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for at_once, of_each in rates.items():
            for name, channel in channels.items():
                of_each[name].append(await _rate(channel, at_once, seconds))
    for channel in channels.values():
        await channel.close()
    return rates


def run(rounds: int = ROUNDS, seconds: float = SECONDS) -> list[BenchRow]:
    """Measure the node and the peer in turn."""
    with running_node() as node:
        ours = (urlsplit(node.url).port or 0) + GRPC_OFFSET
        with _peer(asyncio.run(_answer_of(ours))) as peer:
            rates = asyncio.run(_measure({"ours": ours, "peer": peer}, rounds, seconds))
    return [
        throughput_row(
            f"gRPC calls in a closed loop, {at_once} at once",
            of_each["ours"],
            of_each["peer"],
            TARGETS.get(at_once),
            "calls/s",
        )
        for at_once, of_each in rates.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure gRPC calls a second.")
    parser.add_argument("--serve", metavar="ANSWER", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each sample")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        asyncio.run(_serve(bytes.fromhex(arguments.serve)))
        return
    for row in run(arguments.rounds, arguments.seconds):
        peer, ratio = row.peer or 0.0, row.ratio or 0.0
        print(f"{row.name:44} {row.ours:8.0f} {peer:8.0f} {ratio:6.2f} {row.unit}")


if __name__ == "__main__":
    main()
