"""Convoys: positions of several sessions that go through the stages together (decision 0213).

Terms: the *stages* of a path are its nodes, the driver included. A *convoy* has one position each
of several sessions, which are computed in one step at every stage. A session has *arrived* when its
next position is known, and its convoy is *out* until all of its sessions have come back.
The *travel* of a convoy is the time that it would take if it waited for no other.

If the slowest stage takes a time ``f`` for a convoy, it always has something to compute only while
at least ``travel / f`` convoys are out. More would only make them smaller, and each costs a stage
much the same, whatever its size: the weights are read once for all of it. So there are as few as
keep that stage ``BUSY``.

Invariants: nobody waits longer than ``travel`` for others to arrive, and for the rest of a convoy
no longer than ``STRAGGLE`` of a stage's time; a session without others waits for nobody; nothing
here reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Member = TypeVar("Member")

MAX_WAIT_S = 1.0
"""The longest time for which a session waits for others, whatever they take."""
STRAGGLE = 0.5
"""How long the rest of a convoy is waited for, as a share of the slowest stage's time."""
SHORTEST_STRAGGLE_S = 0.002
"""That is at least the time of a few messages."""
BUSY = 0.85
"""The part of the time for which the slowest stage should have something to compute, at least."""
_NEW = 0.05
"""Weight of the newest figure. Each session of a convoy gives one."""


class ConvoyName(NamedTuple):
    """Names a convoy among all that are computed at one node."""

    origin: str
    """Whose it is: the owner of its sessions; empty for the node's own."""
    name: str


@dataclass(slots=True, eq=False)
class Convoy:
    """Sessions that have departed together."""

    name: str
    size: int
    """How many have departed."""
    away: int
    """How many have not come back."""
    back_at: float = math.inf
    """When the first came back."""


class Station(Generic[Member]):
    """Where the convoys of one path are formed, at the driver. Times are in seconds."""

    def __init__(self, stages: int) -> None:
        """``stages`` are taken to be equally fast until they have been measured."""
        self._ratio = float(stages)
        """The travel in times of the slowest stage."""
        self._slowest_s: float | None = None
        self._travel_s: float | None = None
        self._members: dict[Member, Convoy | None] = {}
        """The sessions on this path, and the convoy with which each is out."""
        self._arrived: list[Member] = []
        self._since = math.inf
        """When the first of these arrived."""
        self._out: list[Convoy] = []

    def __len__(self) -> int:
        """How many sessions the path has."""
        return len(self._members)

    @property
    def waiting(self) -> Sequence[Member]:
        """The sessions that have arrived."""
        return self._arrived

    @property
    def convoys(self) -> int:
        """How many convoys keep the slowest stage busy."""
        wanted = math.ceil(BUSY * self._ratio)
        return max(1, min(wanted, len(self._members)))

    @property
    def quota(self) -> int:
        """How many sessions a convoy has, if all of them take part."""
        return math.ceil(len(self._members) / self.convoys)

    def measured(self, stage_s: Sequence[float], travel_s: float) -> None:
        """Note what a convoy took at each stage, and its travel."""
        slowest = max(stage_s, default=0.0)
        if not 0.0 < slowest <= travel_s < math.inf:
            return
        self._slowest_s = _mean(self._slowest_s, slowest)
        self._travel_s = _mean(self._travel_s, travel_s)
        self._ratio = self._travel_s / self._slowest_s

    def arrive(self, member: Member, now: float) -> None:
        """A session has its next position, and waits for its departure."""
        self._come_back(member, now)
        self._members[member] = None
        if not self._arrived:
            self._since = now
        self._arrived.append(member)

    def leave(self, member: Member, now: float) -> None:
        """A session has ended, has left the path, or sends several positions at once."""
        self._come_back(member, now)
        self._members.pop(member, None)
        if member in self._arrived:
            self._arrived.remove(member)

    def departs_at(self, now: float) -> float:
        """When those that have arrived depart if nothing else happens; ``now`` if at once."""
        if not self._arrived:
            return math.inf
        if len(self._arrived) >= self.quota:
            return now
        straggle_s = self._straggle_s
        # The rest of a convoy that is coming back comes soon.
        coming = [each.back_at + straggle_s for each in self._out if each.away < each.size]
        if sum(each.away == each.size for each in self._out) >= self.convoys:
            # All stages have enough to do.
            coming.append(self._since + max(straggle_s, self._travel_s or 0.0))
        return max(now, min(max(coming, default=now), self._since + MAX_WAIT_S))

    def depart(self, name: str, now: float) -> tuple[Convoy, list[Member]]:
        """The convoy of those that depart now, those that arrived first. Some must have arrived."""
        # Whoever is waited for in vain is not waited for again.
        latest = now - self._straggle_s
        self._out = [each for each in self._out if each.away == each.size or each.back_at > latest]
        members, self._arrived = self._arrived[: self.quota], self._arrived[self.quota :]
        self._since = now
        convoy = Convoy(name, len(members), len(members))
        self._members.update(dict.fromkeys(members, convoy))
        self._out.append(convoy)
        return convoy, members

    @property
    def _straggle_s(self) -> float:
        return max(SHORTEST_STRAGGLE_S, STRAGGLE * (self._slowest_s or 0.0))

    def _come_back(self, member: Member, now: float) -> None:
        convoy = self._members.get(member)
        if convoy is None:
            return
        self._members[member] = None
        convoy.away -= 1
        convoy.back_at = min(convoy.back_at, now)
        if not convoy.away and convoy in self._out:
            self._out.remove(convoy)


def _mean(known: float | None, newest: float) -> float:
    return newest if known is None else (1 - _NEW) * known + _NEW * newest
