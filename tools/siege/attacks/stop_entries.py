"""Sends UnaryInference messages of 40 MiB that consist of 21 million empty stop strings."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.large_call import LargeMessage, call

MESSAGE = LargeMessage("UnaryInference", b"\x3a\0", 20 << 20)


async def attack(target: Target, sources: Sequence[str]) -> None:
    """One message after the other, each on a connection of its own."""

    async def visit(stream: trio.SocketStream) -> None:
        await call(stream, MESSAGE)

    await hold([Crowd(target.host, target.grpc_port, 2)], sources, visit)


ATTACK = Attack("2 callers with 21 million empty stop strings in each message", attack, point=7)
