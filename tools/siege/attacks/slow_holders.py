"""Joins with a holder of the layers that the target lacks, which takes 4 s for every message."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target, announce
from tools.siege.bad_holder import bad_holders

LAYERS = "4-7"


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Run one holder at each address."""
    async with bad_holders(target, sources, "dawdle", LAYERS):
        announce()
        await trio.sleep_forever()


ATTACK = Attack(
    "a holder beside an honest one, which takes 4 s for every message",
    attack,
    point=9,
    arguments=("--layers", "0-3"),
    peers=(("--layers", LAYERS),),
    announces=True,
)
