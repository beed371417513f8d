"""LZ4 frames, with the size of what comes out bounded beforehand (document, section 8)."""

from __future__ import annotations

from typing import Any

import lz4.frame

from meshnode.domain.errors import InvalidRequest

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_LEVEL = 1
"""The document's example uses it: as good as any for numbers that look random."""


def frame(data: bytes) -> bytes:
    """``data`` as one LZ4 frame."""
    framed: bytes = lz4.frame.compress(data, compression_level=LZ4_LEVEL)
    return framed


def unframe(data: bytes, most: int, field: str) -> bytes:
    """The bytes inside of exactly one frame, ``most`` at most. Raises InvalidRequest.

    ``field`` names the bytes in what the sender is told.
    """
    decompressor: Any = lz4.frame.LZ4FrameDecompressor()
    try:
        # One byte more than may come out tells a frame that is too large from one that is not.
        raw: bytes = decompressor.decompress(data, max_length=most + 1)
    except (RuntimeError, EOFError, MemoryError):
        raise InvalidRequest(field, "is not a whole LZ4 frame") from None
    if len(raw) > most:
        raise InvalidRequest(field, f"holds more than the {most} bytes of its shape")
    if not decompressor.eof or decompressor.unused_data:
        raise InvalidRequest(field, "is not a whole LZ4 frame")
    return raw
