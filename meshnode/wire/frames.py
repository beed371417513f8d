"""LZ4 frames, with a bound on the decompressed size (interface 8)."""

from __future__ import annotations

from typing import Any

import lz4.frame

from meshnode.domain.errors import InvalidRequest

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_LEVEL = 1
"""The level in the document's example; higher ones gain nothing on numbers that look random."""


def frame(data: bytes) -> bytes:
    """``data`` as one LZ4 frame."""
    framed: bytes = lz4.frame.compress(data, compression_level=LZ4_LEVEL)
    return framed


def unframe(data: bytes, most: int, field: str) -> bytes:
    """Decompress exactly one frame into at most ``most`` bytes. Raises InvalidRequest.

    ``field`` names the bytes in the error message.
    """
    decompressor: Any = lz4.frame.LZ4FrameDecompressor()
    try:
        # One byte more than allowed is requested, to detect a frame that is too large.
        raw: bytes = decompressor.decompress(data, max_length=most + 1)
    except (RuntimeError, EOFError, MemoryError):
        raise InvalidRequest(field, "is not a whole LZ4 frame") from None
    if len(raw) > most:
        raise InvalidRequest(field, f"holds more than the {most} bytes of its shape")
    if not decompressor.eof or decompressor.unused_data:
        raise InvalidRequest(field, "is not a whole LZ4 frame")
    return raw
