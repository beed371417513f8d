"""Keys and values of all sessions on a device, in one tensor of blocks (decision 0229).

Terms: a *block* has room for the keys and values of ``BLOCK`` consecutive positions of a session,
in every held layer; a session has as many as its capacity needs.

Invariants: a block belongs to one session at most; block 0 belongs to none, and is where padding
reads and writes; the pool has a fixed size once it was provided for.
"""

from __future__ import annotations

from collections import deque
from weakref import finalize

import torch
from torch import Tensor

from meshnode.model.config import DecoderConfig
from meshnode.model.kv import CacheFull, KVCache, kv_bytes_per_token

BLOCK = 64
"""Positions of a block: those of a block of keys in the compiled kernels, too."""


class PoolEmpty(MemoryError):
    """No block is left."""


class KVPool:
    """The blocks of some layers, and which of them are free."""

    def __init__(
        self, config: DecoderConfig, num_layers: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._shape = (2, config.num_kv_heads, BLOCK, config.head_dim)
        self._num_layers = num_layers
        self._free: deque[int] = deque()
        self._provided = False
        self.block_bytes = BLOCK * kv_bytes_per_token(config, num_layers, dtype)
        """Memory of one block."""
        self.storage = torch.zeros((num_layers, 1, *self._shape), dtype=dtype, device=device)
        """``[layers, blocks, 2, kv_heads, BLOCK, head_dim]``: keys, then values."""

    @property
    def free(self) -> int:
        """Blocks that no session has."""
        return len(self._free)

    def nbytes(self, positions: int) -> int:
        """Memory of the blocks for so many positions."""
        return -(-positions // BLOCK) * self.block_bytes

    def room(self, nbytes: int) -> int:
        """Positions for which blocks of so much memory suffice."""
        return nbytes // self.block_bytes * BLOCK

    def provide(self, nbytes: int) -> None:
        """Have blocks of so much memory from now on. Until then, blocks are added as needed.

        Raises torch.OutOfMemoryError.
        """
        missing = nbytes // self.block_bytes - (self.storage.shape[1] - 1)
        if missing > 0:
            self._enlarge(missing)
        self._provided = True

    def take(self, count: int) -> list[int]:
        """Blocks for a session. Raises PoolEmpty."""
        missing = count - len(self._free)
        if missing > 0:
            if self._provided:
                raise PoolEmpty(f"{count} blocks for keys and values, and {self.free} are free")
            self._enlarge(max(missing, self.storage.shape[1]))
        return [self._free.popleft() for _ in range(count)]

    def give_back(self, blocks: list[int]) -> None:
        """Take blocks back from a session. May be called from any thread."""
        self._free.extend(blocks)

    def _enlarge(self, count: int) -> None:
        before = self.storage.shape[1]
        if len(self._free) == before - 1:
            # Nothing is in use: the old one is given up before the new one is there.
            dtype, device = self.storage.dtype, self.storage.device
            del self.storage
            shape = (self._num_layers, before + count, *self._shape)
            self.storage = torch.zeros(shape, dtype=dtype, device=device)
        else:
            more = self.storage.new_zeros((self._num_layers, count, *self._shape))
            self.storage = torch.cat((self.storage, more), dim=1)
        self._free.extend(range(before, before + count))


class PagedCache(KVCache):
    """One session's cache, in blocks of a pool. It gives them back when it is no longer used."""

    __slots__ = ("__weakref__", "_finalizer", "blocks", "num_layers", "pool")

    def __init__(self, pool: KVPool, num_layers: int, capacity: int) -> None:
        """Raises PoolEmpty."""
        super().__init__(torch.empty(0))
        self.pool, self.num_layers = pool, num_layers
        self.blocks: list[int] = []
        """The blocks in the order of positions."""
        self._finalizer = finalize(self, pool.give_back, self.blocks)
        self._finalizer.atexit = False
        self.grow(capacity)

    @property
    def capacity(self) -> int:
        """The number of positions that the cache has room for."""
        return len(self.blocks) * BLOCK

    @property
    def nbytes(self) -> int:
        """The size of the blocks in bytes."""
        return len(self.blocks) * self.pool.block_bytes

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Not there: the layers on the device write to the pool."""
        raise NotImplementedError

    def require(self, stop: int) -> None:
        """Raise CacheFull unless positions below ``stop`` have room."""
        if stop > self.capacity:
            raise CacheFull(f"{stop} positions, and room for {self.capacity}")

    def contents(self) -> Tensor:
        """All positions so far, ``[layers, 2, kv_heads, length, head_dim]``."""
        found = self.pool.storage[: self.num_layers, self.blocks].movedim(1, 3)
        return found.flatten(3, 4)[:, :, :, : self.length]

    def fill(self, contents: Tensor) -> None:
        """Begin with keys and values ``[layers, 2, kv_heads, length, head_dim]``."""
        storage, self.length = self.pool.storage, contents.shape[3]
        written = torch.split(contents.to(storage), BLOCK, dim=3)
        for block, part in zip(self.blocks, written, strict=False):
            storage[: self.num_layers, block, :, :, : part.shape[3]] = part

    def begin_with(self, other: KVCache, length: int) -> None:
        """Begin with the first ``length`` positions of another cache of the same pool."""
        if not isinstance(other, PagedCache) or other.pool is not self.pool:
            raise ValueError("the caches are of different devices")
        count = -(-length // BLOCK)
        storage = self.pool.storage
        storage[:, self.blocks[:count]] = storage[:, other.blocks[:count]]
        self.length = length

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` positions. Raises PoolEmpty."""
        missing = -(-capacity // BLOCK) - len(self.blocks)
        if missing > 0:
            self.blocks.extend(self.pool.take(missing))
