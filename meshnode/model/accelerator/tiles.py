"""Functions of rows, computed with numbers of rows that give each row the same bits.

A library for a device picks its kernel by the shape of its operands, and each kernel sums in its
own order. Therefore every product and every norm is computed with one number of rows, the *base*;
what is missing is filled up with zeros. So a row's bits do not depend on how many other rows there
are (decision 0229). Larger multiples of the base are faster for prompts. They are used where a
probe on the device at hand shows that they give each row the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

MULTIPLES = (8, 4, 2)
"""How many times the base may be computed at once, where that changes nothing."""

RowFunction = Callable[[Tensor], Tensor]


def padded_count(count: int, base: int) -> int:
    """The smallest multiple of ``base`` that is at least ``count``, and not 0."""
    return max(1, -(-count // base)) * base


def padded(rows: Tensor, count: int) -> Tensor:
    """``[rows, ...]`` filled up with zeros to ``count`` rows."""
    missing = count - rows.shape[0]
    shape = [0, 0] * (rows.dim() - 1) + [0, missing]
    return functional.pad(rows, shape) if missing else rows


def parts(count: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Bounds of parts of ``sizes``, which are descending; the last one divides ``count``."""
    start = 0
    for size in sizes:
        while count - start >= size:
            yield start, start + size
            start += size


def tiled(function: RowFunction, rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """``function`` of ``[rows, ...]``, computed in parts of ``sizes`` rows."""
    found = [function(rows[start:stop]) for start, stop in parts(rows.shape[0], sizes)]
    return found[0] if len(found) == 1 else torch.cat(found)


def agreeing_sizes(function: RowFunction, base: int, probe: Callable[[int], Tensor]) -> list[int]:
    """The numbers of rows for which ``function`` gives each row the bits that the base gives it.

    Descending; the base is the last. ``probe`` makes random inputs of so many rows. A function that
    needs more memory than there is for a number of rows does without it.
    """
    sizes = [base]
    inputs = probe(base * MULTIPLES[0])
    expected = tiled(function, inputs, [base])
    for multiple in reversed(MULTIPLES):
        size = base * multiple
        try:
            found = tiled(function, inputs, [size])
        except torch.OutOfMemoryError:
            break
        if torch.equal(found, expected):
            sizes.insert(0, size)
    return sizes
