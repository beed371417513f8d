"""The Merkle root of a list, as in RFC 6962: a left subtree's size is a power of two."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_LEAF, _INNER = b"\x00", b"\x01"


def merkle_root(items: Sequence[bytes]) -> bytes:
    """The root of ``items``, 32 bytes; for an empty list, the SHA-256 of no bytes."""
    if not items:
        return hashlib.sha256(b"").digest()
    if len(items) == 1:
        return hashlib.sha256(_LEAF + items[0]).digest()
    split = 1 << ((len(items) - 1).bit_length() - 1)
    pair = merkle_root(items[:split]) + merkle_root(items[split:])
    return hashlib.sha256(_INNER + pair).digest()


def merkle_proof(items: Sequence[bytes], index: int) -> tuple[bytes, list[bytes]]:
    """The hash of the leaf at ``index``, and those of its aunts, from the lowest upwards."""
    if len(items) == 1:
        return hashlib.sha256(_LEAF + items[0]).digest(), []
    split = 1 << ((len(items) - 1).bit_length() - 1)
    if index < split:
        leaf, aunts = merkle_proof(items[:split], index)
        return leaf, [*aunts, merkle_root(items[split:])]
    leaf, aunts = merkle_proof(items[split:], index - split)
    return leaf, [*aunts, merkle_root(items[:split])]
