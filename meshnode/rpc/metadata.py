"""Metadata of calls: what travels beside the messages (gRPC over HTTP/2: Custom-Metadata).

Keys are lower-case. Of what a peer sends, only readable text is kept, and no more than MOST_ENTRIES
entries: binary values, repeated keys and the protocol's own headers are left out. What this node
sends is checked, since a header block that is malformed would end the connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MOST_ENTRIES = 32
MOST_VALUE_CHARS = 1024
"""Header blocks are 8 KiB at most, so that together they stay below that."""

_KEY = re.compile(r"[0-9a-z_.-]{1,64}")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_RESERVED = frozenset({"te", "content-type", "user-agent", "host", "connection"})

NONE: Mapping[str, str] = {}


def received_metadata(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The metadata in a header block that arrived."""
    found: dict[str, str] = {}
    for key, value in headers:
        if len(found) >= MOST_ENTRIES:
            break
        if key not in found and _fits(key, value):
            found[key] = value
    return found


def sent_metadata(metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The same as header fields. Raises ValueError for what a peer would not take."""
    for key, value in metadata.items():
        if not _fits(key, value):
            raise ValueError(f"not metadata: {key!r}: {value!r:.80}")
    if len(metadata) > MOST_ENTRIES:
        raise ValueError(f"more than {MOST_ENTRIES} entries of metadata")
    return tuple(metadata.items())


def _fits(key: str, value: str) -> bool:
    if key in _RESERVED or key.startswith("grpc-") or key.endswith("-bin"):
        return False
    if _KEY.fullmatch(key) is None or len(value) > MOST_VALUE_CHARS:
        return False
    return _VALUE.fullmatch(value) is not None
