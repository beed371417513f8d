"""A customer asks for as many choices with logarithms of probabilities as a request may have."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request

CONNECTIONS = 16


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    data = request(
        "POST",
        "/v1/completions",
        {"model": "any", "prompt": "Once", "max_tokens": 64, "n": 16, "logprobs": 5},
        target.token,
    )
    await flood(target, sources, data, CONNECTIONS)


ATTACK = Attack("16 requests at a time for 16 choices with logprobs, of one customer", attack)
