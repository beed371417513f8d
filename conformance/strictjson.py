"""Strict JSON, and what each documented type means in it.

Terms: a *documented type* is a word of the field tables (string, int, number, bool, array, object),
with a question mark where null is allowed.
Invariants: `parse` never accepts NaN, Infinity or bytes that are not UTF-8, and reports duplicate
keys; `true` is not an integer, but `1.0` is one; a number may be an integer.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn, TypeGuard

# The result of json.loads: the only type from outside that is not narrower.
Json = Any


class NotJson(Exception):
    """The bytes are not JSON; the message says where and why."""


@dataclass(frozen=True)
class Parsed:
    """A parsed value, and the keys that are duplicate in one of its objects."""

    value: Json
    repeated_keys: tuple[str, ...]


def parse(data: bytes) -> Parsed:
    """Parse the bytes of one JSON text, or raise `NotJson`."""
    repeated: list[str] = []

    def collect(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        result = dict(pairs)
        if len(result) != len(pairs):
            keys = [key for key, _ in pairs]
            repeated.extend(sorted({key for key in keys if keys.count(key) > 1}))
        return result

    def refuse(constant: str) -> NoReturn:
        raise NotJson(f"{constant} is not JSON")

    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=collect, parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise NotJson("nested too deeply") from None
    return Parsed(value, tuple(repeated))


def is_number(value: Json) -> TypeGuard[float]:
    """Return whether the value is a finite JSON number."""
    if isinstance(value, float):
        # 1e999 is valid JSON but becomes infinity here, which no documented number can be.
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def last_place(number: float) -> float:
    """Return what one unit of the last digit of a JSON number is worth, 1 for a whole number."""
    return 10.0 ** int(Decimal(str(number)).as_tuple().exponent)


def is_int(value: Json) -> TypeGuard[float]:
    """Return whether the value is a JSON number without a fraction, however it is written."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


TYPES: dict[str, Callable[[Json], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": is_int,
    "number": is_number,
    "bool": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "ints": lambda value: isinstance(value, list) and all(is_int(item) for item in value),
    "string?": lambda value: value is None or isinstance(value, str),
    "object?": lambda value: value is None or isinstance(value, dict),
    "strings": lambda value: (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    ),
}


def brief(value: Json, limit: int = 80) -> str:
    """Show a value on one line, cut to `limit` characters."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else text[: limit - 1] + "…"
