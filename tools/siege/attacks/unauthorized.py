"""Asks for inference without a valid token, over and over."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request

REQUEST = request("POST", "/api/v1/inference", {"prompt": "x", "max_tokens": 1}, "mn_wrong")


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    await flood(target, sources, REQUEST, 16)


ATTACK = Attack("16 connections that ask for inference with a wrong token", attack)
