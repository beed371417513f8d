"""Keys and values that were computed, kept for prompts that begin alike (decision 0158).

Terms: an *entry* is the cache of a generation that has ended or was suspended, with the tokens of
its positions and the requester that it was computed for. A prompt *hits* an entry of its own
requester by as many positions as the two have in common from the first one on.

Invariants: nobody's prompt hits an entry of somebody else, so that nobody can find out by the time
of an answer what others have asked; the entries take at most the bytes of the last ``shrink``, and
those that were used longest ago leave first; an entry never changes.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from meshnode.domain.shares import Requester, Standing

Cache = TypeVar("Cache")

MAX_ENTRIES = 256
"""Entries of all requesters, each of which a prompt of its requester is compared with."""
LEAST = 16
"""Shortest hit: copying fewer positions is not worth the trouble."""
_WIDTH = array("i").itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Entry(Generic[Cache]):
    """The cache of a generation that has ended, or was suspended."""

    requester: Requester
    tokens: bytes
    cache: Cache
    nbytes: int


class Prefixes(Generic[Cache]):
    """The entries, and how often they were of use."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, Entry[Cache]] = OrderedDict()
        self.nbytes = 0
        """Bytes of all entries."""
        self.queried = 0
        """Positions of the prompts that were looked up."""
        self.hit = 0
        """Positions of them that were found."""

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def find(
        self, requester: Requester, tokens: Sequence[int], *, again: bool = False
    ) -> tuple[Entry[Cache], int] | None:
        """The entry with which ``tokens`` have the most positions in common, and their number.

        ``again`` says that the tokens are those of a suspended generation, which the figures of
        prompts do not count.
        """
        if not _keeps_for(requester):
            return None
        if not again:
            self.queried += len(tokens)
        wanted, best, length = _packed(tokens), None, 0
        for entry in self._entries.values():
            if entry.requester == requester and (common := _common(wanted, entry.tokens)) > length:
                best, length = entry, common
        if best is None or length < LEAST:
            return None
        self._entries.move_to_end(id(best))
        if not again:
            self.hit += length
        return best, length

    def holds(self, entry: Entry[Cache]) -> bool:
        """Whether an entry is still kept."""
        return id(entry) in self._entries

    def keep(self, requester: Requester, tokens: Sequence[int], cache: Cache, nbytes: int) -> None:
        """Keep a cache of ``tokens``, in place of the entries that it continues."""
        if not _keeps_for(requester) or len(tokens) < LEAST:
            return
        packed = _packed(tokens)
        for entry in [one for one in self._entries.values() if one.requester == requester]:
            if entry.tokens.startswith(packed):
                self._entries.move_to_end(id(entry))
                return
            if packed.startswith(entry.tokens):
                self._drop(entry)
        entry = Entry(requester, packed, cache, nbytes)
        self._entries[id(entry)] = entry
        self.nbytes += nbytes
        if len(self._entries) > MAX_ENTRIES:
            self._drop(next(iter(self._entries.values())))

    def shrink(self, nbytes: int) -> None:
        """Drop the entries that were used longest ago until all take at most ``nbytes``."""
        while self._entries and self.nbytes > nbytes:
            self._drop(next(iter(self._entries.values())))

    def _drop(self, entry: Entry[Cache]) -> None:
        del self._entries[id(entry)]
        self.nbytes -= entry.nbytes


def _keeps_for(requester: Requester) -> bool:
    """Whether a requester is one customer: those without a token may share an address."""
    return requester.standing is Standing.PAYING and bool(requester.name)


def _packed(tokens: Sequence[int]) -> bytes:
    return array("i", tokens).tobytes()


def _common(one: bytes, other: bytes) -> int:
    """How many tokens both begin with, by bisection: slices are compared at memory speed."""
    low, high = 0, min(len(one), len(other)) // _WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        at, stop = low * _WIDTH, middle * _WIDTH
        if one[at:stop] == other[at:stop]:
            low = middle
        else:
            high = middle - 1
    return low
