"""The memory that calls share, and who gives way when it is full (decision 0129).

Terms: a call *holds* the bytes of its messages that wait here. It is idle while it waits for its
caller, to send the rest of a message or to read one. The share of an address is how many bytes its
calls may hold.

A caller in the middle of a message is expected to keep up a *pace*. Its bytes pay for the time that
they would take at that pace, but never for more than ``MAX_AHEAD_S`` to come; so neither a message
that stops after a fast start nor one that trickles passes for one that arrives.

Invariants: the bytes held never exceed the capacity; bytes of a call that is not idle are never
taken away; an address that has its share makes room among its own calls only. Times are seconds of
a monotonic clock, given by the caller.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from meshnode.domain.connections import Keepable
from meshnode.domain.ratelimit import address_key

MAX_AHEAD_S = 2.0

Holder = TypeVar("Holder", bound=Keepable)


class HeldBytes(Generic[Holder]):
    """Counts the bytes that calls hold."""

    def __init__(self, capacity: int, most_of: Callable[[str], int]) -> None:
        """``most_of`` gives the share of a caller's address."""
        self.capacity = capacity
        self.held = 0
        self._most_of = most_of
        self._by_holder: dict[Holder, int] = {}
        self._by_address: Counter[str] = Counter()

    def take(self, holder: Holder, size: int, now: float) -> tuple[bool, list[Holder]]:
        """Count ``size`` more bytes for ``holder`` if there is room for them, or can be made.

        Returns whether they are counted, and the calls that have to give way, which the caller
        ends; their bytes are free from here on.
        """
        address = _address(holder)
        room = min(self.capacity - self.held, self._most_of(holder.ip) - self._by_address[address])
        dropped = [] if size <= room else self._to_drop(holder, address, size, now)
        if dropped is None:
            return False, []
        for each in dropped:
            self.give(each, self._by_holder[each])
        self._by_holder[holder] = self._by_holder.get(holder, 0) + size
        self._by_address[address] += size
        self.held += size
        return True, dropped

    def give(self, holder: Holder, size: int) -> None:
        """Return ``size`` bytes; those of a call that had to give way are returned already."""
        held = self._by_holder.get(holder, 0)
        size = min(size, held)
        if size < held:
            self._by_holder[holder] = held - size
        else:
            self._by_holder.pop(holder, None)
        address = _address(holder)
        self._by_address[address] -= size
        if self._by_address[address] <= 0:
            del self._by_address[address]
        self.held -= size

    def _to_drop(self, taker: Holder, own: str, size: int, now: float) -> list[Holder] | None:
        """The idle calls whose bytes make room for ``size`` more; None if they are too few.

        The call that has been idle for longest comes first: among those of the taker's address if
        that has its share, otherwise among those of the address whose idle calls hold most.
        """
        idle = {
            each: _address(each)
            for each in self._by_holder
            if each is not taker and each.idle and each.idle_since < now
        }
        by_address: Counter[str] = Counter()
        for each, address in idle.items():
            by_address[address] += self._by_holder[each]
        dropped: list[Holder] = []
        missing = self._by_address[own] + size - self._most_of(taker.ip)
        for each in sorted(idle, key=lambda each: each.idle_since):
            if missing > 0 and idle[each] == own:
                dropped.append(each)
                missing -= self._by_holder[each]
        if missing > 0:
            return None
        missing = self.held + size - self.capacity - sum(map(self._by_holder.__getitem__, dropped))
        rest = idle.keys() - set(dropped)
        for each in sorted(rest, key=lambda each: (-by_address[idle[each]], each.idle_since)):
            if missing > 0:
                dropped.append(each)
                missing -= self._by_holder[each]
        return None if missing > 0 else dropped


class Pace:
    """Since when a call waits for its caller, as far as the caller's bytes do not pay for it."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self.behind_since = math.inf
        """Infinite while the call does not wait for its caller."""

    def wait(self, now: float) -> None:
        """The call waits for its caller, if it did not before."""
        self.behind_since = min(self.behind_since, now)

    def move(self, size: int, now: float) -> None:
        """The caller has sent or taken ``size`` bytes."""
        if self.behind_since == math.inf:
            return
        self.behind_since = min(self.behind_since + size / self._bytes_per_s, now + MAX_AHEAD_S)

    def work(self) -> None:
        """The call no longer waits for its caller."""
        self.behind_since = math.inf


def _address(holder: Keepable) -> str:
    return address_key(holder.ip) if holder.ip else ""
