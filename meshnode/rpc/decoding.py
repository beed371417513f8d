"""From the bytes of a message to the message (interface 4.3; decision 0130).

protobuf holds the interpreter lock while it parses. A large message is therefore parsed in a
thread, a few fields at a time: protobuf reads the fields of a message as if they came in several
messages that it merges, and the event loop takes its turns in between.

Invariant: nothing is parsed that exceeds the limits of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio
from google.protobuf.message import DecodeError, Message

from meshnode.rpc.errors import CallFailed, Code, RpcError
from meshnode.rpc.message_limits import limits_of
from meshnode.turns import counted
from meshnode.wire.scan import Malformed, TooMany, scan

M = TypeVar("M", bound=Message)

IN_PLACE_BYTES = 64 * 1024
"""Messages up to this size are scanned and parsed in 10 ms, whatever is in them."""
PIECE_BYTES = 4 * 1024 * 1024
"""Parsing this much holds the interpreter lock for a few milliseconds."""

_parsing = trio.CapacityLimiter(1)
"""Large messages parsed at once; more threads would only take the lock from the loop more often."""


async def decode(kind: type[M], data: bytearray, error: Callable[[Code, str], RpcError]) -> M:
    """The message of a kind that ``data`` encodes. Consumes ``data``.

    Raises ``error`` with INVALID_ARGUMENT, also if it exceeds the limits of its kind: sending it
    again would not help.
    """
    try:
        if len(data) <= IN_PLACE_BYTES:
            return _parse(kind, data)
        parse = counted(partial(_parse, kind, data))
        return await trio.to_thread.run_sync(parse, limiter=_parsing, abandon_on_cancel=True)
    except TooMany:
        text = f"{kind.DESCRIPTOR.name} has too many entries, or too much beside its tensors"
        raise error(Code.INVALID_ARGUMENT, text) from None
    except (Malformed, DecodeError):
        text = f"the message is not {kind.DESCRIPTOR.name}"
        raise error(Code.INVALID_ARGUMENT, text) from None


def unusable_answer(_: Code, message: str) -> CallFailed:
    """The failure of a call whose answer cannot be read.

    Another code would say that this node's own request was wrong.
    """
    return CallFailed(Code.INTERNAL, f"the peer's answer cannot be read: {message}")


def _parse(kind: type[M], data: bytearray) -> M:
    limits = limits_of(kind)
    message = kind()
    # No entry takes less than a byte, so most messages cannot exceed their limits.
    if len(data) <= min(limits.entries, limits.overhead):
        message.ParseFromString(data)  # type: ignore[arg-type]
        return message
    begins = scan(data, kind, limits)
    if len(data) <= PIECE_BYTES:
        message.ParseFromString(data)  # type: ignore[arg-type]
        return message
    for size in _pieces(begins, len(data)):
        if 2 * size > len(data):
            # The rest is smaller than the piece, so the rest is what gets copied.
            piece, rest = data, data[size:]
            del piece[size:]
            data = rest
        else:
            piece = data[:size]
            del data[:size]
        message.MergeFromString(piece)  # type: ignore[arg-type]
    return message


def _pieces(begins: list[int], size: int) -> list[int]:
    """Sizes of pieces that end where fields end: at most PIECE_BYTES, or one field that is larger.

    ``begins`` are the offsets of the fields in ``size`` bytes.
    """
    sizes, first, last = [], 0, 0
    for end in (*begins[1:], size):
        if end - first > PIECE_BYTES and last > first:
            sizes.append(last - first)
            first = last
        last = end
    return [*sizes, size - first]
