"""The ledger's file: genesis, state and blocks in one SQLite database (decision 0071).

One connection writes, inside the ledger's thread. :class:`LedgerReader` is a second connection,
which only reads and never waits for the first (WAL). A block is one transaction: its row, its
transactions' hashes, its validators, the changes of the state and the new root are on the disk
together or not at all.

Invariants: the file has mode 0600; a file that this module did not write, or that is damaged, is
refused and left unchanged, its write-ahead log included, so a file is opened for writing only after
it was checked; a file under this name is complete, since a new one is made under another name and
renamed.
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
"""SQLite's write and read versions of a file with a write-ahead log. Other values mean a read-only
file, or one without such a log."""
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
"""What reading a damaged file can raise: a column may have any type, and SQLite's messages quote
text of the file, which may not be valid UTF-8."""
_BLOCK = "SELECT height, hash, block, decided, outcome, checksum FROM blocks"


class StorageRefused(Unavailable):
    """The disk is full or failing, so a block could not be written. Nothing was committed."""


class _Tables:
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
        return _octets(row[0])

    @property
    def height(self) -> int:
        """The height of the last block; 0 before the first."""
        row = self._one("SELECT max(height) FROM blocks")
        return 0 if row is None or row[0] is None else int(row[0])

    def block(self, height: int) -> StoredBlock | None:
        """The block at this height."""
        row = self._one(f"{_BLOCK} WHERE height = ?", height)
        return None if row is None else from_row(row)

    def blocks(self, before: int, limit: int) -> list[StoredBlock]:
        """Blocks below ``before``, newest first."""
        question = f"{_BLOCK} WHERE height < ? ORDER BY height DESC LIMIT ?"
        return [from_row(row) for row in self._connection.execute(question, (before, limit))]

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
        return None if row is None else _octets(row[0])

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

    def _one(self, question: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(question, values).fetchone()
        return row


class LedgerReader(_Tables):
    """A second connection. Reads inside ``with reader.snapshot()`` all see the same height."""

    def __init__(self, data_dir: Path) -> None:
        connection = _connect(data_dir / LEDGER_FILE, "rw")
        connection.execute("PRAGMA query_only = ON")
        super().__init__(connection)

    @contextmanager
    def snapshot(self) -> Iterator[LedgerReader]:
        """Read one committed state, whatever is written in the meantime."""
        self._connection.execute("BEGIN")
        try:
            yield self
        finally:
            self._connection.execute("COMMIT")


class LedgerDatabase(_Tables):
    """The connection that writes, once :meth:`begin_writing` was called.

    It is the state machine's store. It has one owner, which makes one call at a time.
    """

    def __init__(self, data_dir: Path, *, check: bool = True) -> None:
        """Open the file for reading, and check it if ``check`` is set.

        Raises StartupError when it is missing, damaged or not a ledger of this node.
        """
        self.path = data_dir / LEDGER_FILE
        connection = None
        try:
            # SQLite would take an empty file for a new database.
            with self.path.open("rb") as file:
                head = file.read(_VERSIONS.stop)
            if not head.startswith(_MAGIC) or head[_VERSIONS] != _WITH_LOG:
                raise LedgerBroken("not a database")
            # Opened for writing, the last connection to close would merge the log into the file and
            # remove it.
            connection = _connect(self.path, "ro")
            super().__init__(connection)
            if check:
                require_sound(connection, self.path.stat().st_size)
            if self.fact("format") != FORMAT:
                raise LedgerBroken("not a ledger")
            # With an empty table, the state machine would start from nothing.
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
        """Open the file for writing, after its check. Raises StartupError when that fails."""
        reading = self._connection
        try:
            self._connection = _connect(self.path, "rw")
        except sqlite3.DatabaseError as error:
            raise StartupError(f"cannot use the ledger {self.path}: {error}") from None
        reading.close()

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Apply changes to the state, unless :meth:`write_block` has just applied the same."""
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
        """Commit a block and its changes. Raises StorageRefused when the disk cannot store it."""
        run = self._connection.execute
        hashes = [
            (hashlib.sha256(raw).digest(), stored.height, position)
            for position, raw in enumerate(stored.transactions)
        ]
        with self._writing():
            run("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)", to_row(stored))
            # A transaction that failed in an earlier block may be in this one again.
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
            # When the disk is full, SQLite may already have rolled the transaction back itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def create_ledger(data_dir: Path, genesis: bytes) -> None:
    """Make the file of a new chain, with its first state. Raises StartupError if that fails."""
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
        # Remove what an earlier start left behind when it was killed.
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
            # Closing the last connection writes everything into the file and removes the log.
            connection.close()
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
        sync_folder(data_dir)
    except (OSError, sqlite3.OperationalError) as error:
        raise StartupError(f"cannot make the ledger {path}: {error}") from None


def stored_genesis(data_dir: Path) -> bytes | None:
    """The genesis document that the ledger was made with; None if there is no ledger.

    Raises StartupError when the document does not have the hash that is stored with it.
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
    """The error for a ledger file that cannot be trusted."""
    return StartupError(f"the ledger {path} is damaged; restore it, or move it away")


def _connect(path: Path, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
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
