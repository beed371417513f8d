"""The values of ``layer_gradients``: one tensor's pseudo-gradient as bytes (interface 2.3).

A value begins with a header, or is an LZ4 frame of raw float32 (decision 0096). All numbers are
little-endian; decision 0190 has a worked example.

=======  ======================================================================================
bytes    header
=======  ======================================================================================
0 to 3   ``mng1``
4        format: 0 float32, 1 int8, 2 sparse
5        dimensions of the tensor, at most 8
6 to 7   values in a block, 1 to 4096; 0 for float32
8 to 9   values kept of a full block, 1 to 4096; 0 for float32 and int8
10, 11   0
12       the shape, 4 bytes for each dimension
=======  ======================================================================================

The rest depends on the format. The flat tensor is cut into blocks; the last may be shorter.

- float32: one LZ4 frame of the raw numbers.
- int8: for each block its scale as float32; then for each value one signed byte, -127 to 127. A
  value is its byte times the scale.
- sparse: of each block of ``n`` values ``ceil(n * kept / block)`` are kept, all others are zero.
  For each block two magnitudes as bfloat16, the lower one first; then for each kept value its index
  in its block, 12 bits, ascending; then for each 2 bits: 1 for the higher magnitude, 2 for a
  negative sign. Bits fill bytes from the lowest up.

Invariants: the shape bounds every size before anything is allocated; what is read is finite; two
readers of the same bytes get the same bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from meshnode.domain.errors import InvalidRequest
from meshnode.wire.frames import LZ4_MAGIC, frame
from meshnode.wire.tensors import Floats, to_bfloat16, unpack_floats

MAGIC = b"mng1"
MAX_DIMENSIONS = 8
MAX_BLOCK = 4096
"""An index in a block has 12 bits."""
BLOCK, KEPT = 4096, 64
"""What this node sends of a large model: 0.028 bytes for each parameter, up to 3.6 billion."""
MOST_KEPT = 2048
"""What it sends of a small one: 0.88 bytes for each parameter."""
BUDGET = 4 * 1024 * 1024
"""Bytes of a contribution up to which more than ``KEPT`` values of a block are sent."""
LARGEST = 98 * 1024 * 1024
"""Bytes of a contribution at most, since it travels in one message (interface 8)."""
AUTO = "auto"
_HEADER = struct.Struct("<4sBBHHH")
_SLICE = 256
"""Blocks that are searched at a time: four MiB of values."""


class Format(IntEnum):
    """How the values of a tensor are written."""

    FLOAT32 = 0
    INT8 = 1
    SPARSE = 2


BYTES = {Format.FLOAT32: 4.0, Format.INT8: 1 + 4 / BLOCK, Format.SPARSE: 116 / BLOCK}
"""What a parameter of a large tensor takes. Numbers that look random do not compress."""


@dataclass(frozen=True, slots=True)
class SparseValues:
    """The kept values of a tensor; all others are zero."""

    shape: tuple[int, ...]
    indices: NDArray[np.int64]
    """In the flat tensor, ascending."""
    values: Floats
    """Of the same length."""

    def dense(self) -> Floats:
        """The whole tensor."""
        flat = np.zeros(math.prod(self.shape), np.float32)
        flat[self.indices] = self.values
        return flat.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Packing:
    """How a contribution is written."""

    kind: Format
    kept: int = KEPT
    """Values of a block that are sent, if it is sparse."""

    @property
    def share(self) -> float:
        """The share of the values that is sent."""
        return self.kept / BLOCK if self.kind is Format.SPARSE else 1.0

    def bytes_of(self, parameters: int) -> int:
        """What a contribution of a model of so many parameters takes, about."""
        if self.kind is not Format.SPARSE:
            return math.ceil(BYTES[self.kind] * parameters)
        # Two magnitudes for each block, and 14 bits for each value.
        return math.ceil(parameters / BLOCK * (4 + self.kept * 14 / 8))


def packing_of(setting: str, parameters: int, most_bytes: float = math.inf) -> Packing:
    """The packing that ``training.gradients`` means for a model of so many parameters.

    ``auto`` is int8 where that fits the budget, and sparse otherwise. A contribution has about
    ``most_bytes`` at most, and never more than fits in a message, unless the setting is another
    format than sparse, or one value of each block is too much.
    """
    budget = min(BUDGET, most_bytes)
    kind = Format.INT8 if BYTES[Format.INT8] * parameters <= budget else Format.SPARSE
    if setting != AUTO:
        kind = Format[setting.upper()]
    kept = max(KEPT, min(MOST_KEPT, _fitting(BUDGET, parameters)))
    return Packing(kind, max(1, min(kept, _fitting(min(most_bytes, LARGEST), parameters))))


def _fitting(most_bytes: float, parameters: int) -> int:
    """How many values of each block fit."""
    # Four bytes of magnitudes, and 14 bits for each value.
    return int((most_bytes * BLOCK / max(1, parameters) - 4) * 8 / 14)


def pack_float32(values: Floats) -> bytes:
    """A tensor as one LZ4 frame without a header, which every node reads."""
    return frame(values.astype("<f4", copy=False).tobytes())


def pack_int8(values: Floats, block: int = BLOCK) -> bytes:
    """A finite tensor, one byte for each value."""
    flat = np.ascontiguousarray(values).reshape(-1)
    starts = range(0, flat.size, block)
    largest = np.array([np.abs(flat[at : at + block]).max() for at in starts], np.float32)
    # Never zero, so that every quotient is a number.
    scales = np.maximum(largest / np.float32(127), np.finfo(np.float32).tiny).astype("<f4")
    quotients = np.rint(flat / _repeated(scales, flat.size, block))
    body: bytes = scales.tobytes() + np.clip(quotients, -127, 127).astype(np.int8).tobytes()
    return _header(Format.INT8, values.shape, block, 0) + body


def pack_sparse(values: Floats, block: int = BLOCK, kept: int = KEPT) -> bytes:
    """The values of largest magnitude of each block of a finite tensor."""
    flat = np.ascontiguousarray(values).reshape(-1)
    full = flat.size // block
    parts = [
        _pick(flat[first * block : min(full, first + _SLICE) * block].reshape(-1, block), kept)
        for first in range(0, full, _SLICE)
    ]
    if flat.size % block:
        rest = flat[full * block :].reshape(1, -1)
        parts.append(_pick(rest, _kept_of(rest.size, block, kept)))
    levels, indices, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
    body = levels.astype("<u2").tobytes() + _pack12(indices) + _pack2(codes)
    return _header(Format.SPARSE, values.shape, block, kept) + body


def unpack_gradient(data: bytes, shape: Sequence[int], field: str) -> Floats | SparseValues:
    """The gradient of a tensor of this shape. Raises InvalidRequest.

    ``field`` names the bytes in the error message.
    """
    if data.startswith(LZ4_MAGIC):
        return unpack_floats(data, shape, field)
    kind, block, kept, body = _read_header(data, tuple(shape), field)
    count = math.prod(shape)
    if kind is Format.FLOAT32:
        framed = bytes(body)
        if not framed.startswith(LZ4_MAGIC):
            raise InvalidRequest(field, "is not a whole LZ4 frame")
        return unpack_floats(framed, shape, field)
    if kind is Format.INT8:
        return _read_int8(body, count, block, field).reshape(tuple(shape))
    indices, values = _read_sparse(body, count, block, kept, field)
    return SparseValues(tuple(shape), indices, values)


def _header(kind: Format, shape: Sequence[int], block: int, kept: int) -> bytes:
    sizes = np.array(shape, "<u4").tobytes()
    return _HEADER.pack(MAGIC, kind, len(shape), block, kept, 0) + sizes


def _read_header(
    data: bytes, shape: tuple[int, ...], field: str
) -> tuple[Format, int, int, memoryview]:
    """Format, block, kept and the rest of the bytes, of a tensor of this shape."""
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise InvalidRequest(field, "has no header of a known format")
    _, kind, dimensions, block, kept, zero = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size + 4 * dimensions :]
    named = data[_HEADER.size : _HEADER.size + 4 * dimensions]
    if dimensions > MAX_DIMENSIONS or named != np.array(shape, "<u4").tobytes():
        raise InvalidRequest(field, f"is not of the shape {list(shape)}")
    if kind not in set(Format):
        raise InvalidRequest(field, f"has the unknown format {kind}")
    blocks_fit = (block == 0) if kind == Format.FLOAT32 else 1 <= block <= MAX_BLOCK
    kept_fits = 1 <= kept <= block if kind == Format.SPARSE else kept == 0
    if not (blocks_fit and kept_fits) or zero:
        raise InvalidRequest(field, "has a header that its format does not allow")
    return Format(kind), block, kept, body


def _read_int8(body: memoryview, count: int, block: int, field: str) -> Floats:
    blocks = -(-count // block)
    if len(body) != 4 * blocks + count:
        raise InvalidRequest(field, f"{len(body)} bytes do not fit its header")
    scales = np.frombuffer(body[: 4 * blocks], "<f4").astype(np.float32)
    steps = np.frombuffer(body[4 * blocks :], np.int8)
    if not (np.isfinite(scales).all() and (scales >= 0).all()) or (steps == -128).any():
        raise InvalidRequest(field, "has a scale or a step out of range")
    values = steps * _repeated(scales, count, block)
    if not np.isfinite(values).all():
        raise InvalidRequest(field, "has numbers that are not finite")
    return values


def _read_sparse(
    body: memoryview, count: int, block: int, kept: int, field: str
) -> tuple[NDArray[np.int64], Floats]:
    full, rest = divmod(count, block)
    blocks = full + (rest > 0)
    sizes = np.full(blocks, kept)
    if rest:
        sizes[-1] = _kept_of(rest, block, kept)
    total = int(sizes.sum())
    ends = np.cumsum([4 * blocks, (12 * total + 7) // 8, (2 * total + 7) // 8])
    if len(body) != ends[-1]:
        raise InvalidRequest(field, f"{len(body)} bytes do not fit its header")
    levels = (np.frombuffer(body[: ends[0]], "<u2").astype(np.uint32) << 16).view(np.float32)
    pairs = levels.reshape(-1, 2)
    # A negative zero counts as negative, so that each value has one spelling.
    if not np.isfinite(pairs).all() or np.signbit(pairs).any() or (pairs[:, 0] > pairs[:, 1]).any():
        raise InvalidRequest(field, "has magnitudes out of range")
    inner, inner_rest = _unpack12(body[ends[0] : ends[1]], total)
    codes, codes_rest = _unpack2(body[ends[1] :], total)
    if inner_rest or codes_rest:
        raise InvalidRequest(field, "ends in bits that are not zero")
    owner = np.repeat(np.arange(blocks), sizes)
    indices = owner * block + inner
    # Ascending over the whole tensor: ascending in each block, and none beyond its block.
    if (np.diff(indices) <= 0).any() or (inner >= block).any() or int(indices[-1]) >= count:
        raise InvalidRequest(field, "has indices out of order or out of range")
    values = pairs[owner, codes & 1]
    values = np.where(codes & 2, -values, values)
    # Zero has no sign: the sum turns -0.0 into 0.0.
    return indices, values + np.float32(0)


def _kept_of(size: int, block: int, kept: int) -> int:
    """How many values of a block of ``size`` are kept."""
    return -(-size * kept // block)


def _pick(
    rows: Floats, most: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.uint8]]:
    """Magnitudes (flat, two for each row), indices and codes of the largest values of each row."""
    magnitudes = np.abs(rows)
    chosen = np.argpartition(magnitudes, rows.shape[1] - most, axis=1)[:, rows.shape[1] - most :]
    chosen = np.sort(chosen, axis=1)
    picked = np.take_along_axis(rows, chosen, axis=1)
    sizes = np.abs(picked)
    high = sizes > sizes.mean(axis=1, keepdims=True, dtype=np.float64)
    mean_high = _mean_of(sizes, high)
    mean_low = _mean_of(sizes, ~high)
    # All are equal: the rounded mean may be above them.
    mean_high = np.where(high.any(axis=1), mean_high, mean_low)
    levels = to_bfloat16(np.stack([np.minimum(mean_low, mean_high), mean_high], axis=1))
    codes = high.astype(np.uint8) | (np.signbit(picked).astype(np.uint8) << 1)
    return levels.reshape(-1), chosen.reshape(-1), codes.reshape(-1)


def _mean_of(sizes: Floats, where: NDArray[np.bool_]) -> Floats:
    """The mean of the marked values of each row; 0 where there are none."""
    sums = np.where(where, sizes, 0).sum(axis=1, dtype=np.float64)
    means: Floats = (sums / np.maximum(where.sum(axis=1), 1)).astype(np.float32)
    return means


def _repeated(scales: Floats, count: int, block: int) -> Floats:
    return np.repeat(scales, block)[:count]


def _pack12(values: NDArray[np.int64]) -> bytes:
    """Numbers below 4,096: two in three bytes."""
    even = np.zeros(len(values) + len(values) % 2, np.uint16)
    even[: len(values)] = values
    first, second = even[::2], even[1::2]
    packed = np.stack([first & 0xFF, first >> 8 | (second & 0xF) << 4, second >> 4], axis=1)
    return packed.astype(np.uint8).tobytes()[: (12 * len(values) + 7) // 8]


def _unpack12(data: memoryview, count: int) -> tuple[NDArray[np.int64], int]:
    """The numbers, and the bits that are left over."""
    padded = np.zeros((count + 1) // 2 * 3, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    columns = padded.reshape(-1, 3).astype(np.int64)
    first = columns[:, 0] | (columns[:, 1] & 0xF) << 8
    second = columns[:, 1] >> 4 | columns[:, 2] << 4
    values = np.stack([first, second], axis=1).reshape(-1)
    return values[:count], int(values[count:].sum())


def _pack2(codes: NDArray[np.uint8]) -> bytes:
    padded = np.zeros(-(-len(codes) // 4) * 4, np.uint8)
    padded[: len(codes)] = codes
    four = padded.reshape(-1, 4)
    packed = four[:, 0] | four[:, 1] << 2 | four[:, 2] << 4 | four[:, 3] << 6
    return packed.astype(np.uint8).tobytes()


def _unpack2(data: memoryview, count: int) -> tuple[NDArray[np.uint8], int]:
    """The codes, and the bits that are left over."""
    four = np.frombuffer(data, np.uint8)[:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    codes: NDArray[np.uint8] = four.astype(np.uint8).reshape(-1)
    return codes[:count], int(codes[count:].sum())
