"""Checks of fields in transactions and queries. Each raises its own subclass of Rejected."""

from __future__ import annotations

import re

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.errors import InvalidConsensusKey, InvalidDigest, InvalidInteger
from meshnode.domain.chain.profile import MAX_INTEGER

_SHA256 = re.compile(r"[0-9a-f]{64}")


def integer(value: Json, low: int = 0, high: int = MAX_INTEGER) -> int:
    """Return ``value`` if it is an integer within bounds; else raise InvalidInteger.

    True and False are not integers here.
    """
    if type(value) is not int or not low <= value <= high:
        raise InvalidInteger
    return value


def sha256_hex(value: Json) -> str:
    """Return ``value`` if it is 64 lowercase hex characters; else raise InvalidDigest."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise InvalidDigest
    return value


def consensus_key(value: Json) -> str:
    """Return ``value`` if it is 64 lowercase hex characters; else raise InvalidConsensusKey."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise InvalidConsensusKey
    return value
