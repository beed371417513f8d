"""Arithmetic with one result: the same bits on every machine (interface 4.2; decision 0087).

Terms: a *fixed* matrix has rows of integers, each with one power of two as its scale. The integers
are so small that any sum of their products stays below 2**53, where doubles are exact, so that a
matrix product has one result whatever the order of summation, the number of threads, the width of
vectors, or the library. Everything else is done element by element with the operations that IEEE
754 defines to the last bit (+, -, *, /, sqrt, rint); ``exp``, ``log`` and ``sin``, which it does
not define, are computed as polynomials of these.

Invariants: every value is a float64; a row's result depends on that row alone; no result depends on
the system's mathematical library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

EXACT_BITS = 53
"""Integers up to 2**53 are exact in a double."""
_LEAST_EXPONENT = -400
"""Least exponent of a row, so that tiny rows round to zero; far from where doubles lose bits."""

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_EXP_RANGE = 80.0
_HALF_PI_HIGH = float.fromhex("0x1.921fb54400000p+0")
_HALF_PI_LOW = float.fromhex("0x1.0b4611a626331p-34")
_HALF_PI_INVERSE = float.fromhex("0x1.45f306dc9c883p-1")
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")

_EXP = tuple(1.0 / math.factorial(power) for power in range(12))
_LOG = tuple(2.0 / (2 * power + 1) for power in range(10))
_SIN = tuple((-1.0) ** power / math.factorial(2 * power + 1) for power in range(8))
_COS = tuple((-1.0) ** power / math.factorial(2 * power) for power in range(8))


@dataclass(frozen=True, slots=True)
class Fixed:
    """``integers`` ``[..., n]`` times ``scale`` ``[..., 1]``, a power of two for each row."""

    integers: Array
    scale: Array

    @property
    def transposed(self) -> Fixed:
        """The same values with the last two axes swapped, for batched products."""
        return Fixed(self.integers.swapaxes(-1, -2), self.scale.swapaxes(-1, -2))


def bits_for(length: int) -> int:
    """Bits that each operand may have in a sum of ``length`` products."""
    return (EXACT_BITS - (length - 1).bit_length()) // 2


def fix(values: Array, bits: int) -> Fixed:
    """Round each row to integers of at most 2**bits; a row's largest value uses all the bits."""
    largest = np.abs(values).max(axis=-1, keepdims=True)
    exponent = np.maximum(np.frexp(largest)[1], _LEAST_EXPONENT) - bits
    scale = np.ldexp(1.0, exponent)
    return Fixed(np.rint(values / scale), scale)


def product(left: Array, right: Fixed) -> Array:
    """``left`` ``[..., n]`` times the transpose of ``right`` ``[m, n]``: ``[..., m]``.

    ``right`` must have been made with ``bits_for(n)`` bits.
    """
    fixed = fix(left, bits_for(left.shape[-1]))
    return (fixed.integers @ right.integers.T) * fixed.scale * right.scale[:, 0]


def product_of_rows(left: Array, right: Fixed, right_bits: int) -> Array:
    """``left`` ``[m, n]`` times ``right`` ``[n, k]``, whose scales belong to the summed axis.

    The scales are multiplied into ``left``, and ``left`` is split into two parts: a long sum leaves
    few bits to each, and two parts keep the precision.
    """
    rest = left * right.scale[:, 0]
    bits = EXACT_BITS - (rest.shape[-1] - 1).bit_length() - right_bits
    total = np.zeros((left.shape[0], right.integers.shape[1]))
    for _ in range(2):
        part = fix(rest, bits)
        total = total + (part.integers @ right.integers) * part.scale
        rest = rest - part.integers * part.scale
    return total


def mean_square(values: Array) -> Array:
    """Mean of the squares of each row: ``[..., n]`` to ``[..., 1]``."""
    fixed = fix(values, bits_for(values.shape[-1]))
    total: Array = np.square(fixed.integers).sum(axis=-1, keepdims=True)
    return total * fixed.scale * fixed.scale / float(values.shape[-1])


def exp(values: Array) -> Array:
    """The exponential; arguments are clipped to +-80."""
    clipped = np.clip(values, -_EXP_RANGE, _EXP_RANGE)
    turns = np.rint(clipped * _LOG2_E)
    rest = clipped - turns * _LN2_HIGH - turns * _LN2_LOW
    return np.ldexp(_polynomial(_EXP, rest), turns.astype(np.int64))


def log(values: Array) -> Array:
    """The natural logarithm of positive values."""
    fraction, exponent = np.frexp(values)
    low = fraction < _SQRT_HALF
    fraction = np.where(low, fraction * 2.0, fraction)
    power = (exponent - low).astype(np.float64)
    ratio = (fraction - 1.0) / (fraction + 1.0)
    return ratio * _polynomial(_LOG, ratio * ratio) + power * _LN2_LOW + power * _LN2_HIGH


def sine_cosine(angles: Array) -> tuple[Array, Array]:
    """Sine and cosine of angles of up to a few thousand radians."""
    turns = np.rint(angles * _HALF_PI_INVERSE)
    rest = angles - turns * _HALF_PI_HIGH - turns * _HALF_PI_LOW
    square = rest * rest
    sine, cosine = rest * _polynomial(_SIN, square), _polynomial(_COS, square)
    quadrant = turns.astype(np.int64) % 4
    swapped = quadrant % 2 == 1
    first, second = np.where(swapped, cosine, sine), np.where(swapped, sine, cosine)
    return (
        np.where(quadrant >= 2, -first, first),
        np.where((quadrant == 1) | (quadrant == 2), -second, second),
    )


def sigmoid(values: Array) -> Array:
    """``1 / (1 + exp(-x))``."""
    return 1.0 / (1.0 + exp(-values))


@dataclass(frozen=True, slots=True)
class SoftmaxWeights:
    """A row's exponentials relative to its largest value, as integer counts with an exact sum."""

    counts: Array
    total: Array
    largest: Array
    unit: float

    @property
    def shares(self) -> Array:
        """The softmax."""
        return self.counts / self.total

    @property
    def log_total(self) -> Array:
        """Logarithm of the sum of exponentials."""
        return log(self.total * self.unit) + self.largest


def exponential_weights(
    values: Array, length: int, seen: NDArray[np.bool_] | None
) -> SoftmaxWeights:
    """Weights along the last axis; ``length`` is the most entries that a row can ever have.

    Only entries that are ``seen`` count. ``length`` sets the resolution, so that a row has the same
    weights whether or not unseen entries follow.
    """
    bits = EXACT_BITS - 1 - (length - 1).bit_length()
    masked = values if seen is None else np.where(seen, values, -math.inf)
    largest = masked.max(axis=-1, keepdims=True)
    counts = np.rint(np.ldexp(exp(masked - largest), bits))
    if seen is not None:
        counts = np.where(seen, counts, 0.0)
    return SoftmaxWeights(
        counts, counts.sum(axis=-1, keepdims=True), largest, math.ldexp(1.0, -bits)
    )


def _polynomial(coefficients: tuple[float, ...], values: Array) -> Array:
    # Product and sum are separate operations, so that nothing can fuse them.
    result = np.full_like(values, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * values + coefficient
    return result
