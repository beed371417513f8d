"""Authentication and rate limits of the node API (interface 5 and 7.1; decision 0029).

A client's address is that of its connection; forwarded addresses are not believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio
from quart import g, request

from meshnode.domain.ratelimit import RateLimits, address_key
from meshnode.domain.tokens import TokenRecord, bearer_secret


class Access:
    """Limits and authenticates the clients of the node API."""

    def __init__(self, authenticate: Callable[[str], TokenRecord], limits: RateLimits) -> None:
        """``authenticate`` gives the record of a secret, or raises Unauthorized."""
        self._authenticate = authenticate
        self._limits = limits
        self._unlimited: set[str] = set()

    def exempt(self, path: str) -> None:
        """Do not count requests to the route of this path."""
        self._unlimited.add(path)

    async def count_address(self) -> None:
        """Count the current request against its address, unless its route is exempt.

        Unknown paths count too. Raises RateLimited.
        """
        if request.url_rule is None or request.url_rule.rule not in self._unlimited:
            self._limits.per_address.check(client_key(), trio.current_time())

    def authorize(self) -> None:
        """Recognise the bearer token. Raises Unauthorized or RateLimited."""
        record = self._authenticate(bearer_secret(request.headers.get("Authorization")))
        self._limits.per_token.check(record.id, trio.current_time())
        g.bearer = record


def bearer() -> TokenRecord:
    """The token of the current request, on a route with ``auth``."""
    return cast("TokenRecord", g.bearer)


def client_key() -> str:
    """The key that the current request's address counts against."""
    client = request.scope["client"]
    return address_key(client[0]) if client else "local"
