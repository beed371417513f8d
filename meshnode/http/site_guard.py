"""Refuses what a browser sends for a stranger's page (decisions 0131, 0162).

The rules are those of :mod:`meshnode.domain.sites`; here they are applied to a request.
Three attacks are stopped: a form that a page posts to this node, a script of another site, and a
page whose own name is made to point here (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from werkzeug.exceptions import UnsupportedMediaType

from meshnode.domain.connections import is_here
from meshnode.domain.errors import ForeignSite
from meshnode.domain.sites import ANY, SIMPLE_TYPES, is_near, is_own_host, is_own_origin

if TYPE_CHECKING:
    from meshnode.http.asked import Asked


@dataclass(frozen=True, slots=True)
class SiteGuard:
    """Knows the names under which clients reach this node."""

    host: str = ""
    """The name or address that the node listens on."""
    names: frozenset[str] = frozenset()
    """Further names, whose pages may also use the node; ``*`` stands for any."""
    origins: frozenset[str] = frozenset()
    """Origins whose pages may use the node by the setting ``cors_origins``."""

    def check(self, asked: Asked, *, forwarded: bool = False) -> None:
        """Let the request go on, or raise ForeignSite or UnsupportedMediaType."""
        self.check_site(asked, forwarded=forwarded)
        if asked.mimetype in SIMPLE_TYPES:
            raise UnsupportedMediaType

    def check_site(self, asked: Asked, *, forwarded: bool = False) -> None:
        """The part that concerns names: let the request go on, or raise ForeignSite.

        ``forwarded`` says that a trusted proxy names the client. Pages of other sites cannot make a
        browser send that header, except to their own name.
        """
        client, headers = asked
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if is_near(client[0] if client else ""):
            # A program may leave out Host in HTTP/1.0; browsers never do.
            if host and not is_own_host(host, self.names | {self.host.lower()}):
                raise ForeignSite("the Host is not a name of this node; host_names can list it")
            known = forwarded or origin in self.origins or ANY in self.origins
            if origin is not None and not (known or is_own_origin(origin, host, self.names)):
                raise ForeignSite("the Origin is another site; host_names can list it")


def states_client(asked: Asked) -> bool:
    """Whether a proxy on this machine names the client of a request, by ``X-Real-IP``."""
    if asked.client is None or not is_here(asked.client[0]):
        return False
    try:
        ipaddress.ip_address(asked.headers.get("X-Real-IP", ""))
    except ValueError:
        return False
    return True
