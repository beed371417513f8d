"""JSON on the node API (interface 4.1: "Bodies are JSON"): strict in, compact out.

A text that two parsers could read differently is refused: duplicate keys, ``NaN`` and ``Infinity``,
numbers beyond a double, bytes that are not UTF-8, a byte order mark. Deep nesting, many values and
long numbers could exhaust a parser. So nesting and the number of values are bounded before the text
is parsed, the length of a number before it is converted, and the size of the whole by the caller
(decisions 0024, 0130).

Invariant: every failure is an :class:`InvalidRequest` about the body, with the position if it is
known, and never quotes the text.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.json_structure import TooManyTokens, TooNested, check_structure

MAX_DEPTH = 32
"""Arrays and objects inside one another; no documented body has more than three."""
MAX_TOKENS = 10_000
"""Strings, brackets, commas and colons of a whole body. A request has some fifty; this many take a
megabyte of memory and a few milliseconds."""
MAX_NUMBER_CHARS = 64
"""Longest number; enough for any double and any 128-bit integer in full."""

FIELD = "body"
"""The field that failures name, since they concern the text as a whole."""


def loads(data: bytes, *, exact: bool = False) -> Any:
    """Decode strict JSON. Raises :class:`InvalidRequest`.

    With ``exact``, a number with a fraction or an exponent is the Decimal that its text spells.
    """
    if not data.strip():
        raise InvalidRequest(FIELD, "is empty; JSON is expected")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(FIELD, f"is not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise InvalidRequest(FIELD, "must not begin with a byte order mark")
    _check_structure(text)
    try:
        return (_EXACT_DECODER if exact else _DECODER).decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        # The decoder's messages are fixed phrases: they do not quote the text.
        reason = error.msg.removesuffix(" starting at").removesuffix(" at")
        raise InvalidRequest(FIELD, f"is not valid JSON: {reason} ({place})") from None


def dumps(value: object) -> bytes:
    """Encode as compact UTF-8, keys in their given order.

    Raises ``ValueError`` for a float that JSON cannot express. Such a float is a defect of the
    caller and must not reach a client.
    """
    return _ENCODER.encode(value).encode("utf-8")


def _check_structure(text: str) -> None:
    try:
        check_structure(text, MAX_DEPTH, MAX_TOKENS)
    except TooNested as error:
        reason = f"is nested deeper than {MAX_DEPTH} levels (character {error.character})"
        raise InvalidRequest(FIELD, reason) from None
    except TooManyTokens:
        reason = f"has more than {MAX_TOKENS} strings, brackets, commas and colons"
        raise InvalidRequest(FIELD, reason) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise InvalidRequest(FIELD, "has the same key twice in one object")
    return result


def _constant(_: str) -> Any:
    raise InvalidRequest(FIELD, "has NaN or Infinity, which JSON does not know")


def _integer(digits: str) -> int:
    _check_length(digits)
    return int(digits)


def _number(digits: str) -> float:
    _check_length(digits)
    value = float(digits)
    if math.isinf(value):
        raise InvalidRequest(FIELD, "has a number too large for a double")
    return value


def _exact_number(digits: str) -> Decimal:
    _number(digits)
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise InvalidRequest(FIELD, "has a number with an exponent out of range") from None


def _check_length(digits: str) -> None:
    if len(digits) > MAX_NUMBER_CHARS:
        raise InvalidRequest(FIELD, f"has a number of more than {MAX_NUMBER_CHARS} characters")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_constant,
    parse_int=_integer,
    parse_float=_number,
)

_EXACT_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_constant,
    parse_int=_integer,
    parse_float=_exact_number,
)
