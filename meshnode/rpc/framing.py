"""Length-prefixed gRPC messages, reassembled from pieces of any size (gRPC over HTTP/2).

A message on the wire is one byte of flags, four of length (big-endian), and the message.

Invariants: the messages do not depend on how the bytes are split; a bad prefix is reported as soon
as it is complete and nothing after it is kept; no memory is allocated for bytes that have not
arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from meshnode.rpc.errors import Code

PREFIX = struct.Struct(">BI")
FIRST_LOOK, LOOK_AGAIN = 64 * 1024, 4
"""Bytes after which a message is looked at before its end, and the factor to the next look. Each
look begins anew, and takes some milliseconds at most (decision 0130)."""


class FramingError(Exception):
    """The rest of the message stream cannot be read. ``code`` is the status that reports this."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class MessageReader:
    """The receiving half of one call."""

    def __init__(
        self,
        max_bytes: int,
        encoding: str = "identity",
        is_excessive: Callable[[bytearray, int], bool] = lambda begin, size: False,
    ) -> None:
        """``is_excessive`` judges a message by its size and by as much of it as has arrived."""
        self._is_excessive = is_excessive
        self._look_at = FIRST_LOOK
        self._max_bytes = max_bytes
        self._encoding = encoding
        self._buffer = bytearray()
        self._length: int | None = None
        """Length of the first message in the buffer; None until its prefix has been removed."""
        self.problem: FramingError | None = None

    @property
    def waiting(self) -> bool:
        """Whether a complete message is in the buffer."""
        return self._length is not None and len(self._buffer) >= self._length

    @property
    def ready(self) -> bool:
        """Whether :meth:`take` can return a message or raise the problem."""
        return self.problem is not None or self.waiting

    @property
    def partial(self) -> bool:
        """Whether a message has begun and its end is missing."""
        return not self.ready and (self._length is not None or len(self._buffer) > 0)

    def feed(self, data: bytes) -> None:
        """Add received bytes. After a problem they are dropped."""
        if self.problem is None:
            self._buffer += data
            self._read_prefix()
            if len(self._buffer) >= self._look_at:
                self._look()

    def take(self) -> bytearray:
        """Return the next message, or raise the problem. Call it only when :attr:`ready`."""
        if self.problem is not None:
            raise self.problem
        length = self._length
        if length is None or len(self._buffer) < length:
            raise RuntimeError("no message is complete")
        if len(self._buffer) == length:
            # The common case, and the only one for a large unary message: nothing is copied.
            message, self._buffer = self._buffer, bytearray()
        else:
            message = self._buffer[:length]
            del self._buffer[:length]
        self._length, self._look_at = None, FIRST_LOOK
        self._read_prefix()
        return message

    def discard(self) -> None:
        """Drop all buffered bytes."""
        self._buffer = bytearray()
        self._length = None

    def _read_prefix(self) -> None:
        if self._length is not None or len(self._buffer) < PREFIX.size:
            return
        flags, length = PREFIX.unpack_from(self._buffer)
        self.problem = self._judge(flags, length)
        if self.problem is not None:
            self.discard()
            return
        del self._buffer[: PREFIX.size]
        self._length = length

    def _look(self) -> None:
        """Refuse a message that is beyond its limits, without waiting for its end."""
        self._look_at = LOOK_AGAIN * len(self._buffer)
        if self._length is None or len(self._buffer) >= self._length:
            # What is complete is judged when it is parsed.
            return
        if self._is_excessive(self._buffer, self._length):
            text = "message with too many entries, or too much beside its tensors"
            self.problem = FramingError(Code.INVALID_ARGUMENT, text)
            self.discard()

    def _judge(self, flags: int, length: int) -> FramingError | None:
        if length > self._max_bytes:
            text = f"message of {length} bytes is larger than the limit of {self._max_bytes}"
            return FramingError(Code.RESOURCE_EXHAUSTED, text)
        # "A compressed message whose encoding the receiver does not know ends as UNIMPLEMENTED; one
        # without an encoding at all as INTERNAL."
        if flags == 1 and self._encoding != "identity":
            return FramingError(Code.UNIMPLEMENTED, "compressed messages are not supported")
        if flags:
            return FramingError(Code.INTERNAL, "message with flags that do not fit its encoding")
        return None


def prefix(message: bytes) -> bytes:
    """The five bytes before an uncompressed message."""
    return PREFIX.pack(0, len(message))
