"""Who may use a route: site, token, scope, rate (interface 5 and 7.1; decisions 0029, 0161, 0162).

A client's address is that of its connection; forwarded addresses are not believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import trio
from quart import g, request

from meshnode.domain.ratelimit import RateLimits, address_key
from meshnode.domain.tokens import Scope, TokenRecord, bearer_secret
from meshnode.http.asked import current_asked
from meshnode.http.exchange import request_record
from meshnode.http.site_guard import SiteGuard, states_client

if TYPE_CHECKING:
    from hypercorn.typing import HTTPScope


class Access:
    """Limits and authenticates the clients of the node API."""

    def __init__(
        self,
        authenticate: Callable[[str], TokenRecord],
        limits: RateLimits,
        guard: SiteGuard | None = None,
    ) -> None:
        """``authenticate`` gives the record of a secret, or raises Unauthorized.

        ``guard`` knows the names under which browsers may reach the node.
        """
        self._guard = guard or SiteGuard()
        self._authenticate = authenticate
        self._limits = limits
        self._unlimited: set[str] = set()

    def exempt(self, path: str) -> None:
        """Do not count requests to the route of this path."""
        self._unlimited.add(path)

    def count_address(self, scope: HTTPScope) -> None:
        """Count a request against its address, unless its path is exempt.

        Unknown paths count too. Raises RateLimited. This runs before the application sees the
        request, because the application takes about a millisecond for each.
        """
        if scope["path"] not in self._unlimited:
            self._limits.per_address.check(key_of(scope), trio.current_time())

    def check_site(self) -> None:
        """Refuse what a browser sends for another site's page. Raises ForeignSite."""
        asked = current_asked()
        self._guard.check_site(asked, forwarded=states_client(asked))

    def authorize(self, scope: Scope) -> None:
        """Recognise the bearer token. Raises Unauthorized, RateLimited or MissingScope."""
        record = self.recognise(request.headers.get("Authorization"))
        request_record().known = True
        record.require(scope)
        g.bearer = record

    def recognise(self, authorization: str | None) -> TokenRecord:
        """The token of an ``Authorization`` header. Raises Unauthorized or RateLimited."""
        record = self._authenticate(bearer_secret(authorization))
        self._limits.per_token.check(record.id, trio.current_time())
        return record


def bearer() -> TokenRecord:
    """The token of the current request, on a route with a scope."""
    return cast("TokenRecord", g.bearer)


def key_of(scope: HTTPScope) -> str:
    """The key that a request's address counts against."""
    client = scope["client"]
    return address_key(client[0]) if client else "local"
