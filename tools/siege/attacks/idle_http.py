"""Opens as many HTTP connections as it can, up to 1,000, and says nothing on them."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold_idle

CONNECTIONS = 1000


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Hold the connections, and open others for those that the node closes."""
    await hold_idle([Crowd(target.host, target.http_port, CONNECTIONS)], sources)


ATTACK = Attack("1,000 idle HTTP connections of one client", attack, point=6)
