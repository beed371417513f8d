"""What drivers need of a holder's weights, and with which it begins (decisions 0246, 0247).

Terms: a driver's *claim* is the weights that it has named last, by their model hashes, and its
*choice*, the version with which its new generations begin. A claim holds for ``LEASE_S``. A version
is *newer* than another by its number, and by its hash if the numbers are equal.

Invariants: a driver changes its own claim alone; what it needs does not depend on what others say;
a holder begins with the newest of all choices, so two drivers never undo each other's commands.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

LEASE_S = 600.0
"""A driver that still needs weights says so more often."""
MAX_DRIVERS = 8
"""Drivers whose claims are kept, those that have said something last."""


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """A version with which generations begin."""

    number: int
    model_hash: str


@dataclass(frozen=True, slots=True)
class _Claim:
    needed: frozenset[str]
    choice: Choice | None
    until: float


class Claims:
    """The claims of all drivers, by their node ids. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        """Nobody claims anything."""
        self._claims: dict[str, _Claim] = {}

    def take(
        self, driver: str, needed: Collection[str], now: float, choice: Choice | None = None
    ) -> None:
        """Note what a driver needs from now on. Without a ``choice`` it has the one of before."""
        before = self._claims.pop(driver, None)
        if choice is None and before is not None:
            choice = before.choice
        self._claims[driver] = _Claim(frozenset(needed), choice, now + LEASE_S)
        while len(self._claims) > MAX_DRIVERS:
            del self._claims[next(iter(self._claims))]

    def needed(self, now: float) -> frozenset[str]:
        """The hashes of all weights that some driver needs."""
        return frozenset().union(*(c.needed for c in self._claims.values() if c.until > now))

    def prevails(self, driver: str, choice: Choice, now: float) -> bool:
        """Whether no other driver has chosen a newer version than this one."""
        others = (c for name, c in self._claims.items() if name != driver and c.until > now)
        return all(c.choice is None or c.choice <= choice for c in others)

    def next_end(self, now: float) -> float:
        """When the next claim ends; ``inf`` if there is none."""
        return min((c.until for c in self._claims.values() if c.until > now), default=math.inf)
