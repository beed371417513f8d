"""Keys and values that a session's attention has computed (interface 2.3, ``past_key_values``).

Terms: a *session* is one generation; its cache has, for every held layer, the rotated keys and the
values of all positions so far; *capacity* is the number of positions that it has room for.

Invariants: ``length <= capacity``; positions below ``length`` never change, so that a step that
failed half-way can be retried; a cache grows only when its owner asks for it, so that admission
controls all memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from meshnode.model.config import DecoderConfig


def kv_bytes_per_token(
    config: DecoderConfig, num_layers: int, dtype: torch.dtype = torch.float32
) -> int:
    """Cache bytes that one position takes in ``num_layers`` layers."""
    return num_layers * 2 * config.num_kv_heads * config.head_dim * dtype.itemsize


class CacheFull(RuntimeError):
    """A session was continued beyond its capacity."""


@dataclass(slots=True)
class KVCache:
    """One session's cache. ``storage`` is ``[layers, 2, kv_heads, capacity, head_dim]``.

    Its type has 16 bits where the weights have 16 or fewer; attention computes in float32.
    """

    storage: Tensor = field(repr=False)
    length: int = 0

    @classmethod
    def allocate(
        cls,
        config: DecoderConfig,
        num_layers: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
    ) -> KVCache:
        """An empty cache. Pages that are never written take no memory."""
        shape = (num_layers, 2, config.num_kv_heads, capacity, config.head_dim)
        return cls(torch.empty(shape, dtype=dtype))

    @property
    def capacity(self) -> int:
        """The number of positions that the cache has room for."""
        return self.storage.shape[3]

    @property
    def nbytes(self) -> int:
        """The size of the storage in bytes."""
        return self.storage.nbytes

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new positions, and return its keys and values from position 0 on.

        ``key`` and ``value`` are ``[kv_heads, new, head_dim]``, the results
        ``[1, kv_heads, length + new, head_dim]``; ``layer`` counts the held layers from 0. The new
        positions count only after ``advance``. Raises CacheFull.
        """
        stop = self.length + key.shape[1]
        if stop > self.capacity:
            # Checked here, because a slice beyond the end would silently be empty.
            raise CacheFull(f"{stop} positions, and room for {self.capacity}")
        keys, values = self.storage[layer, :, :, :stop]
        keys[:, self.length :] = key
        values[:, self.length :] = value
        return keys[None].to(key.dtype), values[None].to(value.dtype)

    def contents(self) -> Tensor:
        """All positions so far, ``[layers, 2, kv_heads, length, head_dim]``."""
        return self.storage[:, :, :, : self.length]

    def fill(self, contents: Tensor) -> None:
        """Begin with keys and values ``[layers, 2, kv_heads, length, head_dim]``."""
        self.length = contents.shape[3]
        self.storage[:, :, :, : self.length] = contents

    def begin_with(self, other: KVCache, length: int) -> None:
        """Begin with the first ``length`` positions of another cache of the same layers."""
        self.storage[:, :, :, :length] = other.storage[:, :, :, :length]
        self.length = length

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` positions. Old and new storage both exist while copying."""
        if capacity > self.capacity:
            layers, two, heads, _, head_dim = self.storage.shape
            shape = (layers, two, heads, capacity, head_dim)
            storage = torch.empty(shape, dtype=self.storage.dtype)
            storage[:, :, :, : self.length] = self.storage[:, :, :, : self.length]
            self.storage = storage

    def advance(self, positions: int) -> None:
        """Add ``positions``, which every held layer has appended, to the length."""
        self.length += positions
