"""The signatures in a signed message: members that are called so, also within an encoded text.

How messages are signed is not specified. Many are JSON, or the Base64 or the hexadecimal digits of
JSON, with the signature in a member of its own; of others nothing is found here.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from conformance.strictjson import Json

_NAMED = re.compile(r"signature|(^|[_-])sigs?\Z", re.ASCII | re.IGNORECASE)
# Shorter texts hold no message.
LONG: Final = 64
# How a text may hold the bytes of JSON, and how it is made of them.
CODES: Final[tuple[tuple[Callable[[str], bytes], Callable[[bytes], str]], ...]] = (
    (bytes.fromhex, bytes.hex),
    (lambda text: b64decode(text, validate=True), lambda raw: b64encode(raw).decode()),
    (str.encode, bytes.decode),
)


def unsigned(body: Json, instead: Json) -> Json:
    """Return a message with something else in the place of its signatures."""
    if isinstance(body, list):
        return [unsigned(each, instead) for each in body]
    if not isinstance(body, dict):
        return body
    return {
        name: instead if _is_signature(name, value) else unsigned(value, instead)
        for name, value in body.items()
    }


def without(body: Json) -> Json:
    """Return a message without the members of its signatures."""
    if isinstance(body, list):
        return [without(each) for each in body]
    if not isinstance(body, dict):
        return body
    return {name: without(value) for name, value in body.items() if not _is_signature(name, value)}


def borrowed(body: Json, lender: Json) -> Json:
    """Return a message with the signatures of another one, or None where they do not fit."""
    own, others = list(_found(body)), list(_found(lender))
    if not own or len(own) != len(others) or own == others:
        return None
    return _exchanged(body, dict(zip(own, others, strict=True)))


def _is_signature(name: str, value: Json) -> bool:
    return _NAMED.search(name) is not None and isinstance(value, str)


def _found(value: Json) -> Iterator[str]:
    """Yield the signatures, in the order of the message."""
    if isinstance(value, str):
        for raw, _ in _inside(value):
            yield from _found(json.loads(raw))
    for each in value if isinstance(value, list) else ():
        yield from _found(each)
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, str) and _is_signature(name, each):
            yield each
        else:
            yield from _found(each)


def _exchanged(value: Json, others: Mapping[str, str]) -> Json:
    """Return a message with other texts; what else is in it stays as it is, to the byte."""
    if isinstance(value, list):
        return [_exchanged(each, others) for each in value]
    if isinstance(value, dict):
        return {name: _exchanged(each, others) for name, each in value.items()}
    if not isinstance(value, str):
        return value
    for raw, encode in _inside(value):
        for own, other in others.items():
            raw = raw.replace(own.encode(), other.encode())
        return encode(raw)
    return others.get(value, value)


def _inside(text: str) -> Iterator[tuple[bytes, Callable[[bytes], str]]]:
    """Yield the JSON that a text holds, if it does, with what makes such a text of it."""
    for decode, encode in CODES if len(text) > LONG else ():
        try:
            raw = decode(text)
            if isinstance(json.loads(raw), dict):
                yield raw, encode
                return
        except ValueError:
            continue
