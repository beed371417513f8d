"""Guesses bearer tokens, a different one in each request."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.http1 import BadAnswer, ask, request

CONNECTIONS = 16


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    numbers = itertools.count()

    async def visit(stream: trio.SocketStream) -> None:
        try:
            for number in numbers:
                token = f"mn_{number:064x}"
                await ask(stream, request("GET", "/api/v1/wallet/balance", token=token))
        except BadAnswer:
            return

    await hold([Crowd(target.host, target.http_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("16 connections that guess tokens", attack)
