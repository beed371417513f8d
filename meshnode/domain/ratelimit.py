"""Rate limits (interface 7.1, ``RATE_LIMITED``): token buckets by key.

Terms: a *key* is what a limit counts by: an address or a token. A bucket of ``burst`` places
refills at ``per_second``; a request takes one place or learns how long to wait. A bucket is stored
as a single number, the time at which it will be full again.

Invariants: in any span of ``s`` seconds a key is admitted at most ``burst + s * per_second`` times,
as long as its bucket is kept; the table never exceeds ``max_keys``. Full buckets are evicted first,
which loses nothing. When no bucket is full, the fullest are evicted. A key that wants to lose its
own, empty bucket would therefore have to fill the table with ``max_keys`` others that are fuller.
Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

import heapq
import ipaddress
import math
from dataclasses import dataclass
from functools import lru_cache

from meshnode.domain.errors import RateLimited

MAX_KEYS = 16384
"""About two megabytes of table. With more clients, the fullest buckets are evicted (see above)."""

_IPV6_SITE_PREFIX = 64
"""One customer usually has a /64, and every address inside it for free."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a bucket refills, and how many requests it holds when full."""

    per_second: float
    burst: float


class RateLimit:
    """One limit and the buckets of all its keys."""

    def __init__(self, rate: Rate, max_keys: int = MAX_KEYS) -> None:
        self._interval = 1 / rate.per_second
        self._depth = max(1.0, rate.burst) * self._interval
        self._max_keys = max_keys
        self._full_at: dict[str, float] = {}

    @property
    def keys_kept(self) -> int:
        """How many buckets there are now."""
        return len(self._full_at)

    def wait(self, key: str, now: float) -> float:
        """Seconds until ``key`` is admitted; 0.0 if it is admitted now, which takes a place."""
        full_at = max(now, self._full_at.get(key, now)) + self._interval
        excess = full_at - now - self._depth
        # A billionth of slack, so that sums of rounded numbers do not refuse the last place.
        if excess > 1e-9:
            return excess
        if key not in self._full_at and len(self._full_at) >= self._max_keys:
            self._evict(now)
        self._full_at[key] = full_at
        return 0.0

    def check(self, key: str, now: float) -> None:
        """Take a place or raise :class:`RateLimited`."""
        seconds = self.wait(key, now)
        if seconds:
            raise RateLimited(math.ceil(seconds))

    def _evict(self, now: float) -> None:
        kept = {key: full_at for key, full_at in self._full_at.items() if full_at > now}
        if len(kept) >= self._max_keys:
            # A sixteenth at a time, so that the scan of the table is paid by as many requests.
            count = max(1, self._max_keys // 16)
            for key in heapq.nsmallest(count, kept, key=kept.__getitem__):
                del kept[key]
        self._full_at = kept


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits that clients of the node API and of gRPC share."""

    per_address: RateLimit
    per_token: RateLimit


@lru_cache(MAX_KEYS)
def address_key(host: str) -> str:
    """The key of a peer address: an IPv4 address by itself, IPv6 ones by their /64.

    A text that is not an address is its own key.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _IPV6_SITE_PREFIX), strict=False))


class LeakyBucket:
    """Limits one rate while allowing bursts. ``now`` is in seconds of a monotonic clock."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._level = 0.0
        self._at = 0.0

    def level(self, now: float) -> float:
        """The events that have not leaked out yet."""
        return max(0.0, self._level - (now - self._at) * self._per_s)

    def overflows(self, now: float, count: float = 1.0) -> bool:
        """Count ``count`` more events; True when they exceed the limit."""
        self._level = self.level(now) + count
        self._at = now
        return self._level > self._burst

    def cap(self, most: float) -> None:
        """Forget what exceeds ``most`` events."""
        self._level = min(self._level, most)
