"""How much of the event loop's time an address may use while others need it (decision 0141).

Terms: a *rival* of an address is somebody else for whom the node computes now: an account that
pays, or another peer. The time that an address *uses* is what the event loop spends on its
connections and calls; the time of a generation, once it is admitted, is divided in
``domain/shares.py`` instead.

An address without rivals may use all time. Beside rivals it has a part of one processor, after a
burst; beyond it, nothing is refused, but its connections are read later.

Invariants: whatever an address sends, it uses at most ``BURST_S + seconds * part``, beside what one
read of each of its connections may begin; it never waits longer than ``MAX_WAIT_S`` for what it has
used. Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from meshnode.domain.ratelimit import address_key
from meshnode.domain.shares import Requester, Standing

PARTS: Mapping[Standing, float] = {Standing.PAYING: 1 / 16, Standing.PEER: 1 / 2}
"""The part of one processor that an address has beside a rival of this standing."""
BURST_S = 0.1
MAX_WAIT_S = 4.0
"""Less than a client waits for the answer to a ping (interface 8)."""
MAX_ADDRESSES = 4096


class AddressTime:
    """The time that one address has used."""

    def __init__(self, key: str) -> None:
        """``key`` stands for the address (``ratelimit.address_key``)."""
        self.key = key
        self.used_s = 0.0
        """What it has used since the last settlement; whoever measures adds to it."""
        self._owed_s = 0.0
        self._settled_at = 0.0

    def wait_s(self, part: float, now: float) -> float:
        """Seconds until it may use more; 0.0 if it may now. ``part`` is its part since then."""
        self._settle(part, now)
        return max(0.0, self._owed_s - BURST_S) / part

    def owes(self, now: float) -> bool:
        """Whether forgetting it would forgive it something."""
        return self._owed_s + self.used_s > 0 and now - self._settled_at < MAX_WAIT_S

    def forgive(self, now: float) -> None:
        """Forget what it has used."""
        self.used_s, self._owed_s, self._settled_at = 0.0, 0.0, now

    def _settle(self, part: float, now: float) -> None:
        owed = max(0.0, self._owed_s - (now - self._settled_at) * part) + self.used_s
        self._owed_s = min(owed, BURST_S + MAX_WAIT_S * part)
        self.used_s, self._settled_at = 0.0, now


class ProcessorTime:
    """The time of all addresses."""

    def __init__(self) -> None:
        self._of: dict[str, AddressTime] = {}

    def of(self, ip: str, now: float) -> AddressTime:
        """The time of a client's address."""
        key = address_key(ip)
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= MAX_ADDRESSES:
                self._of = {each.key: each for each in self._of.values() if each.owes(now)}
            found = AddressTime(key)
            if len(self._of) < MAX_ADDRESSES:
                self._of[key] = found
        return found


def part_of(key: str, rivals: Collection[Requester]) -> float | None:
    """The part of an address beside those for whom the node computes; None for all there is."""
    parts = [
        PARTS[each.standing] for each in rivals if each.standing in PARTS and not _is(each, key)
    ]
    return min(parts, default=None)


def _is(requester: Requester, key: str) -> bool:
    """Whether a peer is the one at this address; who pays may be anywhere."""
    return requester.standing is not Standing.PAYING and requester.name == key
