"""The choice of the connections and calls that a listener keeps when it is full (decisions 0124,
0129).

Terms: an *address* is a client's IPv4 address, or the /64 network of its IPv6 address. A connection
is *idle* while its client waits for nothing; a call is, while it waits for its caller. The *share*
of an address is how many connections or calls it may have; addresses of this machine may have all,
because a reverse proxy is one of them.

Invariants: at most ``limit`` connections or calls are kept; an address with its share of them can
only replace its own; one that is not idle is never ended to make room.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from meshnode.domain.ratelimit import MAX_KEYS, address_key


class Keepable(Protocol):
    """The facts about a connection or call that decide whether it is kept."""

    @property
    def ip(self) -> str:
        """The client's address; empty if it is not known."""

    @property
    def idle(self) -> bool:
        """Whether it can be ended without ending anybody's work."""

    @property
    def idle_since(self) -> float:
        """Monotonic seconds since when it is idle."""


Kept = TypeVar("Kept", bound=Keepable)


class ConnectionTable(Generic[Kept]):
    """The connections of one listener, or their calls.

    A flood of newcomers costs little: the connections are kept by address, and a search looks at
    those of few addresses only.
    """

    def __init__(self, limit: int, most_of: Callable[[str], int]) -> None:
        """Keep at most ``limit`` connections; ``most_of`` gives the share of a client's address."""
        self.limit = limit
        self._most_of = most_of
        self._kept: dict[Kept, str] = {}
        # Dictionaries without values, because sets have no order.
        self._of: dict[str, dict[Kept, None]] = {}

    def __len__(self) -> int:
        """How many connections are kept."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Kept]:
        """A snapshot of the connections, so that the caller may end some of them."""
        return iter(tuple(self._kept))

    def admit(self, connection: Kept) -> tuple[bool, Kept | None]:
        """Keep ``connection`` if there is room for it, and name the one that it replaces.

        The caller ends the replaced connection, which counts as gone from here on. It is the one
        that has been idle for longest: of the same address if that has its share, otherwise of the
        address that has the most idle connections.
        """
        address = _address(connection.ip)
        of_address = self._of.get(address, {})
        replaced = None
        if len(of_address) >= self._most_of(connection.ip):
            _, replaced = _idle_ones(of_address)
            if replaced is None:
                return False, None
        elif len(self._kept) >= self.limit:
            replaced = self._longest_idle()
            if replaced is None:
                return False, None
        if replaced is not None:
            self.discard(replaced)
        self._kept[connection] = address
        self._of.setdefault(address, {})[connection] = None
        return True, replaced

    def discard(self, connection: Kept) -> None:
        """Forget a connection that has ended. Forgetting it twice changes nothing."""
        address = self._kept.pop(connection, None)
        if address is not None:
            of_address = self._of[address]
            del of_address[connection]
            if not of_address:
                del self._of[address]

    def exchange(self, connection: Kept, other: Kept) -> None:
        """Keep ``other``, of the same address, in the place of ``connection``, which is kept."""
        self.discard(connection)
        address = self._kept[other] = _address(other.ip)
        self._of.setdefault(address, {})[other] = None

    def of(self, ip: str) -> list[Kept]:
        """The connections of a client's address."""
        return list(self._of.get(_address(ip), ()))

    def _longest_idle(self) -> Kept | None:
        """The longest idle connection of the address that has the most idle connections."""
        most, found = 0, None
        for of_address in sorted(self._of.values(), key=len, reverse=True):
            if len(of_address) < most:
                # No address from here on has as many idle connections.
                break
            count, longest = _idle_ones(of_address)
            if longest is None or count < most:
                continue
            if found is None or count > most or longest.idle_since < found.idle_since:
                most, found = count, longest
        return found


def _idle_ones(connections: Iterable[Kept]) -> tuple[int, Kept | None]:
    """The number of idle connections, and the one that has been idle for longest."""
    count, longest = 0, None
    for connection in connections:
        if connection.idle:
            count += 1
            if longest is None or connection.idle_since < longest.idle_since:
                longest = connection
    return count, longest


def share_of(whole: int, share: float, ip: str) -> int:
    """The share of ``whole`` that a client's address may have: at least one."""
    return whole if is_here(ip) else max(1, int(whole * share))


def _address(ip: str) -> str:
    return address_key(ip) if ip else ""


@lru_cache(MAX_KEYS)
def is_here(ip: str) -> bool:
    """Whether it is an address of this machine."""
    try:
        return ipaddress.ip_address(ip.partition("%")[0]).is_loopback
    except ValueError:
        return False
