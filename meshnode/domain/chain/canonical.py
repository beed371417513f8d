"""Canonical JSON: each value has exactly one byte string (decision 0055; used in interface 4.2).

Terms: the *canonical* form has its keys sorted by code point, no white space, and everything
outside ``U+0020..U+007E`` written as lowercase ``\\uXXXX``, astral characters as surrogate pairs. A
*digest* is the lowercase hex SHA-256 of the canonical form.

Invariants: ``parse(encode(x)) == x``; what the parser accepts never depends on the interpreter's
settings (its recursion limit, its limit on digits), because nodes must agree on it.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import NewType, NoReturn, TypeAlias

from meshnode.domain.chain.errors import (
    DuplicateKey,
    MalformedJson,
    NonFiniteNumber,
    NumberOutOfRange,
    TooDeep,
    TooLarge,
    TooManyValues,
    UnpairedSurrogate,
)
from meshnode.domain.json_structure import TooManyTokens, TooNested, check_structure

Json: TypeAlias = (
    "bool | int | float | str | list[Json] | tuple[Json, ...] | dict[str, Json] | None"
)
Digest = NewType("Digest", str)
"""64 lowercase hex characters: SHA-256 of a value's canonical form."""

MAX_DIGITS = 20
"""Longest integer, sign included, that the parser reads: enough for any 64-bit number."""


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Bounds on one document: its size in bytes, its nesting, and whether fractions may occur."""

    size: int
    depth: int = 32
    fractions: bool = True
    tokens: int | None = None
    """Most strings, brackets, commas and colons. None for documents that a chain's rules bound,
    about which all nodes must agree."""


def encode(value: Json) -> bytes:
    """The canonical form of ``value``. Raises ValueError for numbers that are not finite."""
    return _ENCODER.encode(value).encode("ascii")


def digest(value: Json) -> Digest:
    """Lowercase hex SHA-256 of the canonical form."""
    return Digest(hashlib.sha256(encode(value)).hexdigest())


def parse(data: bytes, limits: JsonLimits) -> Json:
    """Read one JSON document strictly. Raises the subclass of :class:`MalformedJson` that fits."""
    # The size is checked first, so that nothing large is ever parsed.
    if len(data) > limits.size:
        raise TooLarge
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedJson from None
    # The depth is checked here because the library's own limit depends on the caller's stack.
    try:
        check_structure(text, limits.depth, limits.tokens)
    except TooNested:
        raise TooDeep from None
    except TooManyTokens:
        raise TooManyValues from None
    try:
        value: Json = _DECODERS[limits.fractions].decode(text)
    except json.JSONDecodeError:
        raise MalformedJson from None
    # Half of a surrogate pair has no UTF-8 form.
    if "\\u" in text and _has_unpaired(value):
        raise UnpairedSurrogate
    return value


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise DuplicateKey
    return result


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise NumberOutOfRange
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NonFiniteNumber
    return value


def _no_fraction(text: str) -> NoReturn:
    raise NumberOutOfRange


def _no_constant(text: str) -> NoReturn:
    raise NonFiniteNumber


def _decoder(fractions: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=_integer,
        parse_float=_fraction if fractions else _no_fraction,
        parse_constant=_no_constant,
    )


# Made once, since each transaction is read and written with them.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_DECODERS = {fractions: _decoder(fractions) for fractions in (True, False)}


def _has_unpaired(value: Json) -> bool:
    if isinstance(value, str):
        return any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return any(_has_unpaired(key) or _has_unpaired(item) for key, item in value.items())
    return isinstance(value, list) and any(_has_unpaired(item) for item in value)
