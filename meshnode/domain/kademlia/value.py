"""The text of records' values on the wire (document, 2.3: DHTStoreRequest, DHTFindValueResponse).

Terms: a *value* is one line of printable text, such as ``host:port``. Several nodes store under one
key, and the answer to DHTFindValue has one string for all of it: one value a line, so that a single
value is itself, as in the document (decisions/0053).
"""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.domain.kademlia.refusals import BadValue

VALUE_BYTES = 512
"""In UTF-8. ``host:port`` needs 21 for IPv4; the rest is room for other uses."""
VALUES_PER_KEY = 64
"""Holders of one layer that a lookup can learn of; an answer stays below 33 kB."""


def check_value(value: str, value_bytes: int = VALUE_BYTES) -> None:
    """Raise BadValue unless this can be a record's value."""
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

    What a holder could not have stored is left out, and what is beyond ``values_per_key``.
    """
    values: list[str] = []
    for line in text.split("\n", values_per_key)[:values_per_key]:
        try:
            check_value(line, value_bytes)
        except BadValue:
            continue
        values.append(line)
    return tuple(dict.fromkeys(values))
