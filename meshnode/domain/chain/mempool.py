"""Transactions that wait for a block (interface 4.2: native transaction limits, not shown).

Transactions are kept in the order in which they were checked. For one account that is the order of
its nonces, because a transaction passes its check only after those before it. The mempool is
bounded in number, in bytes and per sender, and a transaction that waits too long is dropped.

Invariant: each hash occurs at most once, and the counts match the transactions held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from meshnode.domain.chain.envelope import TransactionHash, transaction_hash
from meshnode.domain.chain.errors import MempoolFull, TooManyOfSender


@dataclass(frozen=True, slots=True)
class MempoolLimits:
    """``count`` is one full block: more would not fit the cache of verified transactions."""

    count: int = 1000
    bytes: int = 8 * 1024 * 1024
    per_sender: int = 100
    blocks: int = 60


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transaction that was accepted after block ``since``."""

    raw: bytes
    sender: str
    since: int


class Mempool:
    """The waiting transactions, oldest first."""

    def __init__(self, limits: MempoolLimits | None = None) -> None:
        self.limits = limits or MempoolLimits()
        self.bytes = 0
        self._waiting: dict[TransactionHash, Waiting] = {}
        self._of_sender: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of waiting transactions."""
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        """Whether the transaction with that hash is waiting."""
        return name in self._waiting

    def __iter__(self) -> Iterator[bytes]:
        """The raw transactions, oldest first."""
        return iter([waiting.raw for waiting in self._waiting.values()])

    def require_room(self, raw: bytes, sender: str) -> None:
        """Raise MempoolFull or TooManyOfSender if :meth:`add` would exceed a limit."""
        if len(self) >= self.limits.count or self.bytes + len(raw) > self.limits.bytes:
            raise MempoolFull
        if self._of_sender[sender] >= self.limits.per_sender:
            raise TooManyOfSender

    def add(self, raw: bytes, sender: str, since: int) -> None:
        """Add a transaction that was checked; adding it again changes nothing."""
        name = transaction_hash(raw)
        if name in self._waiting:
            return
        self.require_room(raw, sender)
        self._waiting[name] = Waiting(raw, sender, since)
        self._of_sender[sender] += 1
        self.bytes += len(raw)

    def remove(self, names: Iterable[str]) -> None:
        """Drop transactions that are in a block or can no longer be in one."""
        for name in names:
            waiting = self._waiting.pop(TransactionHash(name), None)
            if waiting is None:
                continue
            self.bytes -= len(waiting.raw)
            self._of_sender[waiting.sender] -= 1
            if not self._of_sender[waiting.sender]:
                del self._of_sender[waiting.sender]

    def remove_old(self, height: int) -> None:
        """Drop the transactions that have waited for ``limits.blocks`` blocks by ``height``."""
        limit = self.limits.blocks
        self.remove([name for name, one in self._waiting.items() if one.since + limit <= height])
