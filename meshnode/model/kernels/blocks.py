"""Blocks of GGUF files, read by the compiled kernels (decision 0150).

A GGUF type keeps 32 or 256 weights in a block of some bytes. See ``source/blocks.hpp``.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meshnode.model.kernels.build import NoKernels
from meshnode.model.kernels.formats import GROUP
from meshnode.model.kernels.library import functions

BLOCKS = {
    "Q8_0": (34, 32),
    "Q4_0": (18, 32),
    "Q4_1": (20, 32),
    "Q4_K": (144, 256),
    "Q6_K": (210, 256),
}
"""Bytes and weights of a block of a type, in the order of ``BlockKind`` of blocks.hpp."""


class BlockReader:
    """Reads blocks. Any number of threads may use it at a time; each call blocks."""

    def __init__(self, found: ctypes.CDLL) -> None:
        self._functions = found

    def floats(self, kind: str, raw: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        """Write the weights of the whole blocks ``raw`` to ``out``; both are contiguous."""
        block_bytes, weights = BLOCKS[kind]
        count = raw.size // block_bytes
        if raw.size != count * block_bytes or out.size != count * weights:
            raise ValueError(f"{raw.size} bytes of {kind} are not {out.size} weights")
        place = (_number(kind), raw.ctypes.data, count, out.ctypes.data)
        self._functions.meshnode_floats_of_blocks(*place)

    def split(
        self, kind: str, blocks: NDArray[np.uint8]
    ) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """Quants ``[..., 32]``, scales ``[...]`` and, of Q4_1, minima ``[...]`` of blocks.

        ``blocks`` is ``[..., bytes]`` of Q8_0, Q4_0 or Q4_1. None unless quantising the weights of
        each would give its bits again.
        """
        block_bytes, weights = BLOCKS[kind]
        if blocks.shape[-1] != block_bytes or weights != GROUP:
            raise ValueError(f"{blocks.shape[-1]} bytes of {kind} are no block of {GROUP}")
        blocks, shape = np.ascontiguousarray(blocks), blocks.shape[:-1]
        quants = torch.empty(*shape, weights, dtype=torch.int8)
        numbers = torch.empty(2, *shape, dtype=torch.float16)
        places = (quants.data_ptr(), numbers[0].data_ptr(), numbers[1].data_ptr())
        found = (_number(kind), blocks.ctypes.data, numbers[0].numel(), *places)
        if not self._functions.meshnode_split_blocks(*found):
            return None
        return quants, numbers[0], numbers[1] if kind == "Q4_1" else None


@lru_cache
def block_reader() -> BlockReader | None:
    """The reader; None where there are no kernels, which loading a model reports."""
    try:
        return BlockReader(functions())
    except NoKernels:
        return None


def _number(kind: str) -> int:
    return list(BLOCKS).index(kind)
