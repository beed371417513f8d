"""Authentication and rate limits of the node API (interface 5 and 7.1; decision 0029).

A client's address is that of its connection; forwarded addresses are not believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import trio
from quart import g, request

from meshnode.domain.ratelimit import RateLimits, address_key
from meshnode.domain.tokens import TokenRecord, bearer_secret

if TYPE_CHECKING:
    from hypercorn.typing import HTTPScope


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

    def count_address(self, scope: HTTPScope) -> None:
        """Count a request against its address, unless its path is exempt.

        Unknown paths count too. Raises RateLimited. This runs before the application sees the
        request, because the application takes about a millisecond for each.
        """
        if scope["path"] not in self._unlimited:
            self._limits.per_address.check(key_of(scope), trio.current_time())

    def authorize(self) -> None:
        """Recognise the bearer token. Raises Unauthorized or RateLimited."""
        record = self._authenticate(bearer_secret(request.headers.get("Authorization")))
        self._limits.per_token.check(record.id, trio.current_time())
        g.bearer = record


def bearer() -> TokenRecord:
    """The token of the current request, on a route with ``auth``."""
    return cast("TokenRecord", g.bearer)


def key_of(scope: HTTPScope) -> str:
    """The key that a request's address counts against."""
    client = scope["client"]
    return address_key(client[0]) if client else "local"
