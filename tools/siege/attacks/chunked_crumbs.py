"""A paying customer sends bodies in chunks of a single byte."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold

CHUNKS = 1_000_000


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    head = (
        "POST /api/v1/inference HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {target.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    body = b"1\r\n \r\n" * CHUNKS

    async def visit(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send, stream, head + body)
            while await stream.receive_some(65536):
                pass
            nursery.cancel_scope.cancel()

    await hold([Crowd(target.host, target.http_port, 8)], sources, visit)


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


ATTACK = Attack("8 requests of one customer in a million chunks of one byte", attack)
