"""Checks at the start that a ledger's file is as it was written (decision 0071).

====================  ====================================================================
part of the file      is compared with
====================  ====================================================================
pages                 SQLite's own structure
blocks                their checksums; their heights have no gap
transactions' places  the blocks: each transaction is indexed at its own place
sets of validators    the hashes by which headers name them
====================  ====================================================================

The state is checked by the keeper, which computes its root from the entries and compares it with
the stored one. Older blocks of a large file are not checked; they carry their own hashes, and a
damaged one is refused when it is read.
"""

from __future__ import annotations

import sqlite3

from meshnode.domain.chain.errors import LedgerBroken
from meshnode.services.ledger.records import read_names, read_validators
from meshnode.services.ledger.tables import Tables

CHECKED_WHOLE_BYTES = 256 * 1024 * 1024
"""Up to this size, a start checks the whole file, which takes some seconds."""
RECENT_BLOCKS = 10_000
"""Newest blocks that are checked in a larger file: a wallet asks only about recent transactions."""

Place = tuple[int, int]


def require_sound(connection: sqlite3.Connection, size: int) -> None:
    """Raise LedgerBroken, or an error of SQLite's, unless the file of ``size`` bytes is sound."""
    large = size > CHECKED_WHOLE_BYTES
    pages = "PRAGMA quick_check(state)" if large else "PRAGMA quick_check(1)"
    if connection.execute(pages).fetchone() != (b"ok",):
        raise LedgerBroken("a page is damaged")
    (tip,) = connection.execute("SELECT coalesce(max(height), 0) FROM blocks").fetchone()
    first = 1 + Tables(connection).base.height
    _require_blocks(connection, max(first, tip - RECENT_BLOCKS) if large else first)
    for set_hash, members in connection.execute("SELECT hash, members FROM validators"):
        read_validators(set_hash, members)


def _require_blocks(connection: sqlite3.Connection, first: int) -> None:
    question = (
        "SELECT height, block, decided, outcome, checksum FROM blocks "
        "WHERE height >= ? ORDER BY height"
    )
    for due, (height, *parts, checksum) in enumerate(connection.execute(question, (first,)), first):
        if height != due:
            raise LedgerBroken(f"the block {due} is missing")
        for position, name in enumerate(read_names(height, parts, checksum)):
            _require_place(connection, name, (height, position))


def _require_place(connection: sqlite3.Connection, name: bytes, place: Place) -> None:
    question = "SELECT height, position FROM transactions WHERE hash = ?"
    found: Place | None = connection.execute(question, (name,)).fetchone()
    if found == place:
        return
    # A transaction that failed in this block may be in a later one too.
    if found is None or found < place or name != _name_at(connection, found):
        raise LedgerBroken(f"a transaction of the block {place[0]} is not found")


def _name_at(connection: sqlite3.Connection, place: Place) -> bytes | None:
    question = "SELECT block, decided, outcome, checksum FROM blocks WHERE height = ?"
    row = connection.execute(question, (place[0],)).fetchone()
    names = [] if row is None else read_names(place[0], row[:3], row[3])
    return names[place[1]] if 0 <= place[1] < len(names) else None
