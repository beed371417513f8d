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

import math
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar


class Standing(IntEnum):
    """Who a requester is. A lower number goes first."""

    PAYING = 0
    PEER = 1
    FREE = 2

    # Requesters are looked up for each session in each step; that of Enum is Python code.
    __hash__ = int.__hash__


class Requester(NamedTuple):
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

SLACK_S = 0.05
"""Some steps: with less, requesters that are equal would take turns instead of one step."""

CREDIT_S = 0.25
"""What a requester that had no work for a while may use before equal ones that worked meanwhile.

A client in a closed loop has no work while the node reads its next request. Without this credit,
whatever another one has used would be forgotten at each such moment."""

RECENT_S = 0.1
"""Whoever had work less long ago is expected back: a client in a closed loop is away for less."""

CROWD_S = 1.0
"""As many as had work at once in this time may do so again: no more are expected back."""

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


class Clocks(Generic[Name]):
    """How much time each of several has used, in weighted seconds."""

    def __init__(self, credit_s: float = 0.0) -> None:
        """``credit_s`` is the most by which somebody who comes back is behind the others."""
        self._credit_s = credit_s
        self._clocks: dict[Name, float] = {}
        self._working: frozenset[Name] = frozenset()
        self.least = 0.0
        """The least clock of those that were looked at last."""
        self._left_at: dict[Name, float] = {}
        """When those who had work lately had none any more."""
        self._latest = 0.0
        """The clock of whoever had used least when last looked at."""
        self._crowds: deque[tuple[float, int]] = deque()
        """When so many had work at once lately: the most first, then the most since then."""

    def __getitem__(self, name: Name) -> float:
        """The clock of one of those that were looked at last."""
        return self._clocks[name]

    def look(self, working: Collection[Name], now: float = 0.0) -> float:
        """Let these take part, which are at least one; returns the least clock of them."""
        self.note_absent(working, now)
        if self._working.isdisjoint(working):
            # Nobody had to wait for those who worked before.
            self._latest = max((self._clocks[name] for name in self._working), default=0.0)
        for name in frozenset(working) - self._working:
            # Who had no work saves up little time, and does not lose what it owes either.
            floor = self._latest - self._credit_s
            self._clocks[name] = max(self._clocks.get(name, floor), floor)
        self._working = frozenset(working)
        while self._crowds and self._crowds[-1][1] <= len(self._working):
            self._crowds.pop()
        self._crowds.append((now, len(self._working)))
        while self._crowds[0][0] <= now - CROWD_S:
            self._crowds.popleft()
        self._left_at = {
            name: at
            for name, at in self._left_at.items()
            if now - at < RECENT_S and name not in self._working
        }
        least = self.least = min(self._clocks[name] for name in working)
        self._latest = max(self._latest, least)
        floor = self._latest - self._credit_s
        for name in [one for one, clock in self._clocks.items() if clock <= floor]:
            if name not in self._working:
                del self._clocks[name]
        return least

    def note_absent(self, working: Collection[Name], now: float) -> None:
        """Note who of those that had work has none any more."""
        for name in self._working.difference(working):
            self._left_at.setdefault(name, now)

    def absent(self, present: Collection[Name], now: float) -> dict[Name, float]:
        """Those who had work until lately, and until when each is expected back.

        With those who are ``present`` they are no more than had work at once lately.
        """
        self.note_absent(present, now)
        most = self._crowds[0][1] if self._crowds else 0
        left = [name for name in self._recent(now) if name not in present]
        left.sort(key=self._left_at.__getitem__, reverse=True)
        expected = left[: max(0, most - len(present))]
        return {name: self._left_at[name] + RECENT_S for name in expected}

    def expected(self, now: float) -> float:
        """The least clock of those who had work until lately; infinity if there are none."""
        floor = self._latest - self._credit_s
        clocks = (max(self._clocks.get(name, floor), floor) for name in self._recent(now))
        return min(clocks, default=math.inf)

    def _recent(self, now: float) -> list[Name]:
        return [name for name, at in self._left_at.items() if now - at < RECENT_S]

    def spend(self, name: Name, seconds: float) -> None:
        """Count time for one of those that take part."""
        self._clocks[name] = self._clocks.get(name, self._latest) + seconds


class ComputingTime:
    """Divides the torch thread's time between the requesters that have work.

    Standings share it by weight: the highest that has work always computes, another one only while
    its clock is not ahead of that one's. Within a standing, the requesters have equal shares: one
    computes while its clock is at most ``SLACK_S`` ahead, so that equal ones compute together.
    """

    def __init__(self) -> None:
        self._standings: Clocks[Standing] = Clocks()
        self._requesters: dict[Standing, Clocks[Requester]] = {
            one: Clocks(CREDIT_S) for one in Standing
        }
        self.is_ahead = False
        """Whether all who may compute now are ahead of somebody who had work until lately."""

    def held_back(self, working: Collection[Requester], now: float = 0.0) -> frozenset[Requester]:
        """Which of those that have work must leave the next step to the others."""
        if not working:
            return frozenset()
        standings = {requester.standing for requester in working}
        self._standings.look(standings)
        first = min(standings)
        highest = self._standings[first]
        held: set[Requester] = set()
        for standing in standings:
            same = [requester for requester in working if requester.standing is standing]
            clocks = self._requesters[standing]
            limit = clocks.look(same, now) + SLACK_S
            if self._standings[standing] > highest:
                held.update(same)
            else:
                held.update(requester for requester in same if clocks[requester] > limit)
        self.is_ahead = self._are_ahead(first, now)
        return frozenset(held)

    def absent(self, working: Collection[Requester], now: float) -> dict[Requester, float]:
        """Those who are expected back, and until when; ``working`` are all who are not away."""
        found: dict[Requester, float] = {}
        for standing, clocks in self._requesters.items():
            present = {requester for requester in working if requester.standing is standing}
            found.update(clocks.absent(present, now))
        return found

    def _are_ahead(self, first: Standing, now: float) -> bool:
        """Whether those of the highest standing that has work are ahead of absent ones."""
        for standing, clocks in self._requesters.items():
            if standing < first:
                clocks.note_absent((), now)
                if clocks.expected(now) < math.inf:
                    return True
        clocks = self._requesters[first]
        return clocks.expected(now) < clocks.least - SLACK_S

    def owe(self, requester: Requester, seconds: float) -> None:
        """Count time for one requester only, beside what it has used."""
        self._requesters[requester.standing].spend(requester, seconds)

    def spend(self, requesters: Collection[Requester], seconds: float) -> None:
        """Count a step: one entry of ``requesters`` for each session that was computed in it."""
        for requester, count in Counter(requesters).items():
            used = seconds * count / len(requesters)
            self._standings.spend(requester.standing, used / WEIGHTS[requester.standing])
            self._requesters[requester.standing].spend(requester, used)
