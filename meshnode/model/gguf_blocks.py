"""Blocks of a GGUF file whose type is also one of the kernels' formats.

Each of these types keeps 32 weights in a block: a scale, for Q4_1 a minimum, and the quants, of
which those of four bits lie in halves of a byte, the first sixteen in the lower ones.

Invariant: what is taken over is bit for bit what ``quantise`` makes of the block's weights, so
nodes compute alike whether they have the file or its weights as floats. That is so where a group
reaches the ends of its range, as whatever llama.cpp has written does; else nothing is taken over.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meshnode.model.kernels.blocks import BLOCKS, block_reader
from meshnode.model.kernels.formats import GROUP, Format, Quantised

_TYPES = {"Q8_0": Format.INT8, "Q4_0": Format.INT4, "Q4_1": Format.INT4_MIN}
_HEADS = {Format.INT8: 1, Format.INT4: 1, Format.INT4_MIN: 2}
"""Numbers of two bytes before the quants."""
FAR = 4096
"""How many times its scale a group's minimum may be."""


def format_of(kind: str) -> Format | None:
    """The format of a GGUF type; None for a type that is no format of the kernels."""
    return _TYPES.get(kind)


def take_over(raw: NDArray[np.uint8], form: Format) -> Quantised | None:
    """The blocks of some rows, ``[rows, bytes]``; None unless all are what we would make."""
    kind = next(kind for kind, found in _TYPES.items() if found is form)
    blocks = raw.reshape(raw.shape[0], -1, BLOCKS[kind][0])
    reader = block_reader()
    parts = split(blocks, form) if reader is None else reader.split(kind, blocks)
    return None if parts is None else Quantised(form, GROUP * blocks.shape[1], *parts)


def split(blocks: NDArray[np.uint8], form: Format) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """What :meth:`BlockReader.split` gives, without kernels."""
    head = 2 * _HEADS[form]
    numbers = np.ascontiguousarray(blocks[..., :head]).view(np.float16)
    if not np.isfinite(numbers).all():
        return None
    scales, found = numbers[..., 0], blocks[..., head:]
    if form is Format.INT8:
        quants = found.copy().view(np.int8)
        low, high = quants.min(-1), quants.max(-1)
        whole = (low >= -127) & ((low == -127) | (high == 127)) & (scales > 0)
    else:
        quants = np.concatenate([found & 15, found >> 4], -1).view(np.int8)
        # Four bits without a minimum begin with -8, which is kept as 0.
        whole = (quants.min(-1) == 0) & (scales != 0)
        if form is Format.INT4_MIN:
            # Beside a minimum that is far larger the differences lose their last bits.
            near = np.abs(numbers[..., 1].astype(np.float32)) <= FAR * scales.astype(np.float32)
            whole &= (quants.max(-1) == 15) & near
    if not whole.all():
        return None
    minima = numbers[..., 1].copy() if form is Format.INT4_MIN else None
    return (
        torch.from_numpy(quants),
        torch.from_numpy(scales.copy()),
        None if minima is None else torch.from_numpy(minima),
    )
