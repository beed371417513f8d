"""Sends batches to /rpc without credentials, over and over."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.flood import flood
from tools.siege.http1 import request

CONNECTIONS = 8
BATCH = [
    {"jsonrpc": "2.0", "id": number, "method": "status", "params": {}} for number in range(200)
]


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    data = request("POST", "/rpc", BATCH, "")
    await flood(target, sources, data, CONNECTIONS)


ATTACK = Attack("8 connections with batches of 200 calls to /rpc", attack)
