"""Databases that consist of a journal: the format of LevelDB, byte by byte."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path

from meshnode.services.engine.leveldb import (
    BLOCK,
    HEADER,
    JournalWriter,
    crc32c,
    write_database,
)


def read_journal(data: bytes) -> list[bytes]:
    """The records of a journal, as LevelDB's documentation says that they are read."""
    records, record, position = [], b"", 0
    while position < len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, position)
        part = data[position + HEADER : position + HEADER + length]
        plain = (checksum - 0xA282EAD8) & 0xFFFFFFFF
        assert (plain >> 17 | plain << 15) & 0xFFFFFFFF == crc32c(bytes([kind]) + part)
        record = part if kind in (1, 2) else record + part
        if kind in (1, 4):
            records.append(record)
        position += HEADER + length
    return records


def test_the_checksum_is_that_of_rfc_3720() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_records_of_any_length_can_be_read() -> None:
    # Those that end just before, at and after the end of a block, and some that span blocks.
    lengths = [0, 1, BLOCK - 3 * HEADER - 1, 0, 5, BLOCK - 5 * HEADER - 6, 1, BLOCK, 70_000, 0]
    lengths += [BLOCK - 2 * HEADER - size for size in range(3)]
    file = BytesIO()
    journal = JournalWriter(file)
    records = [bytes([index]) * length for index, length in enumerate(lengths)]
    for record in records:
        journal.add(record)
    assert read_journal(file.getvalue()) == records


def test_a_database_names_its_journal(tmp_path: Path) -> None:
    write_database(tmp_path / "db", [[(b"a", b"1"), (b"b", b"")], [(b"c", b"3")]])
    assert (tmp_path / "db" / "CURRENT").read_text() == "MANIFEST-000001\n"
    batches = read_journal((tmp_path / "db" / "000002.log").read_bytes())
    assert batches[0] == struct.pack("<QI", 1, 2) + b"\x01\x01a\x011\x01\x01b\x00"
    assert batches[1] == struct.pack("<QI", 3, 1) + b"\x01\x01c\x013"
    (manifest,) = read_journal((tmp_path / "db" / "MANIFEST-000001").read_bytes())
    assert manifest == b"\x01\x1aleveldb.BytewiseComparator\x02\x02\x03\x03\x04\x00"
