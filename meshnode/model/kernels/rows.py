"""Matrices that are read some rows at a time, so that packing one needs no second copy of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from meshnode.model.kernels.formats import Format, Quantised, Rows

BLOCK_BYTES = 512 << 10
"""About as many bytes are read at a time, as float32."""


class TensorRows:
    """The rows of a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor.detach()
        self.outputs, self.inputs = tensor.shape

    def read(self, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop``, float32."""
        return self._tensor[first:stop].float()

    def stored(self, first: int, stop: int, form: Format) -> Quantised | None:
        """None: a tensor has floats."""
        return None


class InTurn:
    """Panels of the upper and of the lower half of a matrix in turn, filled up with zeros."""

    def __init__(self, both: Rows, panel: int) -> None:
        """``panel`` is the number of rows that come from each half at a time."""
        self._both, self._panel = both, panel
        self._half = both.outputs // 2
        self.outputs, self.inputs = 2 * panel * -(-self._half // panel), both.inputs

    def read(self, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop``, which are multiples of two panels."""
        begin, end = first // 2, stop // 2
        halves = [self._part(offset, begin, end) for offset in (0, self._half)]
        return torch.stack(halves, 1).flatten(0, 2)

    def stored(self, first: int, stop: int, form: Format) -> Quantised | None:
        """These rows as they are stored; None also where zeros fill them up."""
        begin, end = first // 2, stop // 2
        if end > self._half:
            return None
        upper = self._both.stored(begin, end, form)
        lower = self._both.stored(self._half + begin, self._half + end, form)
        return upper and lower and upper.in_turn(lower, self._panel)

    def _part(self, offset: int, begin: int, end: int) -> Tensor:
        """Rows of one half, ``[panels, panel, inputs]``."""
        there = min(end, self._half)
        rows = self._both.read(offset + begin, offset + there)
        return functional.pad(rows, (0, 0, 0, end - there)).view(-1, self._panel, self.inputs)


def blocks(rows: Rows, multiple: int) -> Iterator[tuple[int, int]]:
    """Where the blocks begin and end in which a matrix is read; each begins at a multiple."""
    step = max(1, BLOCK_BYTES // (4 * rows.inputs * multiple)) * multiple
    for first in range(0, rows.outputs, step):
        yield first, min(first + step, rows.outputs)
