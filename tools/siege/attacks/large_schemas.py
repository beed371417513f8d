"""A customer asks for answers that keep to a JSON Schema with thousands of alternatives."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request

CONNECTIONS = 8
OPTIONS = [{"const": f"alternative {number} of a long list"} for number in range(2000)]
BODY = {
    "model": "any",
    "messages": [{"role": "user", "content": "x"}],
    "max_tokens": 4,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "any", "schema": {"anyOf": OPTIONS}},
    },
}


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    data = request("POST", "/v1/chat/completions", BODY, target.token)
    await flood(target, sources, data, CONNECTIONS)


ATTACK = Attack("8 requests at a time with schemas of 2,000 alternatives, of one customer", attack)
