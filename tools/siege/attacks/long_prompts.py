"""A paying customer sends prompts of a megabyte, which do not fit and cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request

PROMPT = "Once upon a time, there was a little dog. " * 24_000


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    body = {"prompt": PROMPT, "max_tokens": 1}
    await flood(target, sources, request("POST", "/api/v1/inference", body, target.token), 8)


ATTACK = Attack("8 connections with prompts of a megabyte, from one customer", attack)
