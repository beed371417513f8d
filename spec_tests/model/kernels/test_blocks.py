"""The kernels read blocks of GGUF files as the ``gguf`` package does, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st

from meshnode.model.kernels.blocks import BLOCKS, BlockReader
from meshnode.model.kernels.build import NoKernels
from meshnode.model.kernels.library import functions


@pytest.fixture(scope="module")
def reader() -> BlockReader:
    try:
        return BlockReader(functions())
    except NoKernels as error:
        pytest.skip(f"no kernels: {error}")


@pytest.mark.parametrize("kind", BLOCKS)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 5))
def test_any_blocks_become_the_packages_floats(
    reader: BlockReader, kind: str, seed: int, count: int
) -> None:
    layout = getattr(quants, kind)
    block_bytes, weights = BLOCKS[kind]
    assert (layout.type_size, layout.block_size) == (block_bytes, weights)
    raw = np.random.default_rng(seed).integers(0, 256, (count, block_bytes), dtype=np.uint8)
    out = np.empty((count, weights), np.float32)
    reader.floats(kind, raw, out)
    with np.errstate(all="ignore"):
        wanted = layout.dequantize_blocks(raw) if count else out
    # A NaN has many patterns, and only broken files have one.
    sound = ~np.isnan(wanted)
    assert np.array_equal(np.isnan(out), ~sound)
    assert np.array_equal(out.view(np.uint32)[sound], wanted.view(np.uint32)[sound])


def test_bytes_that_are_not_so_many_blocks_are_refused(reader: BlockReader) -> None:
    for size, weights in ((33, 32), (34, 64), (35, 32)):
        with pytest.raises(ValueError, match=f"{size} bytes of Q8_0 are not {weights} weights"):
            reader.floats("Q8_0", np.zeros(size, np.uint8), np.zeros(weights, np.float32))
    with pytest.raises(ValueError, match="144 bytes of Q4_K are no block of 32"):
        reader.split("Q4_K", np.zeros((1, 144), np.uint8))
