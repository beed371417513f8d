"""Sends many requests at once on each connection, and reads all answers."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    await flood(target, sources, request("GET", "/api/v1/status"), 16, pipelined=64)


ATTACK = Attack("16 connections with 64 pipelined requests at a time", attack)
