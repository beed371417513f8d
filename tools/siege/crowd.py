"""Many connections at once, shared out among the attacker's addresses."""

from __future__ import annotations

import itertools
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


async def hold(crowds: Sequence[Crowd], sources: Sequence[str], visit: Visit) -> None:
    """Keep the connections open until cancelled; ``visit`` each, and replace it when it has ended.

    The connections of each crowd come from the sources in turn.
    """
    async with trio.open_nursery() as nursery:
        for crowd in crowds:
            turns = itertools.cycle(sources)
            for _ in range(crowd.size):
                nursery.start_soon(_one, crowd, next(turns), visit)


async def hold_idle(crowds: Sequence[Crowd], sources: Sequence[str]) -> None:
    """Keep connections open that send nothing, and read what the node says on them."""
    await hold(crowds, sources, _listen)


async def _one(crowd: Crowd, source: str, visit: Visit) -> None:
    while True:
        try:
            with trio.fail_after(CONNECT_WITHIN_S):
                stream = await connect(crowd.host, crowd.port, source)
            async with stream:
                await visit(stream)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError):
            pass
        await trio.sleep(PAUSE_S)


async def _listen(stream: trio.SocketStream) -> None:
    while await stream.receive_some(65536):
        pass
