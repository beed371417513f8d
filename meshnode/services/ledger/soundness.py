"""Whether a ledger's file says what was written: a start looks before it believes (decision 0071).

====================  ====================================================================
what                  is held against
====================  ====================================================================
pages                 SQLite's own structure
blocks                their checksums; their heights have no gap
transactions' places  the blocks: each transaction is found where it is
sets of validators    the hashes that headers name them by
state                 its root, which the keeper compares with the last block as well
====================  ====================================================================

What is not looked at here carries its own hash and is refused when it is read.
"""

from __future__ import annotations

import sqlite3

from meshnode.domain.chain.errors import LedgerBroken
from meshnode.services.ledger.records import read_names, read_validators

CHECKED_WHOLE_BYTES = 256 * 1024 * 1024
"""Up to this size, some seconds, a start looks at everything in the file."""
RECENT_BLOCKS = 10_000
"""Looked at in a larger one: a wallet asks only about what it signed lately."""

Place = tuple[int, int]


def require_sound(connection: sqlite3.Connection, size: int) -> None:
    """LedgerBroken, or an error of SQLite's, unless the file of ``size`` bytes is whole."""
    large = size > CHECKED_WHOLE_BYTES
    pages = "PRAGMA quick_check(state)" if large else "PRAGMA quick_check(1)"
    if connection.execute(pages).fetchone() != (b"ok",):
        raise LedgerBroken("a page is damaged")
    (tip,) = connection.execute("SELECT coalesce(max(height), 0) FROM blocks").fetchone()
    _require_blocks(connection, max(1, tip - RECENT_BLOCKS) if large else 1)
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
    # The same bytes may be in a later block too, when they failed in this one.
    if found is None or found < place or name != _name_at(connection, found):
        raise LedgerBroken(f"a transaction of the block {place[0]} is not found")


def _name_at(connection: sqlite3.Connection, place: Place) -> bytes | None:
    question = "SELECT block, decided, outcome, checksum FROM blocks WHERE height = ?"
    row = connection.execute(question, (place[0],)).fetchone()
    names = [] if row is None else read_names(place[0], row[:3], row[3])
    return names[place[1]] if 0 <= place[1] < len(names) else None
