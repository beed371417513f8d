"""Sends SwarmForward messages of 100 MiB that consist of 52 million empty hops."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.large_call import LargeMessage, call

MESSAGE = LargeMessage("SwarmForward", b"\x42\0", 52_000_000)


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Two callers, each with one message after the other, all on connections of their own."""

    async def visit(stream: trio.SocketStream) -> None:
        await call(stream, MESSAGE)

    await hold([Crowd(target.host, target.grpc_port, 2)], sources, visit)


ATTACK = Attack("2 callers with 52 million empty entries in each message", attack, point=7)
