"""LZ4 frames of one content that are written in the ways that the format allows.

Programs that write such frames choose among them: blocks that may refer to those before or may
not, larger or smaller ones, stored or compressed, with the size of the content or its checksum.
"""

import struct
from collections.abc import Iterator

from conformance.frames import (
    BLOCK_SUMS,
    INDEPENDENT,
    LZ4_MAGIC,
    SIZED,
    STORED,
    SUM,
    checksum_of,
)

# What the byte behind the magic number says beside the flags: the version of the format.
VERSION = 0x40
# Blocks of 64 KiB and of 4 MiB.
SMALL, LARGE = 0x40, 0x70
MOST = 64 * 1024


def forms_of(content: bytes, *, block_sums: bool = True) -> Iterator[tuple[str, bytes]]:
    """Yield frames of a content of at most 64 KiB, each with what is special in it.

    With ``block_sums`` one of them has a checksum of its block.
    """
    if not 0 < len(content) <= MOST:
        return
    whole, half = stored(content), len(content) // 2
    yield "blocks that may be linked", _frame(VERSION, LARGE, whole)
    yield "blocks of 64 KiB", _frame(VERSION | INDEPENDENT, SMALL, whole)
    parts = b"".join(stored(part) for part in (content[:half], content[half:]) if part)
    yield "two blocks", _frame(VERSION | INDEPENDENT, LARGE, parts)
    size = struct.pack("<Q", len(content))
    yield "its size", _frame(VERSION | INDEPENDENT | SIZED, LARGE, whole, size)
    checksum = struct.pack("<I", checksum_of(content))
    yield "a checksum", _frame(VERSION | INDEPENDENT | SUM, LARGE, whole) + checksum
    if block_sums:
        flags = VERSION | INDEPENDENT | BLOCK_SUMS
        yield "a checksum of its block", _frame(flags, LARGE, whole + checksum)
    if not any(content) and len(content) >= len(_zeros(0)) + 4 + 15:
        yield "a compressed block", _frame(VERSION | INDEPENDENT, LARGE, _compressed(len(content)))


def _frame(flags: int, most: int, blocks: bytes, size: bytes = b"") -> bytes:
    descriptor = bytes([flags, most]) + size
    return LZ4_MAGIC + descriptor + bytes([checksum_of(descriptor) >> 8 & 255]) + blocks + bytes(4)


def stored(content: bytes) -> bytes:
    """Return a block with the content as it is."""
    return struct.pack("<I", STORED | len(content)) + content


def _zeros(more: int) -> bytes:
    """Return a compressed block: a zero, more than 18 that repeat it, and five as they are."""
    longer = b"\xff" * (more // 255) + bytes([more % 255])
    return b"\x1f\x00\x01\x00" + longer + b"\x50" + bytes(5)


def _compressed(count: int) -> bytes:
    block = _zeros(count - 1 - 19 - 5)
    return struct.pack("<I", len(block)) + block
