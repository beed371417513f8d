"""The cost of a gRPC call: our server and our hop, beside grpcio's asyncio server.

``python -m bench.grpc [--json FILE]``

Servers run in processes of their own. Every round takes samples of both in turn with the same
grpcio client, so that the state of the machine affects both alike. A ratio above 1 means that ours
is better. A *hop* is one ``PipelineForward`` of the hidden state of one token, [1, 1, 768] in
float32, from our client to our server: the cost of each shard that a token visits. In a pipeline,
calls do not follow one another at once: weights are read in between, which evicts the code from the
caches. The rows *after a pause* measure such calls, ours and the peer's. The rates of calls in a
closed loop are those of ``bench.grpc_rate``, on a real node.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import trio

from bench import grpc_rate
from bench.table import BenchRow, latency_row, percentile
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.node_grpc import NodeServiceServicer, NodeServiceStub
from meshnode.rpc.server import serve_grpc
from meshnode.wire import node_pb2 as pb

METHOD = "/node.NodeService/PipelineForward"
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
HIDDEN_BYTES = 768 * 4
LARGE_BYTES = 16 * 1024 * 1024
ROUNDS = 10
SMALL_CALLS = 200
LARGE_CALLS = 3
HOP_MS = 1.5
CALL_S = 30.0
PAUSED_CALLS = 30
PAUSE_BYTES = 64 * 1024 * 1024
"""Bytes read and written before each call *after a pause*: more than the caches hold."""


class Echo(NodeServiceServicer):
    """Sends hidden states back."""

    async def PipelineForward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineForwardRequest
    ) -> pb.PipelineForwardResponse:
        """Return the hidden states of the request."""
        return pb.PipelineForwardResponse(hidden_states=input_message.hidden_states, success=True)


async def serve_ours() -> None:
    """Serve on a free port and print it."""
    async with trio.open_nursery() as nursery:
        serve = partial(serve_grpc, [Echo().service], "127.0.0.1", 0, traffic=TrafficMeter())
        _, port = await nursery.start(serve)
        print(port, flush=True)


async def serve_peer() -> None:
    """Serve the same with grpcio's asyncio server."""

    async def forward(
        request: pb.PipelineForwardRequest, context: Any
    ) -> pb.PipelineForwardResponse:
        return pb.PipelineForwardResponse(hidden_states=request.hidden_states, success=True)

    await serve_by_grpcio(forward)


async def serve_by_grpcio(forward: Callable[[Any, Any], Any]) -> None:
    """Serve PipelineForward with a coroutine function on a free port, and print the port."""
    handler = grpc.unary_unary_rpc_method_handler(
        forward, pb.PipelineForwardRequest.FromString, pb.PipelineForwardResponse.SerializeToString
    )
    server = grpc.aio.server(options=UNLIMITED)
    _, name, operation = METHOD.split("/")
    service = grpc.method_handlers_generic_handler(name, {operation: handler})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@contextmanager
def server_process(kind: str) -> Iterator[int]:
    """Run a server in a process of its own and yield its port."""
    command = [sys.executable, "-m", "bench.grpc", "--serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline() if process.stdout else 0)
        finally:
            process.terminate()


def caller(channel: grpc.Channel) -> Callable[[bytes], float]:
    """Return a function that echoes bytes and returns the seconds that this took."""
    call = channel.unary_unary(
        METHOD, pb.PipelineForwardRequest.SerializeToString, pb.PipelineForwardResponse.FromString
    )

    def echo(data: bytes) -> float:
        request = pb.PipelineForwardRequest(hidden_states=data)
        started = time.perf_counter()
        answer = call(request, timeout=CALL_S)
        took = time.perf_counter() - started
        if len(answer.hidden_states) != len(data):
            raise SystemExit("the echo differs from what was sent")
        return took

    return echo


class Pause:
    """Empties the processor's caches, as a computation does."""

    def __init__(self) -> None:
        self._numbers = np.zeros(PAUSE_BYTES // 8)

    def __call__(self) -> None:
        """Read and write more than the caches hold."""
        self._numbers += 1


async def hop_times(port: int, count: int, pause: Callable[[], None] = lambda: None) -> list[float]:
    """Return the seconds of each hop with our own client."""
    request = pb.PipelineForwardRequest(hidden_states=bytes(HIDDEN_BYTES))
    times = []
    async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
        stub = NodeServiceStub(channel)
        for _ in range(count):
            pause()
            started = time.perf_counter()
            await stub.PipelineForward(request)
            times.append(time.perf_counter() - started)
    return times


def run(rounds: int = ROUNDS) -> list[BenchRow]:
    """Measure ours and the peer in turn."""
    small: dict[str, list[float]] = {"ours": [], "peer": []}
    large: dict[str, list[float]] = {"ours": [], "peer": []}
    paused: dict[str, list[float]] = {"ours": [], "peer": []}
    hops: list[float] = []
    paused_hops: list[float] = []
    pause = Pause()
    with server_process("ours") as ours, server_process("peer") as peer:
        channels = {
            "ours": grpc.insecure_channel(f"127.0.0.1:{ours}", UNLIMITED),
            "peer": grpc.insecure_channel(f"127.0.0.1:{peer}", UNLIMITED),
        }
        echoes = {name: caller(channel) for name, channel in channels.items()}
        for echo in echoes.values():
            for _ in range(SMALL_CALLS):
                echo(bytes(HIDDEN_BYTES))
            echo(bytes(LARGE_BYTES))
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            for name, echo in echoes.items():
                small[name] += [echo(bytes(HIDDEN_BYTES)) * 1e3 for _ in range(SMALL_CALLS)]
                took = [echo(bytes(LARGE_BYTES)) for _ in range(LARGE_CALLS)]
                # The bytes travel both ways.
                large[name] += [2 * LARGE_BYTES / 1e6 / seconds for seconds in took]
                for _ in range(PAUSED_CALLS):
                    pause()
                    paused[name].append(echo(bytes(HIDDEN_BYTES)) * 1e3)
            hops += [took * 1e3 for took in trio.run(hop_times, ours, SMALL_CALLS)[10:]]
            took = trio.run(hop_times, ours, PAUSED_CALLS, pause)
            paused_hops += [seconds * 1e3 for seconds in took[5:]]
        for channel in channels.values():
            channel.close()
    rates = {name: statistics.median(values) for name, values in large.items()}
    return [
        _latency("gRPC echo of 3 KB, p50", small, 50),
        _latency("gRPC echo of 3 KB, p99", small, 99),
        BenchRow(
            "gRPC echo of 16 MiB, both ways",
            rates["ours"],
            rates["peer"],
            rates["ours"] / rates["peer"],
            None,
            "MB/s",
        ),
        _latency("gRPC echo of 3 KB after a pause, p50", paused, 50),
        latency_row("one hop after a pause, p50", paused_hops, HOP_MS, "ms"),
        latency_row("one hop, hidden [1,1,768], p50", hops, HOP_MS, "ms"),
        latency_row("one hop, hidden [1,1,768], p99", [percentile(hops, 99)], HOP_MS, "ms"),
        *grpc_rate.run(),
    ]


def _latency(name: str, samples: dict[str, list[float]], percent: float) -> BenchRow:
    ours, peer = percentile(samples["ours"], percent), percentile(samples["peer"], percent)
    return BenchRow(name, ours, peer, peer / ours, None, "ms")


def main() -> None:
    """Measure and print; write JSON if requested."""
    parser = argparse.ArgumentParser(description="Measure the cost of a gRPC call.")
    parser.add_argument("--serve", choices=["ours", "peer"], help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.serve == "ours":
        trio.run(serve_ours)
    elif arguments.serve == "peer":
        asyncio.run(serve_peer())
    else:
        rows = run(arguments.rounds)
        for row in rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            peer = "" if row.peer is None else f"{row.peer:.3f}"
            print(f"{row.name:36} {row.ours:10.3f} {peer:>10} {ratio:>6} {row.unit}")
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
