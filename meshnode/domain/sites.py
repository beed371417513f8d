"""Which requests a browser may be making for a stranger's page (decision 0131).

Terms: a *near* client has an address of this machine or of a private network. A page that a browser
there has loaded from anywhere can reach this node where the page's owner cannot; a client with a
public address could as well make the request itself. The *names* are those that the operator lists.
A *simple* content type is one that a browser sends to any server without asking it first.

Pure functions. What they are given is text from outside, so everything that cannot be read counts
as foreign.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

ANY = "*"
"""Listed as a name, it stands for all names."""
SIMPLE_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
RESERVED_ENDINGS = (".localhost", ".local", ".internal", ".home.arpa")
"""Nobody can register a public name that ends with these."""

NAMES = r"(\*|[0-9A-Za-z.-]+)?(,[0-9A-Za-z.-]+)*"
"""Pattern of names with commas in between; ``*`` for any."""
ORIGINS = r"(\*|(https?://[0-9A-Za-z.:\[\]-]+)(,https?://[0-9A-Za-z.:\[\]-]+)*)?"
"""Pattern of origins with commas in between; ``*`` for any."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::([0-9]{0,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def listed_names(text: str) -> frozenset[str]:
    """The names in a text that has commas in between."""
    return frozenset(name.lower().rstrip(".") for name in text.split(",") if name)


def is_near(address: str) -> bool:
    """Whether a client with this address is near; also if the address cannot be read."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    if ip.version == 6 and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return not ip.is_global


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Whether no stranger's name can stand in the ``Host`` header ``host``.

    An address is never a stranger's, and neither is a name without a dot or one with a reserved
    ending, because no public server of names answers for it.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match[1].lower().rstrip(".")
    if ANY in names or name in names or "." not in name or name.endswith(RESERVED_ENDINGS):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_own_origin(origin: str, host: str, names: Collection[str]) -> bool:
    """Whether an ``Origin`` is that of this node's own pages, or has one of the names.

    ``host`` is the request's ``Host`` header. ``null`` is nobody's own.
    """
    try:
        parts = urlsplit(origin)
        name, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    match = _HOST.fullmatch(host)
    if parts.scheme not in _DEFAULT_PORTS or not name or match is None:
        return False
    if ANY in names or name.rstrip(".") in names:
        return True
    own = match[1].lower().strip("[]").rstrip(".")
    default = _DEFAULT_PORTS[parts.scheme]
    # A proxy that ends TLS passes on a Host without a port, which is then the default one.
    return (name.rstrip("."), str(port or default)) == (own, match[2] or default)
