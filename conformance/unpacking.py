"""What LZ4 frames contain, and whether their blocks and checksums fit it.

The document shows LZ4 frames for what is large, and the suite needs no library to read them. It
reads the smaller ones: of more than `MOST` bytes nothing is unpacked.
"""

import struct
from dataclasses import dataclass

from conformance.frames import (
    BLOCK_SUMS,
    INDEPENDENT,
    LZ4_MAGIC,
    SIZED,
    STORED,
    SUM,
    checksum_of,
    described,
)

# So many bytes are unpacked at most, of a frame and of what it contains.
MOST = 4 * 1024 * 1024
# As far back a block may refer to those before it.
_WINDOW = 65_536
# A length of so much goes on in the bytes behind it; a copy has at least four bytes.
_LONG, _SHORTEST = 15, 4


class BadFrame(Exception):
    """A frame contradicts itself; the text says how."""


class TooLarge(Exception):
    """A frame has more than is unpacked here."""


@dataclass
class _Reader:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises `BadFrame` if there are fewer."""
        if self.at + count > len(self.data):
            raise BadFrame(f"{count} bytes are missing behind {self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, count: int) -> int:
        """Return the next bytes as a number, little-endian."""
        return int.from_bytes(self.take(count), "little")


def unpacked(data: bytes) -> bytes:
    """Return the content of whole LZ4 frames, one after another.

    Raises `BadFrame`, and `TooLarge` for more than `MOST` bytes.
    """
    if len(data) > MOST:
        raise TooLarge
    reader, content = _Reader(data), bytearray()
    while reader.at < len(data):
        content += _frame(reader, MOST - len(content))
    return bytes(content)


def content_fault(data: bytes) -> str | None:
    """Return why frames contradict themselves, or None; those that are large are not read."""
    try:
        unpacked(data)
    except BadFrame as reason:
        return str(reason)
    except TooLarge:
        pass
    return None


def _frame(reader: _Reader, room: int) -> bytes:
    if reader.take(len(LZ4_MAGIC)) != LZ4_MAGIC:
        raise BadFrame("it does not begin as an LZ4 frame")
    flags = reader.data[reader.at] if reader.at < len(reader.data) else 0
    descriptor = reader.take(described(flags) + 1)
    content = bytearray()
    while size := reader.number(4):
        block = reader.take(size & ~STORED)
        if flags & BLOCK_SUMS and reader.number(4) != checksum_of(block):
            raise BadFrame("the checksum of a block is that of another one")
        before = b"" if flags & INDEPENDENT else bytes(content[-_WINDOW:])
        content += block if size & STORED else _block(block, before, room - len(content))
        if len(content) > room:
            raise TooLarge
    if flags & SUM and reader.number(4) != checksum_of(bytes(content)):
        raise BadFrame("its checksum is that of another content")
    if flags & SIZED and (told := struct.unpack_from("<Q", descriptor, 2)[0]) != len(content):
        raise BadFrame(f"it says that it contains {told} bytes, and contains {len(content)}")
    return bytes(content)


def _block(block: bytes, before: bytes, room: int) -> bytes:
    """Return what a compressed block contains, behind the bytes before it."""
    reader, made = _Reader(block), bytearray(before)
    while reader.at < len(block):
        token = reader.number(1)
        made += reader.take(_length(reader, token >> 4))
        if reader.at == len(block):
            break
        back = reader.number(2)
        count = _length(reader, token & _LONG) + _SHORTEST
        if not 0 < back <= len(made):
            raise BadFrame(f"a block refers to {back} bytes before, where there are {len(made)}")
        if len(made) - len(before) + count > room:
            raise TooLarge
        piece = bytes(made[-back:])
        made += (piece * (count // back + 1))[:count]
    return bytes(made[len(before) :])


def _length(reader: _Reader, begun: int) -> int:
    length, more = begun, 255
    while begun == _LONG and more == 255:
        more = reader.number(1)
        length += more
    return length
