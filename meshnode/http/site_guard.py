"""Refuses what a browser sends for a stranger's page (decision 0131).

The rules are those of :mod:`meshnode.domain.sites`; here they are applied to the current request.
Three attacks are stopped: a form that a page posts to this node, a script of another site, and a
page whose own name is made to point here (DNS rebinding).
"""

from __future__ import annotations

from dataclasses import dataclass

from quart import request
from werkzeug.exceptions import UnsupportedMediaType

from meshnode.domain.errors import ForeignSite
from meshnode.domain.sites import SIMPLE_TYPES, is_near, is_own_host, is_own_origin


@dataclass(frozen=True, slots=True)
class SiteGuard:
    """Knows the names under which clients reach this node."""

    host: str = ""
    """The name or address that the node listens on."""
    names: frozenset[str] = frozenset()
    """Further names, whose pages may also use the node; ``*`` stands for any."""

    def check(self, *, forwarded: bool = False) -> None:
        """Let the current request go on, or raise ForeignSite or UnsupportedMediaType.

        ``forwarded`` says that a trusted proxy names the client. Pages of other sites cannot make a
        browser send that header, except to their own name.
        """
        client, headers = request.scope["client"], request.headers
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if is_near(client[0] if client else ""):
            # A program may leave out Host in HTTP/1.0; browsers never do.
            if host and not is_own_host(host, self.names | {self.host.lower()}):
                raise ForeignSite("the Host is not a name of this node; host_names can list it")
            if origin is not None and not (forwarded or is_own_origin(origin, host, self.names)):
                raise ForeignSite("the Origin is another site; host_names can list it")
        if request.mimetype in SIMPLE_TYPES:
            raise UnsupportedMediaType
