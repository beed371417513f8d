"""Server-sent events (interface 6): ``data: <json>`` lines separated by blank lines.

JSON escapes every line break inside a string, so an event is always exactly one line of data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.wire import json

if TYPE_CHECKING:
    from collections.abc import Mapping

MEDIA_TYPE = "text/event-stream"

DONE = "[DONE]"
"""The ``token`` of the final event."""


def encode_event(data: Mapping[str, object]) -> bytes:
    """One event, the blank line that ends it included."""
    return b"data: " + json.dumps(data) + b"\n\n"


def encode_named(identifier: str, kind: str, data: bytes) -> bytes:
    """One event with an id and a name; ``data`` is JSON on one line."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (identifier.encode(), kind.encode(), data)


def encode_comment(text: str) -> bytes:
    """A comment line, which clients ignore, and a blank line. ``text`` has no line breaks."""
    return b": " + text.encode() + b"\n\n"
