"""Many connections at once, shared out among the attacker's addresses."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from tools.siege.place import connect

PAUSE_S = 0.5
"""Before another try for a connection that was refused or closed."""
CONNECT_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """A number of connections to one port."""

    host: str
    port: int
    size: int


Visit = Callable[[trio.SocketStream], Awaitable[None]]
"""What one connection does; it may raise trio's errors of a broken connection."""


async def hold(
    crowds: Sequence[Crowd], sources: Sequence[str], visit: Visit, pause_s: float = PAUSE_S
) -> None:
    """Keep the connections open until cancelled; ``visit`` each, and replace it when it has ended.

    The connections of each crowd come from the sources in turn. A connection that has ended is
    replaced after ``pause_s``.
    """
    async with trio.open_nursery() as nursery:
        for crowd in crowds:
            turns = itertools.cycle(sources)
            for _ in range(crowd.size):
                nursery.start_soon(_one, crowd, next(turns), visit, pause_s)


async def hold_idle(crowds: Sequence[Crowd], sources: Sequence[str]) -> None:
    """Keep connections open that send nothing, and read what the node says on them."""
    await hold(crowds, sources, _listen)


async def reconnect(host: str, port: int, sources: Sequence[str], loops: int = 16) -> None:
    """Open connections and close each at once, as fast as that goes, until cancelled."""

    async def leave(stream: trio.SocketStream) -> None:
        # With a reset, so that no port of this side stays in use for a minute.
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))

    await hold([Crowd(host, port, loops)], sources, leave, pause_s=0.0)


async def _one(crowd: Crowd, source: str, visit: Visit, pause_s: float) -> None:
    while True:
        try:
            with trio.fail_after(CONNECT_WITHIN_S):
                stream = await connect(crowd.host, crowd.port, source)
            async with stream:
                await visit(stream)
        except* (OSError, trio.BrokenResourceError, trio.TooSlowError):
            # A visit that has tasks raises a group of them.
            pass
        await trio.sleep(pause_s)


async def _listen(stream: trio.SocketStream) -> None:
    while await stream.receive_some(65536):
        pass
