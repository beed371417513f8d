"""Opens sessions in the node's layers, and sends each a position now and then to keep its place."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import trio

from meshnode.wire import node_pb2 as pb
from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, ROOM, call

SESSIONS, CALLS_A_SECOND = 32, 10


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Open all sessions at once, then send them one message after another."""
    each = SESSIONS // len(sources)
    messages = [_message(number) for number in range(each)]

    async def visit(stream: trio.SocketStream) -> None:
        ids = itertools.count(1, 2)

        async def send() -> None:
            first = [call(next(ids), "PipelineForward", message) for message in messages]
            await stream.send_all(PREFACE + ROOM + b"".join(first))
            for message in itertools.cycle(messages):
                await trio.sleep(len(sources) / CALLS_A_SECOND)
                await stream.send_all(call(next(ids), "PipelineForward", message))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while await stream.receive_some(65536):
                pass
            nursery.cancel_scope.cancel()

    await hold([Crowd(target.host, target.grpc_port, len(sources))], sources, visit)


def _message(number: int) -> bytes:
    """A first position, so that it opens the session if it has lost its place."""
    return pb.PipelineForwardRequest(
        session_id=f"creeping-{number}",
        use_cache=True,
        hidden_states=struct.pack("<q", 7),
        hidden_shape=[1, 1],
        position_ids=struct.pack("<q", 0),
    ).SerializeToString()


ATTACK = Attack("32 sessions of peers, with ten small calls a second", attack, point=3)
