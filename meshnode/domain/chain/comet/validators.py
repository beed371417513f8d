"""Validators as headers identify them: address, key, power, and the hash of the set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from meshnode.domain.chain.comet.merkle import merkle_root
from meshnode.domain.chain.comet.proto import bytes_field, integer_field, message_field


@lru_cache(maxsize=1024)
def validator_address(consensus_key: str) -> str:
    """Uppercase hex of the first 20 bytes of the key's SHA-256."""
    return hashlib.sha256(bytes.fromhex(consensus_key)).hexdigest()[:40].upper()


@dataclass(frozen=True, slots=True)
class CometValidator:
    """An Ed25519 key (64 lowercase hex characters) and its power."""

    consensus_key: str
    power: int

    @property
    def address(self) -> str:
        """40 uppercase hex characters."""
        return validator_address(self.consensus_key)


def validator_set(powers: Mapping[str, int]) -> tuple[CometValidator, ...]:
    """The validators with the most power first, and by address where power is equal."""
    validators = (CometValidator(key, power) for key, power in powers.items())
    return tuple(sorted(validators, key=lambda one: (-one.power, one.address)))


def validators_hash(validators: tuple[CometValidator, ...]) -> bytes:
    """The Merkle root over keys and powers."""
    return merkle_root(
        [
            message_field(1, bytes_field(1, bytes.fromhex(one.consensus_key)))
            + integer_field(2, one.power)
            for one in validators
        ]
    )
