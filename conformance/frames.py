"""How files, frames and compressed data begin, and where an LZ4 frame ends.

The document shows no form of a tensor, and LZ4 frames for what is large. Only their outline is
read here: what the blocks of a frame contain stays compressed.
"""

import struct

# How an LZ4 frame begins.
LZ4_MAGIC = b"\x04\x22\x4d\x18"
# How files, frames and compressed data begin; their length is not that of the raw values.
MAGIC = (
    LZ4_MAGIC, b"\x93NUMPY", b"PK\x03\x04", b"\x80", b"\x28\xb5\x2f\xfd", b"\x1f\x8b",
    b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"[", b"{",
)  # fmt: skip
# What the byte behind the magic number says of a frame.
_VERSION, _THIS = 0xC0, 0x40
INDEPENDENT, BLOCK_SUMS, SIZED, SUM, _DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
# The highest bit of the size of a block says that it is not compressed.
STORED = 1 << 31
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_BITS = 0xFFFFFFFF


def is_framed(data: bytes) -> bool:
    """Return whether bytes may be something else than the raw values of a tensor."""
    return data.startswith(MAGIC) or b"{" in data[8:10]


def frame_fault(data: bytes) -> str | None:
    """Return why bytes are not whole LZ4 frames, one after another, or None."""
    at = 0
    while at < len(data) or not data:
        if data[at : at + len(LZ4_MAGIC)] != LZ4_MAGIC:
            where = "they begin" if at == 0 else f"behind {at} bytes they go on"
            return f"{where} with {data[at : at + 8].hex() or 'nothing'}, and not as an LZ4 frame"
        end = _end_of(data, at + len(LZ4_MAGIC))
        told, own = _checksums(data, at + len(LZ4_MAGIC))
        if told != own:
            return f"the checksum of the descriptor of an LZ4 frame is {told:#04x}, not {own:#04x}"
        if end is None:
            return f"an LZ4 frame has no end within {len(data)} bytes"
        at = end
    return None


def described(flags: int) -> int:
    """Return how long a descriptor is: flags, the largest size of a block, what is optional."""
    return 2 + (8 if flags & SIZED else 0) + (4 if flags & _DICTIONARY else 0)


def _checksums(data: bytes, at: int) -> tuple[int, int]:
    """Return the checksum behind the descriptor at this place, and the one that it has."""
    length = described(data[at]) if at < len(data) else 0
    if not length or at + length >= len(data):
        return 0, 0
    return data[at + length], checksum_of(data[at : at + length]) >> 8 & 255


def _end_of(data: bytes, at: int) -> int | None:
    """Return where the frame ends whose descriptor is at this place; None if the end is missing."""
    flags = data[at] if at < len(data) else 0
    if flags & _VERSION != _THIS:
        return None
    # The last byte is the checksum of the descriptor.
    at += described(flags) + 1
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little") & ~STORED
        at += 4
        if size == 0:
            at += 4 if flags & SUM else 0
            return at if at <= len(data) else None
        at += size + (4 if flags & BLOCK_SUMS else 0)
    return None


def _turned(value: int, by: int) -> int:
    value &= _BITS
    return (value << by | value >> 32 - by) & _BITS


def checksum_of(content: bytes) -> int:
    """Return the checksum of LZ4 frames, which is the XXH32 with the seed 0."""
    one, two, three, four, five = _PRIMES
    at = 0
    if len(content) >= 16:
        sums = [one + two & _BITS, two, 0, -one & _BITS]
        while at + 16 <= len(content):
            read = struct.unpack_from("<4I", content, at)
            sums = [
                _turned(each + word * two, 13) * one & _BITS
                for each, word in zip(sums, read, strict=True)
            ]
            at += 16
        total = sum(_turned(each, by) for each, by in zip(sums, (1, 7, 12, 18), strict=True))
    else:
        total = five
    total += len(content)
    while at + 4 <= len(content):
        (word,) = struct.unpack_from("<I", content, at)
        total, at = _turned(total + word * three, 17) * four, at + 4
    for byte in content[at:]:
        total = _turned(total + byte * five, 11) * one
    total &= _BITS
    total = (total ^ total >> 15) * two & _BITS
    total = (total ^ total >> 13) * three & _BITS
    return total ^ total >> 16
