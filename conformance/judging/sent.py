"""What a run has sent, by field: whether each number and text came in several sizes.

A value beside all that checks send is where faults are that no run finds: a number that a byte does
not hold, a text that a column cuts. Only requests that were accepted count.
"""

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, urlsplit

from conformance.journal import Exchange
from conformance.strictjson import Json

# The end of each size of numbers: one digit, a byte with a sign and without, two bytes.
SIZES = (9, 127, 255, 32_767, 65_535)
# The end of each size of texts, in characters.
LENGTHS = (0, 1, 16, 64, 255)
_DIGITS = re.compile(r"-?\d{1,18}\Z", re.ASCII)
# What of a path is the value of a parameter.
_NUMBER = re.compile(r"(?<=/)\d+\Z", re.ASCII)


def sizes(exchanges: Iterable[Exchange]) -> dict[str, set[str]]:
    """Return the sizes of the accepted values of each field, such as `POST /x amount`."""
    found: dict[str, set[str]] = {}
    for exchange in exchanges:
        for field, value in _accepted(exchange):
            found.setdefault(field, set()).add(_size(value))
    return found


def _size(value: float | str) -> str:
    if isinstance(value, str):
        letters = "" if value.isascii() else " beyond ASCII"
        return f"text of up to {next((n for n in LENGTHS if len(value) <= n), 'any')}{letters}"
    if isinstance(value, bool):
        return str(value)
    kind = "number" if value == int(value) else "fraction"
    sign = "-" if value < 0 else ""
    return f"{kind} of up to {sign}{next((n for n in SIZES if abs(value) <= n), 'any')}"


def _accepted(exchange: Exchange) -> Iterator[tuple[str, float | str]]:
    request, response = exchange.request, exchange.response or {}
    if exchange.kind == "grpc":
        if response.get("code") == "OK" and request.get("message"):
            yield from _values(request["operation"], json.loads(request["message"]))
        return
    if not 200 <= response.get("status", 0) < 300:
        return
    parts = urlsplit(request["url"])
    route = f"{request['method']} {_NUMBER.sub('N', parts.path)}"
    for number in _NUMBER.findall(parts.path):
        yield f"{route} N", int(number)
    for name, text in parse_qsl(parts.query):
        yield f"{route} {name}", int(text) if _DIGITS.match(text) else text
    body = request.get("body")
    try:
        document = json.loads(body.get("text", "")) if isinstance(body, dict) else None
    except ValueError:
        return
    yield from _values(route, document)


def _values(name: str, document: Json) -> Iterator[tuple[str, float | str]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _values(f"{name} {key}", value)
    elif isinstance(document, list):
        yield f"{name} length", len(document)
        for value in document:
            yield from _values(name, value)
    elif isinstance(document, str | int | float):
        # 64-bit integers are texts in the JSON of a message.
        number = isinstance(document, str) and _DIGITS.match(document)
        yield name, int(document) if number else document
