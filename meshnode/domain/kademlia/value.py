"""The text of records' values on the wire (interface 2.3: DHTStoreRequest, DHTFindValueResponse).

Terms: a *value* is one line of printable text, such as ``host:port``. Several nodes may store under
one key, but the answer to DHTFindValue has a single string. It holds one value a line, so a single
value appears as itself, as in the document (decision 0053).
"""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.domain.kademlia.refusals import BadValue

VALUE_BYTES = 512
"""Longest value, in bytes of UTF-8. ``host:port`` needs 21 for IPv4."""
VALUES_PER_KEY = 64
"""The most values of a key: the holders that a lookup finds. Keeps an answer below 33 kB."""


def check_value(value: str, value_bytes: int = VALUE_BYTES) -> None:
    """Raise BadValue unless this is a valid value of a record."""
    # A value is one line of printable text of bounded size.
    if not value or not value.isprintable() or len(value.encode()) > value_bytes:
        raise BadValue


def join_values(values: Iterable[str]) -> str:
    """The text of DHTFindValueResponse.value."""
    return "\n".join(values)


def split_values(
    text: str, value_bytes: int = VALUE_BYTES, values_per_key: int = VALUES_PER_KEY
) -> tuple[str, ...]:
    """The values in a DHTFindValueResponse, as :func:`join_values` wrote them.

    Invalid values are left out, and so are those beyond ``values_per_key``.
    """
    values: list[str] = []
    for line in text.split("\n", values_per_key)[:values_per_key]:
        try:
            check_value(line, value_bytes)
        except BadValue:
            continue
        values.append(line)
    return tuple(dict.fromkeys(values))
