"""Whose session gets a place, and whose gives one up (decision 0132).

Terms: a *claim* is a session that waits for a place or has one; the *head* of a standing is the
claim that is admitted next among those of the standing: that of the requester with the fewest
places, and among the claims of one requester the oldest. A standing is *within* what is kept for it
while neither its places nor its memory exceed that, and *above* otherwise.

======================================  ==========================================================
a waiting head                          may take the place of
======================================  ==========================================================
of a higher standing                    a claim of a standing that is above
of the same standing, with fewer        a claim of the requester with the most places, if that
places                                  one will still not have fewer
of the same or a higher standing        another node's session that has rested for ``RESTS_S``
with more bytes than its part           any claim of a lower standing
======================================  ==========================================================

Invariants: a lower standing never takes a place of a higher one, but if it is within, its head gets
the next one that becomes free; nobody gives way in vain: the head fits when all who may give way
have done so; a place that was taken cannot be taken back; a requester that has places gets no
further one that somebody of its own or a higher standing who has none would take at once, if that
one is *expected back*: who had work until a moment ago. Whoever has no place never waits for this.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from meshnode.domain.shares import ANYBODY, Requester, Standing, kept, largest_above

RESTS_S = 2.0
"""The messages of a generation in progress follow one another within a fraction of this."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class Claim:
    """The facts about a session that decide whether it has a place."""

    kv_bytes: int
    requester: Requester = ANYBODY
    since: float = 0.0
    """When it began to wait, or to rest; seconds of the caller's clock."""
    rests: bool = False
    """Whether it is a pipeline's session, which rests after computing its positions."""
    at_rest: bool = False
    bound: bool = False
    """Whether it belongs to a generation of this node, which could not go on without it."""
    suspended: bool = False
    """Whether it had a place before."""
    order: int = 0
    """Rises with each admission and each rest."""

    @property
    def standing(self) -> Standing:
        """That of its requester."""
        return self.requester.standing

    @property
    def movable(self) -> bool:
        """Whether its place can be taken: a generation goes on later, another node begins again."""
        return not self.bound


def is_kept_for(requester: Requester, waiting: Collection[Claim], max_queue: int) -> bool:
    """Whether a queue that is full of other standings has a place left for this requester."""
    same = sum(claim.standing is requester.standing for claim in waiting)
    if requester.standing is Standing.PAYING or same == len(waiting):
        return False
    return same < kept(requester.standing, max_queue)


def refused_for(requester: Requester, waiting: Mapping[Key, Claim], max_queue: int) -> Key | None:
    """The claim that leaves a full queue for this requester; None if none has to.

    It is the newest of the lowest standing that has more places in the queue than are kept for it,
    if that is below the requester's; else the newest of the requester of the same standing that
    has the most.
    """
    of_standing = Counter(claim.standing for claim in waiting.values())
    mine = sum(claim.requester == requester for claim in waiting.values())
    for standing in sorted(of_standing, reverse=True):
        if standing < requester.standing:
            break
        newest = {
            claim.requester.name: key
            for key, claim in waiting.items()
            if claim.standing is standing and not claim.suspended
        }
        names = [claim.requester.name for claim in waiting.values() if claim.standing is standing]
        if standing is requester.standing:
            name = largest_above(names, mine)
        elif of_standing[standing] > kept(standing, max_queue):
            name = largest_above(names, -1)
        else:
            continue
        if name in newest:
            return newest[name]
    return None


class Contest(Generic[Key]):
    """All claims as they are now."""

    def __init__(
        self,
        placed: Mapping[Key, Claim],
        waiting: Mapping[Key, Claim],
        max_batch: int,
        kv_bytes: int,
        absent: Mapping[Requester, float] = MappingProxyType({}),
    ) -> None:
        """``waiting`` is in the order of arrival; ``kv_bytes`` is the memory for all places.

        ``absent`` are those without work, and until when each is expected back.
        """
        self._placed = placed
        self._waiting = waiting
        self._max_batch = max_batch
        self._kv_bytes = kv_bytes
        self._used = sum(claim.kv_bytes for claim in placed.values())
        self._of = Counter(claim.requester for claim in placed.values())
        self._absent = {one: until for one, until in absent.items() if not self._of[one]}
        self._heads = self._find_heads()

    def next(self, now: float = 0.0) -> Key | None:
        """The claim to admit now. None if nobody waits, or there is no room."""
        for key in reversed(self._heads.values()):
            claim = self._waiting[key]
            if self._is_within(claim) and self._fits(claim) and not self._is_taken_back(claim, now):
                return key
        for key in self._heads.values():
            # A small session must not overtake a large one, which might then wait forever.
            claim = self._waiting[key]
            return key if self._fits(claim) and not self._is_taken_back(claim, now) else None
        return None

    def victim(self, now: float) -> Key | None:
        """The claim that has to give up its place now; None if none has to."""
        for standing, key in self._heads.items():
            head = self._waiting[key]
            if self._fits(head):
                return None
            if standing is not min(self._heads) and not self._is_within(head):
                continue
            found = self._who_gives_way(head, now)
            freed = sum(self._placed[one].kv_bytes for one in found)
            if found and self._used - freed + head.kv_bytes <= self._kv_bytes:
                return found[0]
        return None

    def unchanged_until(self, now: float) -> float:
        """When the mere passing of time may change who gives way."""
        times = [claim.since + RESTS_S for claim in self._placed.values() if claim.at_rest]
        times.extend(self._absent.values())
        return min((time for time in times if time > now), default=math.inf)

    def _find_heads(self) -> dict[Standing, Key]:
        """The head of each standing that waits, the highest standing first."""
        oldest: dict[Requester, Key] = {}
        for key, claim in self._waiting.items():
            oldest.setdefault(claim.requester, key)
        heads: dict[Standing, Key] = {}
        for requester, key in oldest.items():
            head = heads.get(requester.standing)
            if head is None or self._of[requester] < self._of[self._waiting[head].requester]:
                heads[requester.standing] = key
        return dict(sorted(heads.items()))

    def _fits(self, claim: Claim) -> bool:
        room = len(self._placed) < self._max_batch
        return room and self._used + claim.kv_bytes <= self._kv_bytes

    def _is_taken_back(self, claim: Claim, now: float) -> bool:
        """Whether somebody who is expected back would take the place of this claim again."""
        # Without a generation of its requester that computes, nobody would look here again in time.
        if claim.rests or not self._of[claim.requester]:
            return False
        # What is kept for a standing is not taken by a higher one.
        highest = claim.standing if self._is_within(claim) else min(Standing)
        expected = sum(
            now < until and highest <= one.standing <= claim.standing
            for one, until in self._absent.items()
        )
        return len(self._placed) + expected >= self._max_batch

    def _is_within(self, claim: Claim) -> bool:
        """Whether the standing of a waiting claim is still within with this claim."""
        places, kv_bytes = self._use_of(claim.standing)
        return places + 1 <= kept(
            claim.standing, self._max_batch
        ) and kv_bytes + claim.kv_bytes <= kept(claim.standing, self._kv_bytes)

    def _is_above(self, standing: Standing) -> bool:
        """Whether a standing has more of what is short than is kept for it."""
        places, kv_bytes = self._use_of(standing)
        if len(self._placed) >= self._max_batch:
            return places > kept(standing, self._max_batch)
        return kv_bytes > kept(standing, self._kv_bytes)

    def _use_of(self, standing: Standing) -> tuple[int, int]:
        """The places and the bytes that a standing has."""
        sizes = [c.kv_bytes for c in self._placed.values() if c.requester.standing is standing]
        return len(sizes), sum(sizes)

    def _who_gives_way(self, head: Claim, now: float) -> list[Key]:
        """The claims whose place and memory a head may have, in the order in which it gets them."""
        same = (c.requester.name for c in self._placed.values() if c.standing is head.standing)
        largest = largest_above(same, self._of[head.requester])
        is_large = head.kv_bytes > kept(head.standing, self._kv_bytes)
        above = {standing: is_large or self._is_above(standing) for standing in Standing}

        def gives_way(claim: Claim) -> bool:
            rested = claim.at_rest and claim.since <= now - RESTS_S
            if claim.standing is head.standing:
                return rested or claim.requester.name == largest
            return claim.standing > head.standing and (rested or above[claim.standing])

        def rank(key: Key) -> tuple[int, int, bool, int]:
            claim = self._placed[key]
            # What has rested longest goes first; then what was admitted last and has done least.
            order = claim.order if claim.at_rest else -claim.order
            return -claim.standing, -self._of[claim.requester], not claim.at_rest, order

        found = [key for key, claim in self._placed.items() if claim.movable and gives_way(claim)]
        return sorted(found, key=rank)
