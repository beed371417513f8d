"""The types of fields in transactions and queries. Each check raises its own refusal."""

from __future__ import annotations

import re

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.errors import InvalidConsensusKey, InvalidDigest, InvalidInteger
from meshnode.domain.chain.profile import MAX_INTEGER

_SHA256 = re.compile(r"[0-9a-f]{64}")


def integer(value: Json, low: int = 0, high: int = MAX_INTEGER) -> int:
    """An integer within bounds; a bool is not one."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidInteger
    return value


def sha256_hex(value: Json) -> str:
    """64 lowercase hex characters."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise InvalidDigest
    return value


def consensus_key(value: Json) -> str:
    """An Ed25519 public key as 64 lowercase hex characters."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise InvalidConsensusKey
    return value
