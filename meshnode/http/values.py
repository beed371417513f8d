"""Values that several routes of the node API read or write (interface 2 and 4.1)."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from quart import request

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.units import SECOND_NS
from meshnode.http.routes import IntegerParameter


def query_integer(parameter: IntegerParameter) -> int:
    """A parameter of the current request's query. Raises InvalidRequest."""
    name, low, high = parameter.name, parameter.low, parameter.high
    values = request.args.getlist(name)
    if not values:
        return parameter.default
    text = values[0]
    # int() alone would also accept signs, spaces, underscores and digits of other scripts.
    if len(values) > 1 or not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise InvalidRequest(name, "must be an integer")
    if not low <= int(text) <= high:
        raise InvalidRequest(name, f"must be from {low} to {high}")
    return int(text)


def timestamp(time_ns: int) -> str:
    """Nanoseconds since 1970 as ISO 8601 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(time_ns // SECOND_NS, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % SECOND_NS // 1_000_000:03}Z"


def timestamp_now() -> str:
    """The present moment as ISO 8601 in UTC, to the millisecond."""
    return timestamp(time.time_ns())
