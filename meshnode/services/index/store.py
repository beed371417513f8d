"""The file of the explorer index: SQLite, derived from blocks alone, safe to delete.

Terms: the *cursor* is the last block whose entries are in the file, height and hash; it moves with
every block, empty ones too, in the same transaction as the block's entries.

Invariants: a damaged file is moved aside; a file of another chain or another format is emptied;
nothing here touches the chain's own store. The methods block, and only one thread at a time may
call them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from meshnode.services.index.entries import (
    AcceptedUpdate,
    BlockEntries,
    HistoryEntry,
    ProofPage,
    ProofRecord,
)

log = logging.getLogger(__name__)

FORMAT = "meshnode-index-v2"
PRIVATE = 0o600
GONE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's error codes for a file that cannot be repaired."""

_SCHEMA = """
CREATE TABLE cursor (
    format TEXT NOT NULL, chain TEXT NOT NULL, height INTEGER NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, account TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
    amount INTEGER NOT NULL, time_ns INTEGER NOT NULL, height INTEGER NOT NULL,
    counterparty TEXT, details TEXT NOT NULL
);
CREATE INDEX entries_of ON entries (account, seq, height, kind);
CREATE INDEX earned_by ON entries (account, time_ns, amount)
    WHERE kind IN ('reward', 'settlement');
CREATE INDEX proofs_of ON entries (account, seq) WHERE kind = 'prove';
CREATE INDEX proved_by ON entries (account, json_extract(details, '$.reference'), amount)
    WHERE kind = 'reward' AND json_extract(details, '$.reason') = 'proof reward';
CREATE INDEX prove_ids ON entries (id) WHERE kind = 'prove';
CREATE TABLE updates (
    round INTEGER PRIMARY KEY, height INTEGER NOT NULL, block_hash TEXT NOT NULL,
    time_ns INTEGER NOT NULL, transaction_hash TEXT NOT NULL, task_id TEXT NOT NULL,
    model_root TEXT NOT NULL, loss_hex TEXT, workers TEXT NOT NULL
);
"""
_HISTORY = """FROM entries WHERE account = ? AND height <= ?
    AND (NOT ? OR kind IN (SELECT value FROM json_each(?)))"""
_LAYERS = """SELECT id, json_extract(details, '$.layer') FROM entries
    WHERE kind = 'prove' AND id IN (SELECT value FROM json_each(?))"""
_PROVE_IDS = "CREATE INDEX prove_ids ON entries (id) WHERE kind = 'prove'"
_PROVED_SUM = """SELECT COUNT(*), COALESCE(SUM(amount), 0) FROM entries
    WHERE account = ? AND kind = 'reward' AND json_extract(details, '$.reason') = 'proof reward'"""
_PROVED_ONES = """SELECT json_extract(details, '$.reference'), amount FROM entries
    WHERE account = ? AND kind = 'reward' AND json_extract(details, '$.reason') = 'proof reward'
    AND json_extract(details, '$.reference') IN (SELECT value FROM json_each(?))"""
_COUNT = "SELECT COUNT(*) " + _HISTORY
_PAGE = (
    "SELECT id, kind, amount, time_ns, height, counterparty, details "
    + _HISTORY
    + " ORDER BY seq DESC LIMIT ? OFFSET ?"
)


class Damaged(Exception):
    """The file is not a readable index."""


def move_aside(path: Path) -> None:
    """Rename a damaged file, so that a person can look at it and a new one can be made."""
    aside = path.with_name(path.name + ".damaged")
    log.warning("the explorer index is damaged: moved to %s, and built anew", aside.name)
    with contextlib.suppress(FileNotFoundError):
        path.replace(aside)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class IndexStore:
    """One index file, open. ``chain`` is the genesis' SHA-256: another chain's file is emptied."""

    def __init__(self, path: Path, chain: str) -> None:
        """Open the file, or make it, readable by its owner only.

        Raises Damaged when it is not an index; OSError and sqlite3.Error for other failures.
        """
        # SQLite gives its own files beside this one the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        self._connection = sqlite3.connect(
            path, check_same_thread=False, isolation_level=None, timeout=5
        )
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._prepare(chain)
            undo.pop_all()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @property
    def cursor(self) -> tuple[int, str]:
        """Height and hash of the last indexed block; 0 and "" before the first."""
        with self._reading() as connection:
            height, block_hash = connection.execute("SELECT height, hash FROM cursor").fetchone()
        return int(height), str(block_hash)

    def clear(self) -> None:
        """Delete all entries, because the chain's blocks are not those that were indexed."""
        with self._writing() as connection:
            connection.execute("DELETE FROM entries")
            connection.execute("DELETE FROM updates")
            connection.execute("UPDATE cursor SET height = 0, hash = ''")

    def begin_at(self, height: int) -> None:
        """Begin above ``height`` in an empty file."""
        with self._writing() as connection:
            connection.execute("UPDATE cursor SET height = ?, hash = ''", (height,))

    def add(self, blocks: Iterable[BlockEntries], rounds_before: int = 0) -> None:
        """Add the blocks after the cursor, in order, all or none of them.

        ``rounds_before`` were accepted in blocks that the chain's ledger does not have.
        """
        with self._writing() as connection:
            rounds = max(_rounds(connection), rounds_before)
            for block in blocks:
                connection.executemany(
                    "INSERT INTO entries (account, id, kind, amount, time_ns, height, counterparty,"
                    " details) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    [_entry_row(account, entry) for account, entry in block.entries],
                )
                for update in block.updates:
                    rounds += 1
                    connection.execute(
                        "INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        _update_row(rounds, update),
                    )
                moved = connection.execute(
                    "UPDATE cursor SET height = ?, hash = ? WHERE height = ?",
                    (block.height, block.block_hash, block.height - 1),
                )
                if moved.rowcount != 1:
                    raise ValueError(f"block {block.height} does not follow the cursor")

    def history(
        self, account: str, limit: int, offset: int, upto: int, kinds: Collection[str]
    ) -> tuple[list[HistoryEntry], int]:
        """Entries of ``account`` up to block ``upto``, newest first, and how many there are."""
        values = (account, upto, int(bool(kinds)), json.dumps(sorted(kinds)))
        with self._reading() as connection:
            (total,) = connection.execute(_COUNT, values).fetchone()
            rows = connection.execute(_PAGE, (*values, limit, offset)).fetchall()
            entries = [_entry(row) for row in rows]
            proved = [e for e in entries if e.details.get("reason") == "proof reward"]
            names = json.dumps([entry.details["reference"] for entry in proved])
            layers = dict(connection.execute(_LAYERS, (names,)).fetchall())
        for entry in proved:
            entry.details["layer"] = layers.get(entry.details["reference"])
        return entries, int(total)

    def earned(self, account: str, since_ns: int) -> int:
        """Atoms of rewards and settlements since a time."""
        with self._reading() as connection:
            (total,) = connection.execute(
                "SELECT COALESCE(SUM(amount), 0) FROM entries"
                " WHERE account = ? AND kind IN ('reward', 'settlement') AND time_ns >= ?",
                (account, since_ns),
            ).fetchone()
        return int(total)

    def proofs(self, account: str, limit: int) -> ProofPage:
        """The account's claims of work, newest first, and sums over all of them."""
        with self._reading() as connection:
            (submitted,) = connection.execute(
                "SELECT COUNT(*) FROM entries WHERE account = ? AND kind = 'prove'", (account,)
            ).fetchone()
            verified, earned = connection.execute(_PROVED_SUM, (account,)).fetchone()
            rows = connection.execute(
                "SELECT id, time_ns, details FROM entries WHERE account = ? AND kind = 'prove'"
                " ORDER BY seq DESC LIMIT ?",
                (account, limit),
            ).fetchall()
            names = json.dumps([row[0] for row in rows])
            rewards = dict(connection.execute(_PROVED_ONES, (account, names)).fetchall())
        records = [_proof(row, rewards) for row in rows]
        return ProofPage(tuple(records), int(submitted), int(verified), int(earned))

    def training(self, before: int, limit: int) -> tuple[list[AcceptedUpdate], int]:
        """Updates of rounds below ``before``, newest first, and how many rounds are indexed."""
        with self._reading() as connection:
            rounds = _rounds(connection)
            rows = connection.execute(
                "SELECT * FROM updates WHERE round < ? ORDER BY round DESC LIMIT ?",
                (before, limit),
            ).fetchall()
        return [_update(row) for row in rows], rounds

    def _prepare(self, chain: str) -> None:
        with self._reading() as connection:
            # A crash may lose the last blocks, which are then indexed again.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise Damaged
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            known = None
            if ("cursor",) in tables:
                known = connection.execute("SELECT format, chain FROM cursor").fetchone()
        if known == (FORMAT, chain):
            if ("prove_ids",) not in tables:
                # An earlier version made this file.
                with self._writing() as connection:
                    connection.execute(_PROVE_IDS)
            return
        with self._writing() as connection:
            for (name,) in tables:
                if name in ("cursor", "entries", "updates"):
                    connection.execute(f"DROP TABLE {name}")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO cursor VALUES (?, ?, 0, '')", (FORMAT, chain))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection
        except sqlite3.DatabaseError as error:
            # The low byte is the primary error code; the rest is detail.
            code = getattr(error, "sqlite_errorcode", None)
            if code is not None and code & 0xFF in GONE:
                raise Damaged from error
            raise


def _proof(row: tuple[Any, ...], rewards: dict[str, int]) -> ProofRecord:
    name, time_ns, details = row
    claim = json.loads(details)
    return ProofRecord(
        id=name,
        work_kind=claim["work_kind"],
        layer=claim["layer"],
        time_ns=time_ns,
        verified=name in rewards,
        reward=rewards.get(name, 0),
    )


def _rounds(connection: sqlite3.Connection) -> int:
    (rounds,) = connection.execute("SELECT COALESCE(MAX(round), 0) FROM updates").fetchone()
    return int(rounds)


def _entry_row(account: str, entry: HistoryEntry) -> tuple[Any, ...]:
    return (
        account,
        entry.id,
        entry.kind,
        entry.amount,
        entry.time_ns,
        entry.height,
        entry.counterparty,
        json.dumps(entry.details, sort_keys=True),
    )


def _entry(row: tuple[Any, ...]) -> HistoryEntry:
    name, kind, amount, time_ns, height, counterparty, details = row
    return HistoryEntry(name, kind, amount, time_ns, height, counterparty, json.loads(details))


def _update_row(number: int, update: AcceptedUpdate) -> tuple[Any, ...]:
    return (
        number,
        update.height,
        update.block_hash,
        update.time_ns,
        update.transaction_hash,
        update.task_id,
        update.model_root,
        update.loss_hex,
        json.dumps(update.workers),
    )


def _update(row: tuple[Any, ...]) -> AcceptedUpdate:
    number, height, block_hash, time_ns, name, task_id, root, loss_hex, workers = row
    signers = tuple(json.loads(workers))
    return AcceptedUpdate(
        number, height, block_hash, time_ns, name, task_id, root, loss_hex, signers
    )
