"""The transactions signed here, stored before they are sent (interface 4.2 rule 6; decision 0092).

States of an entry:

==========  ============================================================  =========================
state       meaning                                                       the nonce
==========  ============================================================  =========================
signed      stored; it may or may not have reached the network            taken: no new signing
accepted    a gateway took it, or shows it as waiting                     taken: no new signing
committed   in a block; for a request, also after its answer or expiry    used
refused     the network refused it and gave a reason                      free
unsent      it certainly never left this machine                          free
void        it can no longer be accepted: its expiry has passed           free
superseded  its nonce was used by another transaction                     used
forgotten   the user stopped following it                                 free, at the user's risk
==========  ============================================================  =========================

Invariants, also enforced by the database: for one account of one chain at most one entry is open
(signed or accepted), so nothing is signed while an outcome is unknown; the bytes of an entry never
change; an entry is on the disk before :meth:`Outbox.store` returns. Two commands at once are two
transactions of the database, and the second finds the first one's entry.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshnode.client.answers import Identity
from meshnode.client.errors import Declined, Misused, OutcomeUnknown
from meshnode.datadir import make_private

OUTBOX_FILE = "outbox.sqlite"

OPEN: Final = frozenset({"signed", "accepted"})
USED: Final = frozenset({"committed", "superseded"})
MOVES: Final[dict[str, frozenset[str]]] = {
    "signed": frozenset(
        {"accepted", "committed", "refused", "unsent", "void", "superseded", "forgotten"}
    ),
    "accepted": frozenset({"committed", "refused", "void", "superseded", "forgotten"}),
    # A refusing gateway may be wrong or may lie: a block outweighs its refusal.
    "refused": frozenset({"signed", "committed", "superseded", "forgotten"}),
    "unsent": frozenset({"signed"}),
    "void": frozenset({"signed", "committed", "superseded"}),
    "committed": frozenset(),
    "superseded": frozenset({"committed"}),
    "forgotten": frozenset({"signed", "committed", "superseded"}),
}
"""From each state, the states that can follow."""

_COLUMNS = (
    "application_id, hash, raw, chain_id, genesis_sha256, account, nonce, kind, summary, signed_at,"
    " signed_height, expires, state, note, height, outcome"
)
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS entries (
    application_id TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    raw BLOB NOT NULL,
    chain_id TEXT NOT NULL,
    genesis_sha256 TEXT NOT NULL,
    account TEXT NOT NULL,
    nonce INTEGER NOT NULL,
    kind TEXT NOT NULL,
    summary TEXT NOT NULL,
    signed_at INTEGER NOT NULL,
    signed_height INTEGER NOT NULL,
    expires INTEGER,
    state TEXT NOT NULL CHECK (state IN ({", ".join(f"'{state}'" for state in MOVES)})),
    note TEXT NOT NULL DEFAULT '',
    height INTEGER,
    outcome TEXT
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS one_open ON entries (genesis_sha256, account)
    WHERE state IN ('signed', 'accepted');
"""
BUSY_SECONDS = 10.0
"""How long one command waits for another's write, which takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One signed transaction. ``outcome`` is JSON text, e.g. an answer; ``summary`` is for people.

    ``signed_height`` is the chain's height at signing, so no earlier block can contain it.
    """

    application_id: str
    hash: str
    raw: bytes
    chain_id: str
    genesis_sha256: str
    account: str
    nonce: int
    kind: str
    summary: str
    signed_at: int
    signed_height: int
    expires: int | None = None
    state: str = "signed"
    note: str = ""
    height: int | None = None
    outcome: str | None = None

    @property
    def identity(self) -> Identity:
        """The chain that it was signed for."""
        return Identity(self.chain_id, self.genesis_sha256)


class Outbox:
    """The entries in ``folder``. Close it, or use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        path = folder / OUTBOX_FILE
        try:
            make_private(folder)
            # Created with its mode first, because SQLite gives its journal files the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise Misused(f"cannot use the outbox {path}: {error}") from None
        try:
            # A commit returns only after the data and the directory entry are on the disk.
            self._database.execute("PRAGMA synchronous = EXTRA")
            with self._writing():
                for statement in _SCHEMA.split(";\n"):
                    self._database.execute(statement)
        except sqlite3.Error as error:
            self._database.close()
            raise Misused(f"the outbox {path} cannot be used: {error}") from None

    def __enter__(self) -> Outbox:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def store(self, entry: Entry) -> Entry:
        """Store a new entry durably, in state ``signed``. Only the returned entry may be sent.

        If the same body was signed before, the earlier entry with its bytes is returned. Raises
        OutcomeUnknown while any entry of the account is open, and Declined if the nonce is known to
        be used.
        """
        try:
            return self._store(entry)
        except sqlite3.Error as error:
            raise Misused(f"the outbox cannot keep it: {error}; nothing was sent") from None

    def _store(self, entry: Entry) -> Entry:
        with self._writing():
            known = self._find("application_id = ?", entry.application_id)
            for other in self.of_account(entry.identity, entry.account):
                if other.state in OPEN:
                    raise OutcomeUnknown(
                        f"{other.summary} was signed with nonce {other.nonce} and its outcome is "
                        f"unknown: run 'meshnode outbox resume' first; nothing was signed now",
                        application_id=other.application_id,
                    )
                if other.state in USED and other.nonce >= entry.nonce:
                    raise Declined(
                        f"the gateway gives nonce {entry.nonce}, but nonce {other.nonce} was used "
                        f"before ({other.summary}): it is behind, or wrong; nothing was signed"
                    )
            if not known:
                values = [getattr(entry, name.strip()) for name in _COLUMNS.split(",")]
                marks = ", ".join("?" * len(values))
                statement = f"INSERT INTO entries ({_COLUMNS}) VALUES ({marks})"  # noqa: S608
                self._database.execute(statement, values)
                return entry
        return self.move(known[0], "signed")

    def move(
        self,
        entry: Entry,
        state: str,
        *,
        note: str = "",
        height: int | None = None,
        outcome: str | None = None,
    ) -> Entry:
        """Move an entry to another state. A move that MOVES does not allow is ignored."""
        try:
            with self._writing():
                (now,) = self._find("application_id = ?", entry.application_id)
                if state in MOVES[now.state] or state == now.state:
                    self._database.execute(
                        "UPDATE entries SET state = ?, note = ?, height = coalesce(?, height),"
                        " outcome = coalesce(?, outcome) WHERE application_id = ?",
                        (state, note, height, outcome, entry.application_id),
                    )
                (now,) = self._find("application_id = ?", entry.application_id)
        except sqlite3.Error as error:
            raise OutcomeUnknown(f"the outbox cannot record what happened: {error}") from None
        return now

    def of_account(self, identity: Identity, account: str) -> list[Entry]:
        """All entries of an account, oldest first."""
        return self._find("genesis_sha256 = ? AND account = ?", identity.genesis_sha256, account)

    def recent(self, limit: int) -> list[Entry]:
        """The newest entries, newest first, of all accounts and chains."""
        return self._find("1 ORDER BY rowid DESC LIMIT ?", limit)

    def find(self, prefix: str) -> Entry:
        """The one entry whose application id begins with ``prefix``. Raises Misused otherwise."""
        found = self._find("substr(application_id, 1, length(?1)) = ?1 LIMIT 2", prefix)
        if len(found) != 1:
            raise Misused(f"{'no' if not found else 'more than one'} entry begins with {prefix!r}")
        return found[0]

    def get(self, application_id: str) -> Entry | None:
        """The entry with this application id, if there is one."""
        return next(iter(self._find("application_id = ?", application_id)), None)

    def _find(self, where: str, *values: object) -> list[Entry]:
        order = "" if "ORDER" in where or "LIMIT" in where else " ORDER BY rowid"
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where}{order}"  # noqa: S608 - own text
        return [Entry(*row) for row in self._database.execute(query, values)]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        # The connection commits at the end, and rolls back after an exception.
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield
