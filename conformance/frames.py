"""How files, frames and compressed data begin, and where an LZ4 frame ends.

The document shows no form of a tensor, and LZ4 frames for what is large. Only their outline is
read here: what the blocks of a frame contain stays compressed.
"""

# How an LZ4 frame begins.
LZ4_MAGIC = b"\x04\x22\x4d\x18"
# How files, frames and compressed data begin; their length is not that of the raw values.
MAGIC = (
    LZ4_MAGIC, b"\x93NUMPY", b"PK\x03\x04", b"\x80", b"\x28\xb5\x2f\xfd", b"\x1f\x8b",
    b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"[", b"{",
)  # fmt: skip
# What the byte behind the magic number says of a frame.
_VERSION, _THIS = 0xC0, 0x40
_BLOCK_SUMS, _SIZED, _SUM, _DICTIONARY = 0x10, 0x08, 0x04, 0x01
# The highest bit of the size of a block says that it is not compressed.
_STORED = 1 << 31


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
        if end is None:
            return f"an LZ4 frame has no end within {len(data)} bytes"
        at = end
    return None


def _end_of(data: bytes, at: int) -> int | None:
    """Return where the frame ends whose descriptor is at this place; None if the end is missing."""
    flags = data[at] if at < len(data) else 0
    if flags & _VERSION != _THIS:
        return None
    # The flags, the largest size of a block, what is optional, and the checksum of these.
    at += 2 + (8 if flags & _SIZED else 0) + (4 if flags & _DICTIONARY else 0) + 1
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little") & ~_STORED
        at += 4
        if size == 0:
            at += 4 if flags & _SUM else 0
            return at if at <= len(data) else None
        at += size + (4 if flags & _BLOCK_SUMS else 0)
    return None
