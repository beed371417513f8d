"""Asks for the metrics with a valid token, over and over."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request

CONNECTIONS = 16


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    data = request("GET", "/metrics", None, target.token)
    await flood(target, sources, data, CONNECTIONS)


ATTACK = Attack("16 connections of one customer that ask for /metrics without a pause", attack)
