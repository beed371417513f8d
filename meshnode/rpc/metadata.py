"""Metadata of calls, sent beside the messages (gRPC over HTTP/2: Custom-Metadata).

Keys are lower-case. Received metadata is reduced to at most MAX_ENTRIES entries of printable text:
binary values, repeated keys and the protocol's own headers are dropped. Metadata to be sent is
checked, since a malformed header block would end the connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

CONVOY = "convoy"
"""Names the calls that are served together (decision 0213), so that their messages leave together:
each side then wakes once for all. Those of other calls leave at once, so that both sides work."""
MAX_ENTRIES = 32
MAX_VALUE_CHARS = 1024
"""Small enough that MAX_ENTRIES values fit into a header block of 8 KiB."""

_KEY = re.compile(r"[0-9a-z_.-]{1,64}")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_RESERVED = frozenset({"te", "content-type", "user-agent", "host", "connection"})

NONE: Mapping[str, str] = {}


def received_metadata(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The metadata in a header block that arrived."""
    found: dict[str, str] = {}
    for key, value in headers:
        if len(found) >= MAX_ENTRIES:
            break
        if key not in found and _fits(key, value):
            found[key] = value
    return found


def sent_metadata(metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Turn metadata into header fields. Raises ValueError for entries that peers would refuse."""
    for key, value in metadata.items():
        if not _fits(key, value):
            raise ValueError(f"not metadata: {key!r}: {value!r:.80}")
    if len(metadata) > MAX_ENTRIES:
        raise ValueError(f"more than {MAX_ENTRIES} entries of metadata")
    return tuple(metadata.items())


def _fits(key: str, value: str) -> bool:
    if key in _RESERVED or key.startswith("grpc-") or key.endswith("-bin"):
        return False
    if _KEY.fullmatch(key) is None or len(value) > MAX_VALUE_CHARS:
        return False
    return _VALUE.fullmatch(value) is not None
