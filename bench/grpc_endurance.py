"""Ordinary clients at full speed for ten minutes: none is taken for a flood.

``python -m bench.grpc_endurance [--minutes M] [--at-once N] [--client NAME...]``

Each client, in turn, keeps one connection to a node of its own and calls ``GetShardInfo`` in a
closed loop, N calls at a time: grpcio, grpclib, and this project's own. The first call that fails
ends the benchmark. The rate of each minute is printed, with the processor time of the node for each
call.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import grpc.aio
import grpclib.client
import grpclib.const
import psutil
import trio

from bench.grpc_rate import CALL_S, GRPC_OFFSET, METHOD
from bench.node_process import running_node
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.wire import node_pb2 as pb

MINUTE_S = 60.0
MINUTES = 10.0
AT_ONCE = 32

Call = Callable[[], Awaitable[object]]


class Minutes:
    """Counts the calls, and says after each minute how many there were."""

    over = False
    """Whether the last minute has passed."""

    def __init__(self, minutes: float, process: psutil.Process) -> None:
        self._process = process
        self._left_s = minutes * MINUTE_S
        self._begin()

    def count(self) -> None:
        """Count a call."""
        self._calls += 1
        now = time.monotonic()
        if self.over or now < self._end:
            return
        spent_us = (self._spent_s() - self._spent_before) / self._calls * 1e6
        rate = self._calls / (now - self._begun)
        print(f"{rate:8.0f} calls/s  {spent_us:6.0f} us of the processor each", flush=True)
        self.over = self._left_s <= 0
        self._begin()

    def _begin(self) -> None:
        self._begun, self._calls = time.monotonic(), 0
        self._spent_before = self._spent_s()
        self._end = self._begun + min(MINUTE_S, self._left_s)
        self._left_s -= MINUTE_S

    def _spent_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


async def _loop(call: Call, minutes: Minutes) -> None:
    while not minutes.over:
        await call()
        minutes.count()


async def _by_grpcio(port: int, at_once: int, minutes: Minutes) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary(METHOD)

        async def call() -> object:
            return await ask(b"", timeout=CALL_S)

        await asyncio.gather(*(_loop(call, minutes) for _ in range(at_once)))


async def _by_grpclib(port: int, at_once: int, minutes: Minutes) -> None:
    async with grpclib.client.Channel("127.0.0.1", port) as channel:
        ask = grpclib.client.UnaryUnaryMethod(
            channel, METHOD, pb.GetShardInfoRequest, pb.GetShardInfoResponse
        )

        async def call() -> object:
            return await ask(pb.GetShardInfoRequest(), timeout=CALL_S)

        await asyncio.gather(*(_loop(call, minutes) for _ in range(at_once)))


async def _by_own(port: int, at_once: int, minutes: Minutes) -> None:
    async with trio.open_nursery() as nursery:
        pool: ChannelPool = await nursery.start(serve_pool, TrafficMeter())
        stub = await pool.stub("127.0.0.1", port)

        async def call() -> object:
            with trio.fail_after(CALL_S):
                return await stub.GetShardInfo(pb.GetShardInfoRequest())

        async with trio.open_nursery() as loops:
            for _ in range(at_once):
                loops.start_soon(_loop, call, minutes)
        nursery.cancel_scope.cancel()


CLIENTS: dict[str, Callable[[int, int, Minutes], None]] = {
    "grpcio": lambda *how: asyncio.run(_by_grpcio(*how)),
    "grpclib": lambda *how: asyncio.run(_by_grpclib(*how)),
    "own": lambda *how: trio.run(_by_own, *how),
}


def main() -> None:
    """Let each client call, and print."""
    parser = argparse.ArgumentParser(description="Call a node at full speed, for minutes.")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for each client")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="loops at a time")
    parser.add_argument("--client", choices=CLIENTS, nargs="+", default=list(CLIENTS))
    arguments = parser.parse_args()
    for name in arguments.client:
        with running_node() as node:
            port = (urlsplit(node.url).port or 0) + GRPC_OFFSET
            minutes = Minutes(arguments.minutes, psutil.Process(node.pid))
            CLIENTS[name](port, arguments.at_once, minutes)
        print(f"{name}: {arguments.minutes:g} minutes with {arguments.at_once} at once, no failure")


if __name__ == "__main__":
    main()
