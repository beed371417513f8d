"""One paying account asks for 200 long generations at a time."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.http1 import BadAnswer, ask, request

REQUESTS = 200
PAUSE_S = 0.5
"""After an answer."""


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Keep the requests open, and repeat those that are refused."""
    body = {"prompt": "Tell me a story.", "max_tokens": 400}
    data = request("POST", "/api/v1/inference", body, target.token)

    async def visit(stream: trio.SocketStream) -> None:
        while True:
            try:
                await ask(stream, data)
            except BadAnswer:
                return
            await trio.sleep(PAUSE_S)

    await hold([Crowd(target.host, target.http_port, REQUESTS)], sources, visit)


ATTACK = Attack("200 requests of one account, of 400 tokens each", attack, point=5)
