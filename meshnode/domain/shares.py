"""Who is served before whom: standings, requesters, and their shares (decision 0132).

Terms: a *requester* is whom a session counts for: the account of a bearer token, or an address. Its
*standing* says what it may displace; standings are in order, the highest first.

========  ====================================================  =======================
standing  requester                                             kept for it
========  ====================================================  =======================
PAYING    the account of a bearer token                         what the others leave
PEER      the address of a node that has a session here         a quarter
FREE      an address that asks for generations without a token  an eighth
========  ====================================================  =======================

What is *kept* for a standing is the part of the places, of the memory and of the queue that higher
standings do not take from it. Nothing is kept empty: whoever is there may use all of it.

Invariants: the kept parts add up to the whole; a standing that computes all the time gets its part
of the computing time, however much the others want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar


class Standing(IntEnum):
    """Who a requester is. A lower number goes first."""

    PAYING = 0
    PEER = 1
    FREE = 2


@dataclass(frozen=True, slots=True)
class Requester:
    """Whom a session counts for."""

    standing: Standing
    name: str = ""
    """A token's id, or an address."""


ANYBODY = Requester(Standing.FREE)
"""Somebody who has neither a token nor an address, such as another part of this program."""

KEPT: Mapping[Standing, int] = {Standing.PEER: 4, Standing.FREE: 8}
"""One part in so many is kept for a standing."""
WEIGHTS: Mapping[Standing, int] = {Standing.PAYING: 16, Standing.PEER: 3, Standing.FREE: 1}
"""How computing time is divided while several standings have work."""

Name = TypeVar("Name", bound=Hashable)


def kept(standing: Standing, total: int) -> int:
    """The part of ``total`` places or bytes that higher standings leave to this one.

    If ``total`` is at least three, every standing gets at least one.
    """
    if standing is Standing.PAYING:
        return total - kept(Standing.PEER, total) - kept(Standing.FREE, total)
    return max(total // KEPT[standing], 1 if total > standing else 0)


def largest_above(have: Iterable[Name], mine: int) -> Name | None:
    """The name that occurs most often, if it occurs at least ``mine`` + 2 times.

    It can then give one unit to somebody who has ``mine`` and still have as many, so the two never
    take the same unit from each other in turns.
    """
    most = Counter(have).most_common(1)
    return most[0][0] if most and most[0][1] - 1 >= mine + 1 else None


class ComputingTime:
    """Divides the torch thread's time between the standings that have work, by weighted shares.

    Each standing has a *clock*, which advances by the time it used, divided by its weight. The
    highest standing that has work always computes; another one only while its clock is not ahead.
    """

    def __init__(self) -> None:
        self._clocks = dict.fromkeys(Standing, 0.0)
        self._working: frozenset[Standing] = frozenset()
        self._latest = 0.0
        """The clock of whoever was furthest behind when last looked at."""

    def held_back(self, working: Collection[Standing]) -> frozenset[Standing]:
        """Which of those that have work must leave the next step to the others."""
        if not working:
            return frozenset()
        for standing in frozenset(working) - self._working:
            # A standing without work saves up no time, and does not lose what it owes either.
            self._clocks[standing] = max(self._clocks[standing], self._latest)
        self._working = frozenset(working)
        self._latest = max(self._latest, min(self._clocks[standing] for standing in working))
        limit = self._clocks[min(working)]
        return frozenset(standing for standing in working if self._clocks[standing] > limit)

    def spend(self, standings: Collection[Standing], seconds: float) -> None:
        """Count a step: one entry of ``standings`` for each session that was computed in it."""
        for standing, count in Counter(standings).items():
            self._clocks[standing] += seconds * count / len(standings) / WEIGHTS[standing]
