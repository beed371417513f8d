"""Requests over HTTP as fast as they are answered, over a few connections."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Target
from tools.siege.crowd import Crowd, hold
from tools.siege.http1 import BadAnswer, ask


async def flood(
    target: Target, sources: Sequence[str], data: bytes, connections: int, pipelined: int = 1
) -> None:
    """Send the same request again and again, until cancelled.

    With ``pipelined``, a connection sends so many requests at a time, and reads what comes back
    without looking at it.
    """

    async def visit(stream: trio.SocketStream) -> None:
        try:
            while True:
                await ask(stream, data)
        except BadAnswer:
            return

    async def visit_pipelined(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_for_ever, stream, data * pipelined)
            while await stream.receive_some(1 << 20):
                pass
            nursery.cancel_scope.cancel()

    chosen = visit if pipelined == 1 else visit_pipelined
    await hold([Crowd(target.host, target.http_port, connections)], sources, chosen)


async def _send_for_ever(stream: trio.SocketStream, data: bytes) -> None:
    try:
        while True:
            await stream.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
