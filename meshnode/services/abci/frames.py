"""Frames of the ABCI socket: each message is preceded by its length as a varint."""

from __future__ import annotations

from collections.abc import Iterator

MAX_LENGTH_BYTES = 5
"""Bytes of a varint below 2**32."""
MAX_FRAME_BYTES = 64 * 1024 * 1024
"""The longest message: a block of the largest size that a profile of a network usually has, several
times over. A chunk of a snapshot has 16 MiB at most."""


class InvalidFrame(Exception):
    """The connection carries something else than frames."""


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """``max_bytes`` is the longest message."""
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        """Whether no incomplete message is kept."""
        return not self._buffer

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """The messages that are complete with ``data``. Raises InvalidFrame."""
        self._buffer += data
        start = 0
        try:
            while (found := self._next(start)) is not None:
                first, end = found
                yield bytes(self._buffer[first:end])
                start = end
        finally:
            del self._buffer[:start]

    def _next(self, start: int) -> tuple[int, int] | None:
        length = shift = 0
        for position in range(start, min(len(self._buffer), start + MAX_LENGTH_BYTES)):
            octet = self._buffer[position]
            length |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                if length > self._max_bytes:
                    raise InvalidFrame(f"a message of {length} bytes")
                end = position + 1 + length
                return (position + 1, end) if end <= len(self._buffer) else None
        if shift >= 7 * MAX_LENGTH_BYTES:
            raise InvalidFrame("a length of more than 32 bits")
        return None


def frame(message: bytes) -> bytes:
    """One message with its length."""
    length, head = len(message), bytearray()
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + message
