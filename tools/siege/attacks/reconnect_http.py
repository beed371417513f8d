"""Opens HTTP connections as fast as it can, and closes each at once."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.crowd import reconnect


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    await reconnect(target.host, target.http_port, sources)


ATTACK = Attack("connects to the HTTP port and closes, in 16 loops", attack)
