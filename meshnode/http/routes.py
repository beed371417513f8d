"""Tables of routes, and how an edge puts one into the application (document, section 4).

Each HTTP edge has one table, ``ROUTES``, whose handlers are methods of what owns the answers. The
OpenAPI document describes exactly the routes of the node API; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from meshnode.http.access import Access
    from meshnode.http.app import QuartTrio, Response

Api = TypeVar("Api")


@dataclass(frozen=True, slots=True)
class Route(Generic[Api]):
    """One operation. ``path`` is Quart's notation; ``request.view_args`` has its variables."""

    method: str
    path: str
    handler: Callable[[Api], Awaitable[Response]]
    auth: bool = False
    """Whether a bearer token is needed; the handler finds its record with ``access.bearer()``."""
    limited: bool = True
    """Whether requests count against their address."""


def add_routes(app: QuartTrio, api: Api, routes: Iterable[Route[Api]], access: Access) -> None:
    """Serve ``routes`` by asking ``api``."""
    add_late_routes(app, lambda: api, routes, access)


def add_late_routes(
    app: QuartTrio, find: Callable[[], Api], routes: Iterable[Route[Api]], access: Access
) -> None:
    """Serve ``routes`` by asking what ``find`` gives, which may be Unavailable for now."""
    for route in routes:
        endpoint = f"{route.method} {route.path}"
        app.add_url_rule(route.path, endpoint, _view(find, route, access), methods=[route.method])
        if not route.limited:
            access.exempt(route.path)


def _view(
    find: Callable[[], Api], route: Route[Api], access: Access
) -> Callable[..., Awaitable[Response]]:
    async def view(**_: object) -> Response:
        if route.auth:
            access.authorize()
        return await route.handler(find())

    return view
