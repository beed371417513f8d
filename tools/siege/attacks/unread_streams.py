"""A customer begins streams of generations and never reads them."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.http1 import request

CONNECTIONS = 64


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    body = {"prompt": "Once upon a time", "max_tokens": 400, "stream": True}
    data = request("POST", "/api/v1/inference", body, target.token)

    async def visit(stream: trio.SocketStream) -> None:
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
        await stream.send_all(data)
        await trio.sleep_forever()

    await hold([Crowd(target.host, target.http_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("64 streams of one customer that nobody reads", attack)
