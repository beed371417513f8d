"""Sends messages that train and that no member has signed, as fast as they are answered.

They change no weights, so anybody may send them; each is computed forward and backward.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, ROOM, Ends, call
from tools.siege.training_message import step

CONNECTIONS, CALLS = 4, 4
TRAINS = (("training", "1"),)


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    numbers = itertools.count()

    async def visit(stream: trio.SocketStream) -> None:
        ids, ends = itertools.count(1, 2), Ends()

        def calls(count: int) -> bytes:
            messages = (step(next(numbers)) for _ in range(count))
            return b"".join(call(next(ids), "PipelineForward", one, TRAINS) for one in messages)

        await stream.send_all(PREFACE + ROOM + calls(CALLS))
        while received := await stream.receive_some(65536):
            if ended := ends.feed(received):
                await stream.send_all(calls(ended))

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


ATTACK = Attack(
    "training messages that nobody has signed, 16 calls at a time",
    attack,
    # Without data the node does not train by itself, which would take processors from clients.
    settings={"MESHNODE_TRAINING_ENABLED": "true", "MESHNODE_TRAINING_TEXT": "/nowhere"},
)
