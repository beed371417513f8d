"""A ledger made from a snapshot: staged, then put in the place of the other (decision 0220).

=====================  ============================================================================
killed                 the next start
=====================  ============================================================================
while chunks come      finds the ledger as it was, at its genesis, and begins the snapshot again
after the exchange     finds a ledger without a block, and begins again: the engine may not have
                       stored yet what it goes on from
after the first block  goes on
=====================  ============================================================================

Invariants: a staged file is never opened as the ledger; the exchange is one rename.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from meshnode.datadir import sync_folder
from meshnode.domain.chain.records import Clock, Training
from meshnode.domain.chain.snapshots import InvalidSnapshot, Snapshot, read_chunk
from meshnode.domain.chain.view import Committed, View
from meshnode.domain.errors import StartupError
from meshnode.services.ledger.database import (
    FORMAT,
    LEDGER_FILE,
    SCHEMA,
    LedgerDatabase,
    StorageRefused,
    create_ledger,
)
from meshnode.services.ledger.tables import Base, Tables, connect

STAGED_FILE = "ledger.restoring"
KEPT_BY_ENGINE = "priv_validator_state.json"
"""What a validator has signed, which must never be forgotten."""


class Restoring:
    """A snapshot on its way into a staged file. One owner, one call at a time."""

    def __init__(self, data_dir: Path, genesis: bytes, snapshot: Snapshot) -> None:
        """Begin, and forget what was staged before. Raises StorageRefused."""
        self.snapshot = snapshot
        self.path = data_dir / STAGED_FILE
        self._missing = set(range(len(snapshot.hashes)))
        self._closed = False
        try:
            _remove(self.path)
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            self._connection = connect(self.path, "rw")
            # Nothing here is relied upon before it is complete and synced.
            self._connection.execute("PRAGMA synchronous = OFF")
            self._connection.executescript(SCHEMA)
            facts = {
                "format": FORMAT,
                "genesis": genesis,
                "genesis_sha256": hashlib.sha256(genesis).hexdigest().encode(),
                "app_hash": snapshot.root,
            }
            rows = list(facts.items())
            self._connection.executemany("INSERT INTO facts VALUES (?, ?)", rows)
        except (OSError, sqlite3.OperationalError) as error:
            raise StorageRefused(f"the snapshot cannot be staged: {error}") from None

    @property
    def left(self) -> int:
        """How many chunks are missing."""
        return len(self._missing)

    def add(self, index: int, data: bytes) -> None:
        """Take a chunk. Raises InvalidChunk, or StorageRefused; then nothing has changed."""
        entries = read_chunk(data, self.snapshot.buckets(index), self.snapshot.hashes[index])
        if index not in self._missing:
            return
        try:
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO state VALUES (?, ?, ?)", entries)
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise StorageRefused(f"the snapshot cannot be staged: {error}") from None
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._missing.remove(index)

    def finish(self) -> Path:
        """The staged file, complete and synced, once no chunk is missing. May be repeated.

        Raises InvalidSnapshot when the state is not that of the snapshot's height, StorageRefused.
        """
        try:
            if not self._closed:
                view = View(Committed(Tables(self._connection)))
                if view.get(Clock).height != self.snapshot.height:
                    raise InvalidSnapshot
                base = Base(self.snapshot.height, view.get(Training).round)
                note = "INSERT OR REPLACE INTO facts VALUES ('base', ?)"
                self._connection.execute(note, (base.to_fact(),))
                # Closing the last connection writes everything into the file and removes the log.
                self._connection.close()
                self._closed = True
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
        except (OSError, sqlite3.OperationalError) as error:
            raise StorageRefused(f"the snapshot cannot be staged: {error}") from None
        return self.path

    def abandon(self) -> None:
        """Forget what was staged."""
        self._connection.close()
        _remove(self.path)


def put_in_place(staged: Path, data_dir: Path) -> None:
    """Make ``staged`` the ledger, which nobody has open. Raises StorageRefused."""
    path = data_dir / LEDGER_FILE
    try:
        # A log that stays would be applied to the new file.
        _remove(path, itself=False)
        staged.replace(path)
        sync_folder(data_dir)
    except OSError as error:
        raise StorageRefused(f"the ledger cannot be replaced: {error}") from None


def forget_unfinished(data_dir: Path, genesis: bytes, engine_data: Path) -> bool:
    """Begin the chain again when its ledger was made from a snapshot and has no block since.

    The engine's own stores are removed too, but for what this validator has signed. Returns whether
    that was so. Raises StartupError.
    """
    if not (data_dir / LEDGER_FILE).exists():
        return False
    database = LedgerDatabase(data_dir, check=False)
    try:
        base = database.base.height
        if not base or database.height > base or database.decided():
            return False
    finally:
        database.close()
    try:
        for path in engine_data.iterdir() if engine_data.exists() else ():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != KEPT_BY_ENGINE:
                path.unlink()
        _remove(data_dir / LEDGER_FILE, itself=False)
    except OSError as error:
        raise StartupError(f"cannot remove what a snapshot left: {error}") from None
    create_ledger(data_dir, genesis)
    return True


def _remove(path: Path, *, itself: bool = True) -> None:
    names: Iterable[str] = ("-wal", "-shm", "") if itself else ("-wal", "-shm")
    for end in names:
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()
