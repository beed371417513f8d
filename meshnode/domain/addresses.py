"""The form of a node's HTTP address, ``{tracker_url}`` in the document (interface 2.1).

The rule is a regular expression, so that the API description can state exactly what the
configuration enforces. It uses only syntax that ECMA 262 and Python share.
"""

from __future__ import annotations

from urllib.parse import urlsplit

DEFAULT_PORT = 8000
"""The port of the HTTP interface (interface 1) for a URL without one."""
GRPC_PORT_OFFSET = 1000
"""The gRPC port is always the HTTP port plus this (interface 1)."""

_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"

_H16 = "[0-9A-Fa-f]{1,4}"
# Eight groups, or fewer with one `::`; the mixed notation with an IPv4 tail is not accepted.
_IPV6 = "|".join(
    [f"({_H16}:){{7}}{_H16}", f"({_H16}:){{1,7}}:", f":((:{_H16}){{1,7}}|:)"]
    + [f"({_H16}:){{1,{before}}}(:{_H16}){{1,{7 - before}}}" for before in range(1, 7)]
)

# 1 to 64535, since gRPC uses the port that is 1000 higher.
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64[0-4][0-9]{2}|645[0-2][0-9]|6453[0-5])"

_NODE_URL = rf"https?://({_HOST}|\[({_IPV6})\])(:{_PORT})?/?"

NODE_URLS_OR_EMPTY = rf"^({_NODE_URL}(,{_NODE_URL}){{0,15}})?$"
"""Up to 16 URLs with commas in between, or nothing. A URL is ``http://HOST:PORT`` or https, with or
without the port and a final slash; HOST is a name, an IPv4 address or an IPv6 address in brackets.
"""


def grpc_addresses(urls: str) -> list[tuple[str, int]]:
    """Hosts and gRPC ports of the URLs in a text that ``NODE_URLS_OR_EMPTY`` matches, in order."""
    parts = [urlsplit(url) for url in urls.split(",") if url]
    return [(part.hostname or "", (part.port or DEFAULT_PORT) + GRPC_PORT_OFFSET) for part in parts]
