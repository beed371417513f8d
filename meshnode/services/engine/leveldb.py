"""A new LevelDB database, written as its journal alone.

LevelDB (https://github.com/google/leveldb, doc/log_format.md) keeps what was written last in a
journal and reads it at each start. A database that consists of a manifest and one journal is
therefore complete; the engine turns it into tables when it opens it. Nothing here reads or changes
a database that exists.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from meshnode.domain.chain.comet.proto import varint

BLOCK = 32 * 1024
HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
COMPARATOR = b"leveldb.BytewiseComparator"
_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8


def _table() -> list[int]:
    table = []
    for octet in range(256):
        value = octet
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum."""
    table, value = _TABLE, 0xFFFFFFFF
    for octet in data:
        value = table[(value ^ octet) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(value: int) -> int:
    return ((value >> 15 | value << 17) + _MASK) & 0xFFFFFFFF


class JournalWriter:
    """Writes records in the format of journals and manifests."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._used = 0

    def add(self, record: bytes) -> None:
        """Write one record."""
        start, first = 0, True
        while first or start < len(record):
            room = BLOCK - self._used
            if room < HEADER:
                self._file.write(b"\0" * room)
                self._used, room = 0, BLOCK
            part = record[start : start + room - HEADER]
            start += len(part)
            last = start == len(record)
            kind = (FULL if last else FIRST) if first else (LAST if last else MIDDLE)
            checksum = _masked(crc32c(bytes([kind]) + part))
            self._file.write(struct.pack("<IHB", checksum, len(part), kind) + part)
            self._used += HEADER + len(part)
            first = False


def write_database(folder: Path, batches: Iterable[list[tuple[bytes, bytes]]]) -> None:
    """Make a database of ``batches`` of keys and values. Raises OSError."""
    folder.mkdir(mode=0o700)
    with (folder / "000002.log").open("xb") as file:
        journal, sequence = JournalWriter(file), 1
        for batch in batches:
            parts = [struct.pack("<QI", sequence, len(batch))]
            for key, value in batch:
                parts += (b"\x01", varint(len(key)), key, varint(len(value)), value)
            journal.add(b"".join(parts))
            sequence += len(batch)
    manifest = b"".join(
        (
            *(varint(1), varint(len(COMPARATOR)), COMPARATOR),
            *(varint(2), varint(2)),  # the journal's number
            *(varint(3), varint(3)),  # the next file's number
            *(varint(4), varint(0)),  # what is in tables
        )
    )
    with (folder / "MANIFEST-000001").open("xb") as file:
        JournalWriter(file).add(manifest)
    (folder / "CURRENT").write_text("MANIFEST-000001\n")
