"""Telling a flood of frames from ordinary use (decision 0128).

Terms: a frame *costs* 1, unless it begins a call or completes the message that a call waits for;
calls have limits of their own. What passes on a connection *pays*: each KiB moved either way for
one frame, each message taken by its handler, message sent and status for ``PER_MESSAGE`` frames.
What is not paid for is *unpaid*. A frame comes *ahead* if it belongs to a call whose handler has
not taken the message before it yet: it may well bring a message, which will only pay later.

An address may send ``per_s`` unpaid frames a second, after a burst. Beyond that it loses those of
its connections whose own unpaid frames exceed ``OWN_BURST``; a connection whose frames are merely
ahead is read more slowly instead. So connections that share an address with a flood are not held
responsible for it, and a new connection does not bring its address a new burst.

Invariants: a connection whose frames are paid for is never cut or slowed down, whatever others of
its address send; however many connections it has or opens, an address gets no more than ``burst +
seconds * per_s`` unpaid frames and ``OWN_BURST + seconds * OWN_PER_S`` for each connection, beside
those of one read of each. Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.domain.ratelimit import LeakyBucket, address_key

PER_MESSAGE = 4
"""grpcio's client sends two WINDOW_UPDATE frames for a call, which has a message each way and a
status; the others that were measured send fewer."""
BYTES_A_FRAME = 1024
"""A frame of this many bytes, or window updates for as many, cost no more than they bring."""
MAX_CREDIT = 2000.0
"""Frames that may be paid for in advance: one read has the messages, a later one the frames."""
OWN_BURST = 64.0
"""Enough for settings, pings and windows at the beginning of a connection."""
OWN_PER_S = 8.0
MAX_ADDRESSES = 4096


@dataclass(slots=True)
class Passed:
    """What has passed on a connection since it was last judged."""

    frames: int = 0
    """Frames that cost, those ahead not included."""
    ahead: int = 0
    """Frames that came ahead."""
    messages: int = 0
    """Messages and statuses."""
    bytes: int = 0
    """Bytes, both ways."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about a connection."""

    flood: bool = False
    """Whether to end it."""
    pause_s: float = 0.0
    """How long to read nothing from it."""


FINE = Verdict()


class AddressFrames:
    """The unpaid frames of all addresses."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._buckets: dict[str, LeakyBucket] = {}

    def meter(self, ip: str) -> FrameMeter:
        """The meter of a new connection from ``ip``."""
        return FrameMeter(self, address_key(ip) if ip else "")

    def excess_s(self, key: str, unpaid: float, now: float) -> float:
        """Count ``unpaid`` frames; seconds by which it is over its limit; 0.0 if it is not."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= MAX_ADDRESSES:
                self._evict(now)
            bucket = self._buckets[key] = LeakyBucket(self._burst, self._per_s)
        bucket.overflows(now, unpaid)
        # Cap what the address owes, so that it recovers soon after a flood.
        bucket.cap(2 * self._burst)
        return max(0.0, bucket.level(now) - self._burst) / self._per_s

    def _evict(self, now: float) -> None:
        """Keep only addresses that owe something, at most half of ``MAX_ADDRESSES``: those that
        owe most."""
        levels = {key: bucket.level(now) for key, bucket in self._buckets.items()}
        kept = sorted((key for key in levels if levels[key] > 0), key=levels.__getitem__)
        self._buckets = {key: self._buckets[key] for key in kept[-MAX_ADDRESSES // 2 :]}


class FrameMeter:
    """The frames of one connection."""

    def __init__(self, addresses: AddressFrames, key: str) -> None:
        """Use :meth:`AddressFrames.meter`."""
        self._addresses = addresses
        self._key = key
        self._credit = 0.0
        self._own = LeakyBucket(OWN_BURST, OWN_PER_S)
        self._own_ahead = LeakyBucket(OWN_BURST, OWN_PER_S)

    def judge(self, passed: Passed, now: float) -> Verdict:
        """Count what has passed, and say what to do about the connection."""
        credit = self._credit + passed.messages * PER_MESSAGE + passed.bytes / BYTES_A_FRAME
        self._credit = max(0.0, min(MAX_CREDIT, credit - passed.frames - passed.ahead))
        unpaid = max(0.0, passed.frames - credit)
        ahead = max(0.0, passed.frames + passed.ahead - credit) - unpaid
        if unpaid <= 0 and ahead <= 0:
            return FINE
        floods = self._own.overflows(now, unpaid)
        rushes = self._own_ahead.overflows(now, ahead)
        for own in (self._own, self._own_ahead):
            own.cap(2 * OWN_BURST)
        excess_s = self._addresses.excess_s(self._key, unpaid + ahead, now)
        if not excess_s:
            return FINE
        if floods and unpaid > 0:
            return Verdict(flood=True)
        return Verdict(pause_s=excess_s) if rushes and ahead > 0 else FINE
