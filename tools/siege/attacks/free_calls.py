"""Asks for long generations over gRPC, without a token, as many at a time as the node takes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import trio

from meshnode.wire import node_pb2 as pb
from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, ROOM, Ends, call

CONNECTIONS, CALLS = 12, 10
PAUSE_S = 0.3
"""Before a call in place of one that ended, as a refused client would wait."""


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Keep 120 calls open."""
    asked = pb.InferenceRequest(prompt="Tell me a story. " * 20, max_tokens=400)
    message = asked.SerializeToString()

    async def visit(stream: trio.SocketStream) -> None:
        ids, ends = itertools.count(1, 2), Ends()

        def calls(count: int) -> bytes:
            return b"".join(call(next(ids), "UnaryInference", message) for _ in range(count))

        await stream.send_all(PREFACE + ROOM + calls(CALLS))
        while received := await stream.receive_some(65536):
            if ended := ends.feed(received):
                await trio.sleep(PAUSE_S)
                await stream.send_all(calls(ended))

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("120 calls of UnaryInference without a token", attack, point=5)
