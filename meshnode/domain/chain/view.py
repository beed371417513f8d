"""Reading and changing the state in layers.

The lowest layer reads a store; each layer above it keeps what was written to it and reads the rest
from the layer below. A block is one layer over the committed state, and each of its transactions is
a layer over the block. The layer of a failed transaction is dropped, and the state stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from meshnode.domain.chain.codec import decode_record, encode_record, key_of
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.records import Account, Clock, Record, Supply

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Effect:
    """A payment without a transaction of its own, for histories; not part of the state."""

    account: str
    amount: int
    reason: str
    reference: str


class _Source(Protocol):
    def read(self, key: str) -> Record | None: ...


class Reader(Protocol):
    """What the lowest layer needs: a store's ``get``."""

    def get(self, key: str) -> bytes | None:
        """The value under ``key``."""


KNOWN_RECORDS = 50_000
"""Decoded records that are kept: the busiest accounts of many blocks, in some 20 MiB."""
PLAIN = (Account, Supply, Clock)
"""Records of nothing but integers."""


class Committed:
    """The records of a store, each decoded once; valid while :meth:`adopt` learns each change."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._known: dict[str, Record | None] = {}

    def adopt(self, block: View) -> None:
        """Learn the changes of a layer over this one, which were written to the store."""
        if len(self._known) > KNOWN_RECORDS:
            self._known = {}
        for key, record in block.written.items():
            if type(record) in PLAIN:
                self._known[key] = record
            else:
                # Read again, so that it is the same as after a restart in every detail.
                self._known.pop(key, None)

    def read(self, key: str) -> Record | None:
        """The record under ``key``."""
        known = self._known
        if key not in known:
            value = self._store.get(key)
            known[key] = None if value is None else decode_record(key, value)
        return known[key]


class View:
    """One layer of changes over ``below``."""

    def __init__(self, below: _Source) -> None:
        self._below = below
        self._written: dict[str, Record | None] = {}
        self._effects: list[Effect] = []

    @property
    def written(self) -> Mapping[str, Record | None]:
        """The records written in this layer; None for a deleted one."""
        return self._written

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The payments noted in this layer, in order."""
        return tuple(self._effects)

    def note(self, effect: Effect) -> None:
        """Note a payment for its account's history."""
        self._effects.append(effect)

    def read(self, key: str) -> Record | None:
        """The record under ``key``, as this layer sees it."""
        written = self._written
        return written[key] if key in written else self._below.read(key)

    def find(self, table: type[R], name: str = "") -> R | None:
        """A table's record, or None."""
        return cast("R | None", self.read(key_of(table, name)))

    def get(self, table: type[R], name: str = "") -> R:
        """A record that must exist; LedgerBroken when it does not."""
        record = self.find(table, name)
        if record is None:
            raise LedgerBroken(f"the state has no {key_of(table, name)}")
        return record

    def put(self, record: Record, name: str = "") -> None:
        """Write a record."""
        self._written[key_of(type(record), name)] = record

    def drop(self, table: type[Record], name: str = "") -> None:
        """Delete a record."""
        self._written[key_of(table, name)] = None

    def layer(self) -> View:
        """A further layer over this one."""
        return View(self)

    def absorb(self, layer: View) -> None:
        """Copy into this layer all changes and payments of ``layer``, which lies over it."""
        self._written.update(layer._written)
        self._effects += layer._effects

    def changes(self) -> dict[str, bytes | None]:
        """The entries in which this layer differs from the one below, in the store's format."""
        return {
            key: None if record is None else encode_record(record)
            for key, record in self._written.items()
            if record != self._below.read(key)
        }

    def imbalance(self) -> int:
        """Atoms that this layer created from nothing, negative if it lost some; 0 if correct."""
        return sum(
            _money(record) - _money(self._below.read(key)) for key, record in self._written.items()
        )


def _money(record: Record | None) -> int:
    return 0 if record is None else record.money
