"""What rules about the sender of a request look at (interface 4.2; decisions 0131, 0260).

The same rules judge requests that Quart has parsed and plain ones, which it never sees.
"""

from __future__ import annotations

from typing import NamedTuple

from quart import request
from werkzeug.datastructures import Headers
from werkzeug.http import parse_options_header


class Asked(NamedTuple):
    """Who asks, and how."""

    client: tuple[str, int] | None
    """Address and port of the connection's other end."""
    headers: Headers

    @property
    def mimetype(self) -> str:
        """The body's media type in lower case, without parameters."""
        return parse_options_header(self.headers.get("Content-Type", ""))[0].lower()


def current_asked() -> Asked:
    """What was asked in the current request."""
    return Asked(request.scope["client"], request.headers)
