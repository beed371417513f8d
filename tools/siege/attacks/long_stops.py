"""A customer sends as many long stop strings as a body may hold."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request

CONNECTIONS = 8
STOPS = [f"stop {number} " + "x" * 100 for number in range(5000)]
BODY = {"prompt": "Once", "max_tokens": 64, "stop": STOPS}


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    data = request("POST", "/api/v1/inference", BODY, target.token)
    await flood(target, sources, data, CONNECTIONS)


ATTACK = Attack("8 requests at a time with 5,000 stop strings, of one customer", attack)
