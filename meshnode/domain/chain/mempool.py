"""Transactions that wait for a block (document, 4.2: native transaction limits, not shown).

Kept in the order in which they were checked, for one account the order of its nonces: a
transaction is only taken in after those before it. Bounded in number, in bytes, and for each
sender; what waits for long is dropped.

Invariant: each hash is here at most once, and the counts are those of what is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from meshnode.domain.chain.envelope import TransactionHash, transaction_hash
from meshnode.domain.chain.errors import MempoolFull, TooManyOfSender


@dataclass(frozen=True, slots=True)
class MempoolLimits:
    """``count`` is one full block: more could not be verified from memory again and again."""

    count: int = 1000
    bytes: int = 8 * 1024 * 1024
    per_sender: int = 100
    blocks: int = 60


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transaction that was accepted before block ``since``."""

    raw: bytes
    sender: str
    since: int


class Mempool:
    """What waits, oldest first."""

    def __init__(self, limits: MempoolLimits | None = None) -> None:
        self.limits = limits or MempoolLimits()
        self.bytes = 0
        self._waiting: dict[TransactionHash, Waiting] = {}
        self._of_sender: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        """Whether the transaction of that hash waits."""
        return name in self._waiting

    def __iter__(self) -> Iterator[bytes]:
        """The raw transactions, oldest first."""
        return iter([waiting.raw for waiting in self._waiting.values()])

    def require_room(self, raw: bytes, sender: str) -> None:
        """MempoolFull or TooManyOfSender when :meth:`add` would pass a bound."""
        if len(self) >= self.limits.count or self.bytes + len(raw) > self.limits.bytes:
            raise MempoolFull
        if self._of_sender[sender] >= self.limits.per_sender:
            raise TooManyOfSender

    def add(self, raw: bytes, sender: str, since: int) -> None:
        """Take in a transaction that was checked; again is the same as once."""
        name = transaction_hash(raw)
        if name in self._waiting:
            return
        self.require_room(raw, sender)
        self._waiting[name] = Waiting(raw, sender, since)
        self._of_sender[sender] += 1
        self.bytes += len(raw)

    def remove(self, names: Iterable[str]) -> None:
        """Forget transactions that are in a block, or can be in none."""
        for name in names:
            waiting = self._waiting.pop(TransactionHash(name), None)
            if waiting is None:
                continue
            self.bytes -= len(waiting.raw)
            self._of_sender[waiting.sender] -= 1
            if not self._of_sender[waiting.sender]:
                del self._of_sender[waiting.sender]

    def remove_old(self, height: int) -> None:
        """Forget what has waited for the allowed number of blocks at ``height``."""
        limit = self.limits.blocks
        self.remove([name for name, one in self._waiting.items() if one.since + limit <= height])
