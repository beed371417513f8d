"""The ledger's file: genesis, state and blocks in one SQLite database (decision 0071).

One connection writes, inside the ledger's thread; :class:`LedgerReader` is another that only reads,
and never waits for the first (WAL). A block is one transaction: its row, its transactions' hashes,
its validators, the changes of the state and the new root are on the disk together or not at all.

Invariants: mode 0600; a file that is not what this module wrote is refused and left as it is, its
write-ahead log included, so it is opened for writing only when it has been found whole; a file
under this name is complete, since a new one is made under another name and renamed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from meshnode.datadir import sync_folder
from meshnode.domain.chain.comet.validators import CometValidator, validators_hash
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.genesis import initial_state, parse_genesis
from meshnode.domain.chain.records import Clock
from meshnode.domain.chain.statetree import DEPTH, StateTree, bucket_of
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.services.ledger.records import (
    StoredBlock,
    from_row,
    read_validators,
    to_row,
    validators_text,
)
from meshnode.services.ledger.soundness import require_sound

LEDGER_FILE = "ledger.sqlite"
FORMAT = b"meshnode-ledger-v1"
CACHE_KIB = 16_384
BUCKETS = 1 << DEPTH

_SCHEMA = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE state(
    bucket INTEGER NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY(bucket, key)
) WITHOUT ROWID;
CREATE TABLE blocks(
    height INTEGER PRIMARY KEY, hash BLOB NOT NULL, block BLOB NOT NULL, decided BLOB NOT NULL,
    outcome BLOB NOT NULL, checksum BLOB NOT NULL
);
CREATE TABLE transactions(
    hash BLOB PRIMARY KEY, height INTEGER NOT NULL, position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE validators(hash BLOB PRIMARY KEY, members TEXT NOT NULL) WITHOUT ROWID;
"""
_MAGIC = b"SQLite format 3\0"
_VERSIONS = slice(18, 20)
_WITH_LOG = b"\2\2"
"""File format versions: others make the file read-only, or one without a write-ahead log."""
_OUTSIDE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
"""Failures that say nothing about the file's contents."""
_UNREADABLE = (sqlite3.DatabaseError, LedgerBroken, ValueError, TypeError)
"""What reading a damaged file can raise: a column may be of any type, and SQLite's messages quote
text of the file, which may be none."""
_BLOCK = "SELECT height, hash, block, decided, outcome, checksum FROM blocks"


class StorageRefused(Unavailable):
    """The disk does not take a block: full, or failing. Nothing was committed."""


class _Tables:
    """What both connections can read."""

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
        return _octets(row[0])

    @property
    def height(self) -> int:
        """Of the last block; 0 before the first."""
        row = self._one("SELECT max(height) FROM blocks")
        return 0 if row is None or row[0] is None else int(row[0])

    def block(self, height: int) -> StoredBlock | None:
        """The block of that height."""
        row = self._one(f"{_BLOCK} WHERE height = ?", height)
        return None if row is None else from_row(row)

    def blocks(self, before: int, limit: int) -> list[StoredBlock]:
        """Blocks below ``before``, newest first."""
        question = f"{_BLOCK} WHERE height < ? ORDER BY height DESC LIMIT ?"
        return [from_row(row) for row in self._connection.execute(question, (before, limit))]

    def place(self, transaction_hash: bytes) -> tuple[int, int] | None:
        """Height and position of a transaction."""
        found = self._one(
            "SELECT height, position FROM transactions WHERE hash = ?", transaction_hash
        )
        return None if found is None else (found[0], found[1])

    def validators(self, set_hash: bytes) -> tuple[CometValidator, ...]:
        """A set by the hash that headers name it by."""
        row = self._one("SELECT members FROM validators WHERE hash = ?", set_hash)
        if row is None:
            raise LedgerBroken("a header's validators are not stored")
        return read_validators(set_hash, row[0])

    # What the state machine reads (statetree.Store).

    def get(self, key: str) -> bytes | None:
        """The value under ``key``."""
        row = self._one("SELECT value FROM state WHERE bucket = ? AND key = ?", bucket_of(key), key)
        return None if row is None else _octets(row[0])

    def bucket(self, index: int) -> Mapping[str, bytes]:
        """All entries of a bucket."""
        question = "SELECT key, value FROM state WHERE bucket = ?"
        return _entries(self._connection.execute(question, (index,)))

    def buckets(self) -> Iterator[tuple[int, Mapping[str, bytes]]]:
        """All buckets that hold something, in one pass and one bucket at a time in memory."""
        # A key that has become something else than text would be here, and not be found by get.
        question = (
            "SELECT bucket, CASE typeof(key) WHEN 'text' THEN key END, value "
            "FROM state ORDER BY bucket"
        )
        rows = self._connection.execute(question)
        for index, entries in groupby(rows, lambda row: row[0]):
            if type(index) is not int or not 0 <= index < BUCKETS:
                raise LedgerBroken("a bucket's number is damaged")
            yield index, _entries((key, value) for _, key, value in entries)

    def _one(self, question: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(question, values).fetchone()
        return row


class LedgerReader(_Tables):
    """A second connection. What is read inside ``with reader.snapshot()`` is of one height."""

    def __init__(self, data_dir: Path) -> None:
        connection = _connect(data_dir / LEDGER_FILE, "rw")
        connection.execute("PRAGMA query_only = ON")
        super().__init__(connection)

    @contextmanager
    def snapshot(self) -> Iterator[LedgerReader]:
        """One committed state, whatever is written meanwhile."""
        self._connection.execute("BEGIN")
        try:
            yield self
        finally:
            self._connection.execute("COMMIT")


class LedgerDatabase(_Tables):
    """The connection that writes, once :meth:`begin_writing` was called.

    A state machine's store; one owner, one call at a time.
    """

    def __init__(self, data_dir: Path, *, check: bool = True) -> None:
        """Open the file for reading, and check it unless that is done later.

        StartupError when it is missing, damaged or not ours.
        """
        self.path = data_dir / LEDGER_FILE
        connection = None
        try:
            # SQLite would take an empty file for a new database.
            with self.path.open("rb") as file:
                head = file.read(_VERSIONS.stop)
            if not head.startswith(_MAGIC) or head[_VERSIONS] != _WITH_LOG:
                raise LedgerBroken("not a database")
            # The last connection that could write would put the log into the file and remove it.
            connection = _connect(self.path, "ro")
            super().__init__(connection)
            if check:
                require_sound(connection, self.path.stat().st_size)
            if self.fact("format") != FORMAT:
                raise LedgerBroken("not a ledger")
            # The state machine would begin anew in an empty table.
            if self.get(Clock.table) is None:
                raise LedgerBroken("no state")
        except OSError as error:
            raise StartupError(f"cannot read the ledger {self.path}: {error.strerror}") from None
        except _UNREADABLE as error:
            if connection is not None:
                connection.close()
            if _is_outside(error):
                raise StartupError(f"cannot use the ledger {self.path}: {error}") from None
            raise damaged(self.path) from None
        self._written: Mapping[str, bytes | None] | None = None

    def begin_writing(self) -> None:
        """Open the file for writing, now that it is believed. StartupError when that fails."""
        reading = self._connection
        try:
            self._connection = _connect(self.path, "rw")
        except sqlite3.DatabaseError as error:
            raise StartupError(f"cannot use the ledger {self.path}: {error}") from None
        reading.close()

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Apply changes to the state; those of the block just written are there already."""
        if changes is self._written:
            return
        with self._writing():
            self._apply(changes)

    def write_block(
        self,
        stored: StoredBlock,
        signers: Iterable[tuple[CometValidator, ...]],
        changes: Mapping[str, bytes | None],
        app_hash: bytes,
    ) -> None:
        """Commit a block and what it changes; StorageRefused when the disk does not take it."""
        run = self._connection.execute
        hashes = [
            (hashlib.sha256(raw).digest(), stored.height, position)
            for position, raw in enumerate(stored.transactions)
        ]
        with self._writing():
            run("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)", to_row(stored))
            # The same bytes can be in a later block when they failed in this one.
            insert = "INSERT OR REPLACE INTO transactions VALUES (?, ?, ?)"
            self._connection.executemany(insert, hashes)
            for one in signers:
                row = (validators_hash(one), validators_text(one))
                run("INSERT OR IGNORE INTO validators VALUES (?, ?)", row)
            self._apply(changes)
            run("UPDATE facts SET value = ? WHERE name = 'app_hash'", (app_hash,))
        self._written = changes

    def _apply(self, changes: Mapping[str, bytes | None]) -> None:
        self._connection.executemany(
            "DELETE FROM state WHERE bucket = ? AND key = ?",
            [(bucket_of(key), key) for key, value in changes.items() if value is None],
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO state VALUES (?, ?, ?)",
            [(bucket_of(key), key, value) for key, value in changes.items() if value is not None],
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if not _is_outside(error):
                raise
            raise StorageRefused(f"the ledger cannot be written: {error}") from error
        finally:
            # SQLite has undone a transaction that met a full disk by itself, or it is undone here.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def create_ledger(data_dir: Path, genesis: bytes) -> None:
    """Make the file of a new chain, with its first state; StartupError when the disk refuses."""
    start = parse_genesis(genesis)
    path = data_dir / LEDGER_FILE
    new = path.with_suffix(".new")
    state = initial_state(start)
    tree = StateTree()
    facts = {
        "format": FORMAT,
        "genesis": genesis,
        "genesis_sha256": hashlib.sha256(genesis).hexdigest().encode(),
    }
    try:
        # What a start that was killed has left.
        for leftover in (new, *(new.with_name(new.name + end) for end in ("-wal", "-shm"))):
            leftover.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        connection = _connect(new, "rw")
        try:
            connection.executescript(_SCHEMA)
            connection.execute("BEGIN")
            rows = [(bucket_of(key), key, value) for key, value in state.items()]
            connection.executemany("INSERT INTO state VALUES (?, ?, ?)", rows)
            tree.rebuild(_Tables(connection))  # type: ignore[arg-type]  # it only reads
            facts["app_hash"] = tree.root
            connection.executemany("INSERT INTO facts VALUES (?, ?)", list(facts.items()))
            connection.execute("COMMIT")
        finally:
            # The last connection writes everything into the file, and takes the log away.
            connection.close()
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
        sync_folder(data_dir)
    except (OSError, sqlite3.OperationalError) as error:
        raise StartupError(f"cannot make the ledger {path}: {error}") from None


def stored_genesis(data_dir: Path) -> bytes | None:
    """The genesis document that the ledger was made with; None where there is no ledger.

    StartupError when it is not what was pinned.
    """
    if not (data_dir / LEDGER_FILE).exists():
        return None
    database = LedgerDatabase(data_dir, check=False)
    try:
        genesis, pinned = database.fact("genesis"), database.fact("genesis_sha256")
    except _UNREADABLE:
        raise damaged(database.path) from None
    finally:
        database.close()
    if hashlib.sha256(genesis).hexdigest().encode() != pinned:
        raise damaged(data_dir / LEDGER_FILE)
    return genesis


def damaged(path: Path) -> StartupError:
    """The refusal of a file that cannot be trusted."""
    return StartupError(f"the ledger {path} is damaged; restore it, or move it away")


def _connect(path: Path, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        # One call at a time, but each in whichever thread the pool gives.
        check_same_thread=False,
        # Transactions are begun and ended in words.
        isolation_level=None,
        timeout=5,
    )
    # A damaged column may be text that is none.
    connection.text_factory = bytes
    try:
        if mode == "rw":
            connection.execute("PRAGMA journal_mode = WAL")
        # Each block is on the disk before anybody hears of it.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _is_outside(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF in _OUTSIDE


def _entries(rows: Iterable[tuple[object, object]]) -> dict[str, bytes]:
    try:
        return {_octets(key).decode(): _octets(value) for key, value in rows}
    except UnicodeDecodeError:
        raise LedgerBroken("a key of the state is damaged") from None


def _octets(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise LedgerBroken("a value is damaged")
    return value
