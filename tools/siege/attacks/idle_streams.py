"""Begins calls of StreamInference and sends nothing on them."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, begin

CONNECTIONS, CALLS = 64, 16


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Hold the calls, and begin others on a new connection for those that the node ends."""
    calls = PREFACE + b"".join(begin(2 * n + 1, "StreamInference") for n in range(CALLS))

    async def visit(stream: trio.SocketStream) -> None:
        await stream.send_all(calls)
        while await stream.receive_some(65536):
            pass

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("1,024 idle StreamInference calls", attack, point=4)
