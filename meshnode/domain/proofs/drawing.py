"""Whose turn it is to check a proof: validators drawn by power (document, 4.3; decision 0099).

The draw is decided by the proof's id and the hash of the block that took it up, which its prover
could not know when it claimed the work. Everybody computes the same draw from the chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def drawn(proof_id: str, block_hash: bytes, powers: Mapping[str, int]) -> list[str]:
    """All validators in the order of the draw: each place goes by power among those left."""
    left = dict(sorted((key, power) for key, power in powers.items() if power > 0))
    order: list[str] = []
    while left:
        seed = bytes.fromhex(proof_id) + block_hash + len(order).to_bytes(4)
        # 256 bits over a total below 2**64: no remainder that could be measured.
        ticket = int.from_bytes(hashlib.sha256(seed).digest()) % sum(left.values())
        for key, power in left.items():
            ticket -= power
            if ticket < 0:
                order.append(key)
                del left[key]
                break
    return order


def chosen(proof_id: str, block_hash: bytes, powers: Mapping[str, int]) -> list[str]:
    """The first of the draw that together decide: those with more than two thirds of the power."""
    total, reached, first = sum(powers.values()), 0, list[str]()
    for key in drawn(proof_id, block_hash, powers):
        if 3 * reached > 2 * total:
            break
        first.append(key)
        reached += powers[key]
    return first
