"""Tensors as bytes in the pipeline's messages (interface 2.3; decision 0032).

A tensor is row-major and little-endian; its shape stands beside it in the message. Floating-point
numbers are float32, or bfloat16 where the bytes are half as many. Bytes that begin with the magic
number of an LZ4 frame are one such frame around the tensor.

Invariants: callers check the shape first, and the shape bounds the size before any byte is
decompressed; numbers that are read are finite; reading gives back what was written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshnode.domain.errors import InvalidRequest
from meshnode.wire.frames import LZ4_MAGIC, frame, unframe

LARGE = 256 * 1024
"""A tensor of this many bytes takes 0.1 ms to (de)serialise; from here on a thread does it."""

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


def pack_floats(values: Floats, *, half: bool = False, compress: bool = False) -> bytes:
    """float32 values as bytes. ``half`` rounds them to bfloat16; ``compress`` tries LZ4."""
    data = (to_bfloat16(values) if half else values.astype("<f4", copy=False)).tobytes()
    return _framed(data, compress=compress)


def unpack_floats(data: bytes, shape: Sequence[int], field: str) -> Floats:
    """float32 values of a shape that the caller has checked. Raises InvalidRequest.

    ``field`` names the bytes in the error message.
    """
    count = math.prod(shape)
    raw = _plain(data, 4 * count, field)
    if len(raw) == 4 * count:
        values = np.frombuffer(raw, "<f4").astype(np.float32)
    elif len(raw) == 2 * count:
        values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        raise InvalidRequest(field, f"{len(raw)} bytes do not fit the shape {list(shape)}")
    if not np.isfinite(values).all():
        raise InvalidRequest(field, "has numbers that are not finite")
    return values.reshape(shape)


def pack_integers(values: Integers, *, compress: bool = False) -> bytes:
    """int64 values as bytes."""
    return _framed(values.astype("<i8", copy=False).tobytes(), compress=compress)


def unpack_integers(data: bytes, shape: Sequence[int], field: str) -> Integers:
    """int64 values of a shape that the caller has checked. Raises InvalidRequest."""
    size = 8 * math.prod(shape)
    raw = _plain(data, size, field)
    if len(raw) != size:
        raise InvalidRequest(field, f"{len(raw)} bytes do not fit the shape {list(shape)}")
    return np.frombuffer(raw, "<i8").astype(np.int64).reshape(shape)


def all_ones(data: bytes, count: int) -> bool:
    """Whether ``data`` is ``count`` ones, each of one byte or of eight."""
    if len(data) == count:
        return data == b"\x01" * count
    return len(data) == 8 * count and data == b"\x01\0\0\0\0\0\0\0" * count


def _framed(data: bytes, *, compress: bool) -> bytes:
    # Bytes that happen to begin like a frame must be compressed, or a reader would unpack them.
    must = data.startswith(LZ4_MAGIC)
    if not (compress or must):
        return data
    framed = frame(data)
    return framed if must or len(framed) < len(data) else data


def _plain(data: bytes, most: int, field: str) -> bytes:
    """Decompress a frame into at most ``most`` bytes; return bytes that are not a frame as is."""
    if not data.startswith(LZ4_MAGIC):
        return data
    return unframe(data, most, field)


def to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """Round to the nearest, ties to even; finite values stay finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    largest = (bits & np.uint32(0x80000000)) >> 16 | np.uint32(0x7F7F)
    overflow = (rounded & np.uint32(0x7F80)) == np.uint32(0x7F80)
    return np.where(overflow, largest, rounded).astype("<u2")
