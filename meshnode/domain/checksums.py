"""JSON files that carry a checksum of their own, so that a flipped bit is seen (decision 0140).

The checksum is the SHA-256 of the document without it, as compact JSON with sorted keys. A file of
an earlier version has none and is read as it is; the next write adds it.

Invariant: whatever the bytes are, reading them gives a JSON object or raises FileDamaged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

CHECKSUM = "checksum"


class FileDamaged(ValueError):
    """Not a JSON object, or not the one that was written."""


def dump_checked(document: Mapping[str, object]) -> bytes:
    """The file of a document, with its checksum."""
    return json.dumps({**document, CHECKSUM: _checksum(document)}, indent=1).encode() + b"\n"


def read_checked(data: bytes) -> dict[str, Any]:
    """The document of a file, without its checksum. Raises FileDamaged."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise FileDamaged("not valid JSON") from None
    if not isinstance(document, dict):
        raise FileDamaged("not a JSON object")
    if CHECKSUM in document and document.pop(CHECKSUM) != _checksum(document):
        raise FileDamaged("its checksum does not match")
    return document


def _checksum(document: Mapping[str, object]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
