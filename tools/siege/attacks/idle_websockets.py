"""Opens websockets and holds them without reading."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold

CONNECTIONS = 400


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    upgrade = (
        "GET /ws HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: Bearer {target.token}\r\n\r\n"
    ).encode()

    async def visit(stream: trio.SocketStream) -> None:
        await stream.send_all(upgrade)
        if not (await stream.receive_some(65536)).startswith(b"HTTP/1.1 101"):
            return
        await trio.sleep_forever()

    await hold([Crowd(target.host, target.http_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("400 websockets of one customer that nobody reads", attack)
