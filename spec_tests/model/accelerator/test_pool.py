"""The memory for keys and values on a device."""

import gc

import pytest
import torch

from meshnode.model.accelerator.pool import BLOCK, KVPool, PagedCache, PoolEmpty
from spec_tests.model.small_models import small_config

CONFIG = small_config()


def make_pool() -> KVPool:
    return KVPool(CONFIG, 3, torch.float16, torch.device("cpu"))


def test_a_pool_has_what_it_was_provided_with_and_no_more() -> None:
    pool = make_pool()
    assert pool.block_bytes == 3 * 2 * 2 * BLOCK * 16 * 2
    pool.provide(5 * pool.block_bytes + 7)
    assert pool.free == 5
    assert pool.storage.shape == (3, 6, 2, 2, BLOCK, 16)
    assert pool.nbytes(BLOCK + 1) == 2 * pool.block_bytes
    assert pool.room(5 * pool.block_bytes) == 5 * BLOCK
    cache = PagedCache(pool, 3, 3 * BLOCK + 1)
    assert (cache.capacity, cache.nbytes, pool.free) == (4 * BLOCK, 4 * pool.block_bytes, 1)
    with pytest.raises(PoolEmpty, match="2 blocks for keys and values, and 1 are free"):
        PagedCache(pool, 3, 2 * BLOCK)
    with pytest.raises(PoolEmpty):
        cache.grow(6 * BLOCK)
    assert pool.free == 1
    del cache
    gc.collect()
    assert pool.free == 5


def test_before_that_it_grows_and_keeps_what_is_in_it() -> None:
    pool = make_pool()
    contents = torch.randn(2, 2, 2, 100, 16).half()
    cache = PagedCache(pool, 2, 100)
    cache.fill(contents)
    others = [PagedCache(pool, 3, 500) for _ in range(3)]
    assert torch.equal(cache.contents(), contents)
    blocks = [block for each in (cache, *others) for block in each.blocks]
    assert len(blocks) == len(set(blocks))
    assert 0 not in blocks


def test_a_cache_begins_with_another_ones_positions() -> None:
    pool = make_pool()
    first, second = PagedCache(pool, 3, 200), PagedCache(pool, 3, 100)
    first.fill(torch.randn(3, 2, 2, 150, 16).half())
    second.begin_with(first, 70)
    assert torch.equal(second.contents(), first.contents()[:, :, :, :70])
    with pytest.raises(ValueError, match="different devices"):
        second.begin_with(PagedCache(make_pool(), 3, 100), 70)
