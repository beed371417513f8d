"""Joins with a holder of layers that the target lacks, which answers with its own tokens."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tools.siege.attack import Attack, Target, announce
from tools.siege.bad_holder import bad_holders

LAYERS = "4-7"


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Run one holder at each address."""
    async with bad_holders(target, sources, "lie", LAYERS):
        announce()
        await trio.sleep_forever()


ATTACK = Attack(
    "a holder beside two honest ones, which raises one logit by 50 in each answer",
    attack,
    point=9,
    arguments=("--layers", "0-3"),
    peers=(("--layers", LAYERS), ("--layers", LAYERS)),
    announces=True,
)
