"""No attack: grpcio calls as fast as it can, and must never lose its connection."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

import grpc
import trio

from meshnode.wire import node_pb2 as pb
from tools.siege.attack import Attack, Target

AT_ONCE = 32
CALL_S = 30.0
THREADS = trio.CapacityLimiter(2 * AT_ONCE)


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Call until cancelled. A call that fails ends the attack, and thereby the trial."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with trio.open_nursery() as nursery:
        for _ in sources:
            channel = grpc.insecure_channel(f"{target.host}:{target.grpc_port}", own)
            run = partial(trio.to_thread.run_sync, _loop, channel, limiter=THREADS)
            for _ in range(AT_ONCE):
                nursery.start_soon(run)


def _loop(channel: grpc.Channel) -> None:
    call = channel.unary_unary(
        "/node.NodeService/GetShardInfo",
        pb.GetShardInfoRequest.SerializeToString,
        pb.GetShardInfoResponse.FromString,
    )
    try:
        while True:
            call(pb.GetShardInfoRequest(), timeout=CALL_S, wait_for_ready=True)
    except grpc.RpcError as error:
        # Other threads are in the middle of calls, so nothing less ends the process.
        print(f"grpcio was refused: {error.code()} {error.details()}", file=sys.stderr, flush=True)
        os._exit(1)


ATTACK = Attack("an honest client of grpcio at full speed, 32 calls at a time", attack, point=17)
