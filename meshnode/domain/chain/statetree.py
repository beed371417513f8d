"""The state root: a Merkle tree over hashed buckets (decision 0059).

The first ``DEPTH`` bits of a key's SHA-256 are the number of its bucket. A bucket's hash covers its
entries in key order; inner nodes hash their two children. The tree is complete: a block rehashes
the buckets that it touches and at most ``DEPTH`` nodes above each, whatever the number of accounts,
and an empty state has a root too. Leaves and inner nodes are hashed under different prefixes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

DEPTH = 16
"""Chosen by ``bench/chain_state.py`` for up to a million accounts. It is part of the protocol."""

_LEAF, _INNER = b"\x00", b"\x01"


class Store(Protocol):
    """Where committed entries are kept. One writer; reads see only what was committed."""

    def get(self, key: str) -> bytes | None:
        """The value under ``key``."""

    def bucket(self, index: int) -> Mapping[str, bytes]:
        """All entries whose keys fall into a bucket."""

    def buckets(self) -> Iterable[tuple[int, Mapping[str, bytes]]]:
        """All buckets that hold something, with their entries, in any order."""

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Apply all changes or none of them; a value of None deletes the key."""


def bucket_of(key: str, depth: int = DEPTH) -> int:
    """The bucket's number for ``key``, 0 up to 2**depth - 1."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) >> (32 - depth)


def bucket_hash(entries: Mapping[str, bytes]) -> bytes:
    """SHA-256 over the entries in key order, each key and value preceded by its length."""
    parts = [_LEAF]
    for key in sorted(entries):
        name, value = key.encode(), entries[key]
        parts += (len(name).to_bytes(2), name, len(value).to_bytes(4), value)
    return hashlib.sha256(b"".join(parts)).digest()


def join_hashes(hashes: Sequence[bytes]) -> bytes:
    """The node above ``hashes``, which are neighbours at one depth; a power of two of them."""
    level = list(hashes)
    while len(level) > 1:
        level = [_inner(level[at], level[at + 1]) for at in range(0, len(level), 2)]
    return level[0]


class StateTree:
    """Hashes of all nodes: node 1 is the root, ``2n`` and ``2n+1`` are the children of ``n``."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        level = bucket_hash({})
        levels = [level]
        for _ in range(depth):
            level = _inner(level, level)
            levels.append(level)
        self._nodes = [b""]
        for height in range(depth, -1, -1):
            self._nodes += [levels[height]] * (1 << (depth - height))

    @property
    def root(self) -> bytes:
        """The root hash of the whole state: 32 bytes."""
        return self._nodes[1]

    def copy_nodes(self) -> list[bytes]:
        """All nodes as they are now; those at depth ``d`` begin at index ``2**d``."""
        return self._nodes.copy()

    def fresh(self, store: Store, changes: Mapping[str, bytes | None]) -> dict[int, bytes]:
        """The nodes that ``changes`` to ``store`` would replace; the tree itself stays as it is."""
        touched: dict[int, dict[str, bytes]] = {}
        for key, value in changes.items():
            index = bucket_of(key, self.depth)
            if index not in touched:
                touched[index] = dict(store.bucket(index))
            if value is None:
                touched[index].pop(key, None)
            else:
                touched[index][key] = value
        return self._upwards({index: bucket_hash(entries) for index, entries in touched.items()})

    def rebuild(self, store: Store) -> None:
        """Fill a new tree from every bucket of ``store``, as after a start."""
        self.adopt(self._upwards({index: bucket_hash(one) for index, one in store.buckets()}))

    def adopt(self, fresh: Mapping[int, bytes]) -> None:
        """Replace nodes with those that :meth:`fresh` returned."""
        for node, value in fresh.items():
            self._nodes[node] = value

    def root_with(self, fresh: Mapping[int, bytes]) -> bytes:
        """The root after :meth:`adopt`."""
        return fresh.get(1, self.root)

    def _upwards(self, leaves: Mapping[int, bytes]) -> dict[int, bytes]:
        first = 1 << self.depth
        fresh = {first + index: value for index, value in leaves.items()}
        level: Iterable[int] = list(fresh)
        for _ in range(self.depth):
            parents = {node >> 1 for node in level}
            for node in parents:
                left, right = 2 * node, 2 * node + 1
                fresh[node] = _inner(
                    fresh.get(left, self._nodes[left]), fresh.get(right, self._nodes[right])
                )
            level = parents
        return fresh


class MemoryStore:
    """A store that keeps the whole state in memory."""

    def __init__(self, depth: int = DEPTH) -> None:
        self._depth = depth
        self._buckets: dict[int, dict[str, bytes]] = {}

    def get(self, key: str) -> bytes | None:
        """The value under ``key``."""
        return self._buckets.get(bucket_of(key, self._depth), {}).get(key)

    def bucket(self, index: int) -> Mapping[str, bytes]:
        """All entries whose keys fall into a bucket."""
        return self._buckets.get(index, {})

    def buckets(self) -> Iterable[tuple[int, Mapping[str, bytes]]]:
        """All buckets that hold something."""
        return ((index, entries) for index, entries in self._buckets.items() if entries)

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Apply changes; None deletes."""
        for key, value in changes.items():
            entries = self._buckets.setdefault(bucket_of(key, self._depth), {})
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value

    def entries(self) -> dict[str, bytes]:
        """All entries, for tests and exports."""
        return {key: value for bucket in self._buckets.values() for key, value in bucket.items()}


def _inner(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_INNER + left + right).digest()
