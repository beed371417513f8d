"""Tables of routes: what serves a request, and how the OpenAPI document describes it (interface 4).

Each HTTP edge has one table, ``ROUTES``, whose handlers are methods of what owns the answers. The
OpenAPI document and the index of the API are made of these tables and of nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from meshnode.domain.tokens import Scope
from meshnode.http.exchange import PromptView
from meshnode.http.schema import Kind, Limits

if TYPE_CHECKING:
    from quart_trio.wrappers import TrioResponse as Response

    from meshnode.http.access import Access
    from meshnode.http.asked import Asked
    from meshnode.http.exchange import ApiApp

Api = TypeVar("Api")

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class TextParameter:
    """A text in a query."""

    name: str
    kind: Kind = str
    required: bool = False


@dataclass(frozen=True, slots=True)
class IntegerParameter:
    """A decimal number in a query. Without it, the number is ``default``."""

    name: str
    default: int
    low: int
    high: int
    required: bool = False
    shown_default: bool = True
    """Whether a reader learns anything from the default."""

    @property
    def kind(self) -> Kind:
        """The number's type."""
        default = self.default if self.shown_default else None
        return Annotated[int, Limits(minimum=self.low, maximum=self.high, default=default)]


@dataclass(frozen=True, slots=True)
class Reply:
    """One status that a route answers with, errors aside."""

    status: int
    description: str
    content: Mapping[str, Kind] = field(default_factory=dict)
    """Types by media type; none for an answer without a body."""
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plain(Generic[Api]):
    """A handler of plain requests, which needs no more than who asks and the body.

    It answers as the route's own handler does, and makes its checks.
    """

    handler: Callable[[Api, Asked, bytes], Awaitable[Response]]
    says: bytes
    """Only bodies that contain this come here. What makes the node wait for long should not: while
    the handler waits, nothing is read, and a client that leaves is not noticed."""


@dataclass(frozen=True, slots=True)
class Route(Generic[Api]):
    """One operation. ``path`` is Quart's notation; ``request.view_args`` has its variables."""

    method: str
    path: str
    handler: Callable[[Api], Awaitable[Response]]
    summary: str
    answer: Kind = Any
    """The type of a JSON answer with status 200, or a tuple of :class:`Reply`."""
    name: str = ""
    """The operation's id in the OpenAPI document; without it, one is made of the path."""
    scope: Scope | None = None
    """The scope that the bearer token must have; the handler finds its record with
    ``access.bearer()``. None: no token is needed."""
    private: bool = False
    """Whether pages of other sites are refused although no token is needed."""
    limited: bool = True
    """Whether requests count against their address."""
    prompt: bool = False
    """Whether the handler neither waits nor looks at the request, so that a plain request for it
    can be answered by the connection itself (:mod:`meshnode.http.prompt`)."""
    plain: Plain[Api] | None = None
    """How the connection answers plain requests with a body, if it may."""
    body: Kind = None
    """The type of the JSON body, if the route takes one."""
    example: Any = None
    """A body that the route accepts."""
    query: tuple[TextParameter | IntegerParameter, ...] = ()
    variables: Mapping[str, Kind] = field(default_factory=dict)
    """Types of the path's variables; text, if not named here."""
    errors: tuple[int, ...] = ()
    """Statuses besides those that follow from the fields above."""

    @property
    def auth(self) -> bool:
        """Whether a bearer token is needed."""
        return self.scope is not None

    @property
    def guarded(self) -> bool:
        """Whether pages of other sites are refused: it changes something, or is not public."""
        return self.auth or self.private or self.method not in ("GET", "HEAD")

    @property
    def replies(self) -> tuple[Reply, ...]:
        """What the route answers, errors aside."""
        if isinstance(self.answer, tuple):
            return self.answer
        return (Reply(200, "Success.", {JSON_TYPE: self.answer}),)


def add_routes(
    app: ApiApp, api: Api, routes: Iterable[Route[Api]], access: Access | None = None
) -> None:
    """Serve ``routes`` by asking ``api``. Without ``access``, none of them may need a token."""
    add_late_routes(app, lambda: api, routes, access)


def add_late_routes(
    app: ApiApp,
    find: Callable[[], Api],
    routes: Iterable[Route[Api]],
    access: Access | None = None,
) -> None:
    """Serve ``routes`` by asking what ``find`` returns; it may raise Unavailable for now."""
    for route in routes:
        endpoint = f"{route.method} {route.path}"
        view = _view(find, route, access)
        app.add_url_rule(route.path, endpoint, view, methods=[route.method])
        if route.prompt:
            _check_prompt(route)
            app.prompt_views["GET", route.path] = PromptView(_without_asking(view))
        if route.plain is not None:
            app.prompt_views["POST", route.path] = _plain_view(find, route.plain)
        if access is not None and not route.limited:
            access.exempt(route.path)


def _check_prompt(route: Route[Any]) -> None:
    if route.method != "GET" or route.guarded or route.query or "<" in route.path:
        raise ValueError(f"{route.path} cannot be answered without a look at the request")


def _without_asking(
    view: Callable[[], Awaitable[Response]],
) -> Callable[[Asked, bytes], Awaitable[Response]]:
    return lambda _asked, _body: view()


def _plain_view(find: Callable[[], Api], plain: Plain[Api]) -> PromptView:
    async def answer(asked: Asked, body: bytes) -> Response:
        return await plain.handler(find(), asked, body)

    return PromptView(answer, plain.says)


def _view(
    find: Callable[[], Api], route: Route[Api], access: Access | None
) -> Callable[..., Awaitable[Response]]:
    if route.auth and access is None:
        raise ValueError(f"{route.path} needs a token, and nothing checks tokens")

    async def view(**_: object) -> Response:
        if access is not None:
            if route.guarded:
                access.check_site()
            if route.scope is not None:
                access.authorize(route.scope)
        return await route.handler(find())

    return view
