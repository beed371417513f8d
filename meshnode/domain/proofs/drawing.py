"""The draw of the validators that check a proof, weighted by power (interface 4.3; decision 0099).

The draw depends on the proof's id and on the hash of the block with the claim, which the prover
could not know when it claimed the work. Every node computes the same draw from the chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def drawn(proof_id: str, block_hash: bytes, powers: Mapping[str, int]) -> list[str]:
    """All validators in the order of the draw; each place is drawn by power among the others."""
    left = dict(sorted((key, power) for key, power in powers.items() if power > 0))
    order: list[str] = []
    while left:
        seed = bytes.fromhex(proof_id) + block_hash + len(order).to_bytes(4)
        # 256 bits modulo a total below 2**64: the bias is negligible.
        ticket = int.from_bytes(hashlib.sha256(seed).digest()) % sum(left.values())
        for key, power in left.items():
            ticket -= power
            if ticket < 0:
                order.append(key)
                del left[key]
                break
    return order


def chosen(proof_id: str, block_hash: bytes, powers: Mapping[str, int]) -> list[str]:
    """The first validators of the draw that together have more than two thirds of the power."""
    total, reached, first = sum(powers.values()), 0, list[str]()
    for key in drawn(proof_id, block_hash, powers):
        if 3 * reached > 2 * total:
            break
        first.append(key)
        reached += powers[key]
    return first
