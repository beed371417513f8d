"""Who may use which route (decisions 0161, 0162): walks all tables of routes.

Each route is asked without a token, with each scope alone, and for pages of other sites. The
handlers are replaced, so that an answer of 200 says that the request got to its handler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.assembly.edges import NATIVE_ROUTES, NODE_ROUTES, OPENAI_ROUTES
from meshnode.domain.ratelimit import Rate, RateLimit, RateLimits
from meshnode.domain.tokens import Scope
from meshnode.http.access import Access
from meshnode.http.app import ApiApp, Response, json_response, node_app, openai_app
from meshnode.http.cors import Cors
from meshnode.http.routes import Route, add_routes
from meshnode.http.site_guard import SiteGuard
from meshnode.services.tokens import TokenStore
from spec_tests.edges.http_server import Answer, Client, start_server

SCOPES = {
    ("POST", "/api/v1/inference"): Scope.INFER,
    ("GET", "/v1/models"): Scope.INFER,
    ("GET", "/v1/models/<path:model>"): Scope.INFER,
    ("POST", "/v1/chat/completions"): Scope.INFER,
    ("POST", "/v1/completions"): Scope.INFER,
    ("GET", "/api/v1/wallet/balance"): Scope.WALLET,
    ("POST", "/api/v1/wallet/send"): Scope.WALLET,
    ("GET", "/api/v1/wallet/transactions"): Scope.WALLET,
    ("POST", "/api/v1/wallet/stake"): Scope.WALLET,
    ("POST", "/api/v1/wallet/unstake"): Scope.WALLET,
    ("GET", "/api/v1/peers"): Scope.READ,
    ("GET", "/api/v1/layers"): Scope.READ,
    ("GET", "/api/v1/config"): Scope.READ,
    ("GET", "/api/v1/proofs"): Scope.READ,
    ("PATCH", "/api/v1/config"): Scope.ADMIN,
    ("GET", "/api/v1/log"): Scope.ADMIN,
}
"""The table that docs/access.md shows: all routes that need a token."""

ROUTES = (*NODE_ROUTES, *OPENAI_ROUTES)
ORIGIN = "https://app.example"


async def reached(_: object) -> Response:
    return json_response({"reached": True})


class Site:
    """A server with all routes of the node API and of OpenAI's interface."""

    def __init__(self, client: Client, secrets: dict[str, str]) -> None:
        self._client = client
        self.secrets = secrets

    async def ask(self, route: Route[Any], scope: str = "", **headers: str) -> Answer:
        path = route.path.replace("<path:model>", "some/model")
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._client.ask(
            route.method, path, token=self.secrets.get(scope), headers=more
        )


@pytest.fixture
async def site(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Site]:
    store = TokenStore(tmp_path)
    secrets = {str(scope): store.issue(scope, scopes=(scope,))[1] for scope in Scope}
    secrets["customer"] = store.issue("customer")[1]
    limits = RateLimits(per_address=RateLimit(Rate(1e6, 1e6)), per_token=RateLimit(Rate(1e6, 1e6)))
    access = Access(store.authenticate, limits, SiteGuard(origins=frozenset({ORIGIN})))
    app = node_app(access, 1 << 20, cors=Cors(frozenset({ORIGIN})))
    add_routes(app, None, [replace(route, handler=reached) for route in ROUTES], access)
    *_, address = await start_server(nursery, app, rate=Rate(1e6, 1e6))
    async with Client(await trio.open_tcp_stream(*address)) as client:
        yield Site(client, secrets)


def with_token() -> Iterator[tuple[Route[Any], Scope]]:
    for route in ROUTES:
        if route.scope is not None:
            yield route, route.scope


def test_the_table_is_complete() -> None:
    assert {(route.method, route.path): scope for route, scope in with_token()} == SCOPES
    assert not any(route.scope for route in NATIVE_ROUTES)
    text = (Path(__file__).parents[2] / "docs/access.md").read_text()
    for (method, path), scope in SCOPES.items():
        assert f"| `{method} {path.replace('<path:model>', '{id}')}` | `{scope}` |" in text


async def test_each_scope_opens_its_own_routes_and_no_others(site: Site) -> None:
    for route, needed in with_token():
        assert (await site.ask(route)).status == 401
        for scope in Scope:
            answer = await site.ask(route, scope)
            assert answer.status == (200 if scope == needed else 403), (route.path, scope)
            if answer.status == 403:
                assert answer.json["error"]["code"] == "FORBIDDEN"
                assert answer.details == {"scope": str(needed)}
                assert f'scope="{needed}"' in answer.headers["www-authenticate"]


async def test_a_customer_cannot_change_the_node(site: Site) -> None:
    for route, needed in with_token():
        expected = 403 if needed is Scope.ADMIN else 200
        assert (await site.ask(route, "customer")).status == expected


async def test_what_needs_no_token_needs_none(site: Site) -> None:
    for route in ROUTES:
        if route.scope is None:
            assert (await site.ask(route)).status == 200


async def test_pages_of_other_sites_are_refused_whatever_they_have(site: Site) -> None:
    """A rebound name, a form's or a script's origin, a sandboxed frame, and a token as well."""
    for route in ROUTES:
        if not route.guarded:
            continue
        scope = str(route.scope or "")
        for headers in (
            {"Host": "evil.example:8000"},
            {"Host": "evil.example", "Origin": "http://evil.example"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
        ):
            assert (await site.ask(route, scope, **headers)).status == 403, (route.path, headers)
            assert (await site.ask(route, **headers)).status == 403
        assert (await site.ask(route, scope, Origin=ORIGIN)).status == 200


def test_every_route_that_changes_something_or_is_private_is_guarded() -> None:
    for route in ROUTES:
        assert route.guarded or (route.method == "GET" and route.scope is None)


async def test_pages_may_read_answers_only_if_their_origin_is_listed(site: Site) -> None:
    [status] = [route for route in ROUTES if route.path == "/api/v1/status"]
    allowed = await site.ask(status, Origin=ORIGIN)
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert allowed.headers["vary"] == "Origin"
    other = await site.ask(status, Origin="https://evil.example")
    assert "access-control-allow-origin" not in other.headers
    assert other.headers["vary"] == "Origin"
    # Errors can be read too; a page would otherwise see a broken network instead of a 401.
    [layers] = [route for route in ROUTES if route.path == "/api/v1/layers"]
    refused = await site.ask(layers, Origin=ORIGIN)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == ORIGIN


async def test_a_preflight_is_answered_for_listed_origins_alone(site: Site) -> None:
    [send] = [route for route in ROUTES if route.path == "/api/v1/wallet/send"]
    asked = replace(send, method="OPTIONS")
    wish = {"Access-Control-Request-Method": "POST"}
    answer = await site.ask(asked, Origin=ORIGIN, **wish)
    assert answer.status == 200
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "Authorization" in answer.headers["access-control-allow-headers"]
    other = await site.ask(asked, Origin="https://evil.example", **wish)
    assert not any(name.startswith("access-control") for name in other.headers)


@pytest.mark.parametrize("make", [node_app, openai_app])
async def test_without_the_setting_no_page_gets_anything(
    nursery: trio.Nursery, tmp_path: Path, make: Callable[..., ApiApp]
) -> None:
    limits = RateLimits(per_address=RateLimit(Rate(1e6, 1e6)), per_token=RateLimit(Rate(1e6, 1e6)))
    access = Access(TokenStore(tmp_path).authenticate, limits)
    app = make(access, 1 << 20)
    add_routes(app, None, [replace(route, handler=reached) for route in ROUTES], access)
    *_, address = await start_server(nursery, app, rate=Rate(1e6, 1e6))
    async with Client(await trio.open_tcp_stream(*address)) as client:
        site = Site(client, {})
        for route in ROUTES:
            answer = await site.ask(replace(route, method="OPTIONS"), Origin=ORIGIN)
            assert not any(name.startswith("access-control") for name in answer.headers)
