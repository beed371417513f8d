"""A paying customer begins generations and leaves before the first token, which costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.http1 import request

STAYS_S = 0.02


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    body = {"prompt": "Once upon a time. " * 80, "max_tokens": 32}
    data = request("POST", "/api/v1/inference", body, target.token)

    async def visit(stream: trio.SocketStream) -> None:
        await stream.send_all(data)
        await trio.sleep(STAYS_S)

    await hold([Crowd(target.host, target.http_port, 32)], sources, visit, pause_s=0.01)


ATTACK = Attack("a customer who leaves before the first token, in 32 loops", attack)
