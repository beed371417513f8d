"""One customer keeps asking for 128 long generations at a time."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    body = {"prompt": "Once upon a time", "max_tokens": 400}
    await flood(target, sources, request("POST", "/api/v1/inference", body, target.token), 128)


ATTACK = Attack("one customer with 128 long generations at a time", attack)
