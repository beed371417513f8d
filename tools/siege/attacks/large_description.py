"""Asks for the largest document of the HTTP port, over and over."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    await flood(target, sources, request("GET", "/openapi.json"), 16)


ATTACK = Attack("16 connections that ask for /openapi.json without a pause", attack)
