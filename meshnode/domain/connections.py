"""The choice of the connections that a listener keeps when it is full (decision 0124).

Terms: an *address* is a client's IPv4 address, or the /64 network of its IPv6 address. A connection
is *idle* while its client waits for nothing. The *share* of an address is how many connections it
may have; addresses of this machine may have all, because a reverse proxy is one of them.

Invariants: at most ``limit`` connections are kept; an address with its share of them can only
replace its own; a connection that is not idle is never ended to make room.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from meshnode.domain.ratelimit import address_key


class Keepable(Protocol):
    """The facts about a connection that decide whether it is kept."""

    @property
    def ip(self) -> str:
        """The client's address; empty if it is not known."""

    @property
    def idle(self) -> bool:
        """Whether the connection can be ended without ending anybody's work."""

    @property
    def idle_since(self) -> float:
        """Monotonic seconds when the client's last work ended, or when it connected."""


Kept = TypeVar("Kept", bound=Keepable)


class ConnectionTable(Generic[Kept]):
    """The connections of one listener."""

    def __init__(self, limit: int, most_of: Callable[[str], int]) -> None:
        """Keep at most ``limit`` connections; ``most_of`` gives the share of a client's address."""
        self.limit = limit
        self._most_of = most_of
        self._kept: dict[Kept, str] = {}
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many connections are kept."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Kept]:
        """All of them as they are now, so that the caller may end some."""
        return iter(tuple(self._kept))

    def admit(self, connection: Kept) -> tuple[bool, Kept | None]:
        """Keep ``connection`` if there is room for it, and name the one that it replaces.

        The caller ends the replaced connection, which counts as gone from here on. It is the one
        that has been idle for longest: of the same address if that has its share, otherwise of the
        address that has the most idle connections.
        """
        address = _address(connection.ip)
        replaced = None
        if self._of[address] >= self._most_of(connection.ip):
            replaced = self._longest_idle(address)
            if replaced is None:
                return False, None
        elif len(self._kept) >= self.limit:
            replaced = self._longest_idle()
            if replaced is None:
                return False, None
        if replaced is not None:
            self.discard(replaced)
        self._kept[connection] = address
        self._of[address] += 1
        return True, replaced

    def discard(self, connection: Kept) -> None:
        """Forget a connection that has ended. Forgetting it twice changes nothing."""
        address = self._kept.pop(connection, None)
        if address is not None:
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]

    def of(self, ip: str) -> list[Kept]:
        """The connections of a client's address."""
        address = _address(ip)
        return [connection for connection, its in self._kept.items() if its == address]

    def _longest_idle(self, address: str | None = None) -> Kept | None:
        idle = [
            (connection, its)
            for connection, its in self._kept.items()
            if connection.idle and address in (None, its)
        ]
        counts = Counter(its for _, its in idle)
        return min(
            (connection for connection, _ in idle),
            key=lambda connection: (-counts[self._kept[connection]], connection.idle_since),
            default=None,
        )


def share_of(whole: int, share: float, ip: str) -> int:
    """How many out of ``whole`` a client's address may have: at least one."""
    return whole if _is_here(ip) else max(1, int(whole * share))


def _address(ip: str) -> str:
    return address_key(ip) if ip else ""


def _is_here(ip: str) -> bool:
    try:
        return ipaddress.ip_address(ip.partition("%")[0]).is_loopback
    except ValueError:
        return False
