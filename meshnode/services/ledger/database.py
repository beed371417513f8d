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
from pathlib import Path

from meshnode.datadir import sync_folder
from meshnode.domain.chain.comet.validators import CometValidator, validators_hash
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.genesis import initial_state, parse_genesis
from meshnode.domain.chain.records import Clock
from meshnode.domain.chain.statetree import StateTree, bucket_of
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.services.ledger.records import (
    DecidedBlock,
    StoredBlock,
    to_row,
    validators_text,
)
from meshnode.services.ledger.soundness import require_sound
from meshnode.services.ledger.tables import Tables, connect

LEDGER_FILE = "ledger.sqlite"
FORMAT = b"meshnode-ledger-v1"

SCHEMA = """
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
_DECIDED = """
CREATE TABLE IF NOT EXISTS decided(
    height INTEGER PRIMARY KEY, hash BLOB NOT NULL, outcome BLOB NOT NULL, checksum BLOB NOT NULL
);
"""
"""Blocks that a consensus engine decided and this node executed, until it has fetched them."""
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


class StorageRefused(Unavailable):
    """The disk is full or failing, so a block could not be written. Nothing was committed."""


class LedgerReader(Tables):
    """A second connection. Reads inside ``with reader.snapshot()`` all see the same height."""

    def __init__(self, data_dir: Path) -> None:
        connection = connect(data_dir / LEDGER_FILE, "rw")
        connection.execute("PRAGMA query_only = ON")
        super().__init__(connection)

    def begin(self) -> None:
        """Keep reading the state of now until :meth:`close`, whatever is written."""
        self._connection.execute("BEGIN")

    @contextmanager
    def snapshot(self) -> Iterator[LedgerReader]:
        """Read one committed state, whatever is written in the meantime."""
        self._connection.execute("BEGIN")
        try:
            yield self
        finally:
            self._connection.execute("COMMIT")


class LedgerDatabase(Tables):
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
            connection = connect(self.path, "ro")
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
            self._connection = connect(self.path, "rw")
        except sqlite3.DatabaseError as error:
            raise StartupError(f"cannot use the ledger {self.path}: {error}") from None
        reading.close()
        with self._writing():
            self._connection.execute(_DECIDED)

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
        with self._writing():
            self._insert_block(stored)
            self._write_state(signers, changes, app_hash)
        self._written = changes

    def write_decided(
        self,
        decided: DecidedBlock,
        signers: Iterable[tuple[CometValidator, ...]],
        changes: Mapping[str, bytes | None],
        app_hash: bytes,
    ) -> None:
        """Commit the outcome of a block whose own bytes follow with :meth:`write_whole`.

        Raises StorageRefused when the disk cannot store it.
        """
        with self._writing():
            self._connection.execute("INSERT INTO decided VALUES (?, ?, ?, ?)", decided.to_row())
            self._write_state(signers, changes, app_hash)
        self._written = changes

    def write_whole(self, stored: StoredBlock) -> None:
        """Store a block whose outcome was written before. Raises StorageRefused."""
        with self._writing():
            self._insert_block(stored)
            self._connection.execute("DELETE FROM decided WHERE height = ?", (stored.height,))

    def _insert_block(self, stored: StoredBlock) -> None:
        hashes = [
            (hashlib.sha256(raw).digest(), stored.height, position)
            for position, raw in enumerate(stored.transactions)
        ]
        insert = "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)"
        self._connection.execute(insert, to_row(stored))
        # A transaction that failed in an earlier block may be in this one again.
        insert = "INSERT OR REPLACE INTO transactions VALUES (?, ?, ?)"
        self._connection.executemany(insert, hashes)

    def _write_state(
        self,
        signers: Iterable[tuple[CometValidator, ...]],
        changes: Mapping[str, bytes | None],
        app_hash: bytes,
    ) -> None:
        run = self._connection.execute
        for one in signers:
            row = (validators_hash(one), validators_text(one))
            run("INSERT OR IGNORE INTO validators VALUES (?, ?)", row)
        self._apply(changes)
        run("UPDATE facts SET value = ? WHERE name = 'app_hash'", (app_hash,))

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
        connection = connect(new, "rw")
        try:
            connection.executescript(SCHEMA)
            connection.execute("BEGIN")
            rows = [(bucket_of(key), key, value) for key, value in state.items()]
            connection.executemany("INSERT INTO state VALUES (?, ?, ?)", rows)
            tree.rebuild(Tables(connection))  # type: ignore[arg-type]  # it only reads
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


def _is_outside(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF in _OUTSIDE
