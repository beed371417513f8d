"""What both connections to the ledger's file read, and how the file is opened."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.statetree import DEPTH, bucket_of
from meshnode.services.ledger.records import (
    DecidedBlock,
    StoredBlock,
    from_row,
    read_validators,
)

CACHE_KIB = 16_384
BUCKETS = 1 << DEPTH
_BLOCK = "SELECT height, hash, block, decided, outcome, checksum FROM blocks"


@dataclass(frozen=True, slots=True)
class Base:
    """The snapshot from which a ledger was made, instead of all blocks (decision 0220)."""

    height: int = 0
    """No block up to this height is here; 0 for a ledger that has them all."""
    rounds: int = 0
    """Rounds of training that were accepted up to there."""

    def to_fact(self) -> bytes:
        """What :meth:`read` reads."""
        return json.dumps([self.height, self.rounds]).encode()

    @classmethod
    def read(cls, fact: bytes) -> Base:
        """Read a fact of the ledger. Raises LedgerBroken."""
        try:
            height, rounds = map(int, json.loads(fact))
        except (ValueError, TypeError):
            raise LedgerBroken("the ledger's beginning is damaged") from None
        return cls(height, rounds)


class Tables:
    """The reads that both connections offer."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def fact(self, name: str) -> bytes:
        """``format``, ``genesis``, ``genesis_sha256`` or ``app_hash``."""
        row = self._one("SELECT value FROM facts WHERE name = ?", name)
        if row is None:
            raise LedgerBroken(f"the ledger has no {name}")
        return octets(row[0])

    @property
    def base(self) -> Base:
        """Where the ledger begins."""
        row = self._one("SELECT value FROM facts WHERE name = 'base'")
        return Base() if row is None else Base.read(octets(row[0]))

    @property
    def height(self) -> int:
        """The height of the last block; that of the snapshot, or 0, before the first."""
        row = self._one("SELECT max(height) FROM blocks")
        return self.base.height if row is None or row[0] is None else int(row[0])

    def block(self, height: int) -> StoredBlock | None:
        """The block at this height."""
        row = self._one(f"{_BLOCK} WHERE height = ?", height)
        return None if row is None else from_row(row)

    def blocks(self, before: int, limit: int) -> list[StoredBlock]:
        """Blocks below ``before``, newest first."""
        question = f"{_BLOCK} WHERE height < ? ORDER BY height DESC LIMIT ?"
        return [from_row(row) for row in self._connection.execute(question, (before, limit))]

    def decided(self) -> list[DecidedBlock]:
        """The blocks above :attr:`height` that were executed, lowest first."""
        table = "SELECT 1 FROM sqlite_master WHERE name = 'decided'"
        # A ledger that was never under a consensus engine may lack the table.
        if self._one(table) is None:
            return []
        rows = self._connection.execute("SELECT * FROM decided ORDER BY height")
        return [DecidedBlock.of_row(row) for row in rows]

    def place(self, transaction_hash: bytes) -> tuple[int, int] | None:
        """The height of a transaction's block, and its position in it."""
        found = self._one(
            "SELECT height, position FROM transactions WHERE hash = ?", transaction_hash
        )
        return None if found is None else (found[0], found[1])

    def validators(self, set_hash: bytes) -> tuple[CometValidator, ...]:
        """The validator set with this hash, by which headers name it."""
        row = self._one("SELECT members FROM validators WHERE hash = ?", set_hash)
        if row is None:
            raise LedgerBroken("a header's validators are not stored")
        return read_validators(set_hash, row[0])

    # What the state machine reads (statetree.Store).

    def get(self, key: str) -> bytes | None:
        """The value under ``key``."""
        row = self._one("SELECT value FROM state WHERE bucket = ? AND key = ?", bucket_of(key), key)
        return None if row is None else octets(row[0])

    def bucket(self, index: int) -> Mapping[str, bytes]:
        """All entries of a bucket."""
        question = "SELECT key, value FROM state WHERE bucket = ?"
        return _entries(self._connection.execute(question, (index,)))

    def buckets(self) -> Iterator[tuple[int, Mapping[str, bytes]]]:
        """All buckets that are not empty, in one pass with one bucket in memory at a time."""
        # A damaged key that is no longer text would appear here, but get would not find it.
        question = (
            "SELECT bucket, CASE typeof(key) WHEN 'text' THEN key END, value "
            "FROM state ORDER BY bucket"
        )
        rows = self._connection.execute(question)
        for index, entries in groupby(rows, lambda row: row[0]):
            if type(index) is not int or not 0 <= index < BUCKETS:
                raise LedgerBroken("a bucket's number is damaged")
            yield index, _entries((key, value) for _, key, value in entries)

    def state_bytes(self) -> int:
        """The length of all keys and values, with what a chunk of a snapshot adds."""
        question = "SELECT coalesce(sum(length(key) + length(value) + 6), 0) FROM state"
        row = self._one(question)
        return 0 if row is None else int(row[0])

    def entries(self, buckets: range, rows: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of some buckets, in order; ``rows`` are read at one time."""
        question = (
            "SELECT key, value FROM state WHERE bucket >= ? AND bucket < ? ORDER BY bucket, key"
        )
        found = self._connection.execute(question, (buckets.start, buckets.stop))
        while batch := found.fetchmany(rows):
            yield from ((octets(key), octets(value)) for key, value in batch)

    def _one(self, question: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(question, values).fetchone()
        return row


def connect(path: Path, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
    """Open the file for reading, or for writing as well."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        # There is one call at a time, but each may run in another thread of the pool.
        check_same_thread=False,
        # Transactions are begun and ended with explicit statements.
        isolation_level=None,
        timeout=5,
    )
    # A damaged column may hold text that is not valid UTF-8.
    connection.text_factory = bytes
    try:
        if mode == "rw":
            connection.execute("PRAGMA journal_mode = WAL")
        # Each block must be on the disk before it is announced.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _entries(rows: Iterable[tuple[object, object]]) -> dict[str, bytes]:
    try:
        return {octets(key).decode(): octets(value) for key, value in rows}
    except UnicodeDecodeError:
        raise LedgerBroken("a key of the state is damaged") from None


def octets(value: object) -> bytes:
    """A column that must hold bytes."""
    if not isinstance(value, bytes):
        raise LedgerBroken("a value is damaged")
    return value
