"""Faults of whole routes: missing, elsewhere, unguarded, with another status or another shape."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from conformance.judging.derived.fault import Fault, Wrapper
from conformance.judging.derived.interface import NODE_ROUTES, ROUTES, Route
from conformance.judging.toy.answers import Asked, Response, Sent, error
from conformance.judging.toy.node import ToyNode

Change = Callable[[Response], None]
NOWHERE = "/no-such-path"
PREFIXES = ("/v1", "/api/v2", "/api")


def becomes(status: int, body: Any = None, **headers: str) -> Change:
    """Turn an answer into another one."""

    def change(response: Response) -> None:
        response.status, response.events, response.headers = status, None, dict(headers)
        response.raw = body if isinstance(body, bytes) else None
        response.json = body

    return change


def refused(status: int, code: str) -> Change:
    """Turn an answer into an error of the documented form."""

    def change(response: Response) -> None:
        response.__dict__.update(error(status, code, "by the judge").__dict__)

    return change


def route_faults() -> Iterator[Fault]:
    """Yield the faults of every route."""
    for route in ROUTES:
        yield _missing(route)
        yield _always("route missing", route, "405", becomes(405, {}))
        yield _always("route missing", route, "501", becomes(501, {}))
        for name, change in _SHAPES.items():
            yield _successful("another shape", route, name, change)
        yield _successful("another status", route, "202", lambda r: setattr(r, "status", 202))
        for status in (204, 302, 400, 403, 404, 429, 500, 503):
            body = b"" if status in (204, 302) else {"error": "no"}
            yield _successful("another status", route, str(status), becomes(status, body))
    for route in NODE_ROUTES:
        for prefix in PREFIXES:
            yield _moved(route, prefix)
        if route.guarded:
            for name, kept in _GUARDS.items():
                yield _unguarded(route, name, kept)
        else:
            yield _guarded(route)


_SHAPES: dict[str, Change] = {
    "a bare array": lambda r: setattr(r, "json", [r.json]),
    "its first array": lambda r: setattr(r, "json", _first_list(r.json)),
    "a bare string": lambda r: setattr(r, "json", "ok"),
    "a number": lambda r: setattr(r, "json", 1),
    "null": lambda r: setattr(r, "json", None),
    "an empty object": lambda r: setattr(r, "json", {}),
    "within data": lambda r: setattr(r, "json", {"data": r.json}),
    "JSON within a string": lambda r: setattr(r, "json", json.dumps(r.json)),
    "an HTML page": lambda r: r.__dict__.update(
        raw=b"<html></html>", headers={"Content-Type": "text/html"}
    ),
    "nothing": lambda r: r.__dict__.update(raw=b"", headers={"Content-Type": "application/json"}),
    "text": lambda r: r.headers.update({"Content-Type": "text/plain"}),
}


def _first_list(document: Any) -> Any:
    values = document.values() if isinstance(document, dict) else ()
    return next((value for value in values if isinstance(value, list)), [document])


def _always(kind: str, route: Route, name: str, change: Change) -> Fault:
    def hook(asked: Asked, response: Response) -> None:
        if route.matches(asked.method, asked.path):
            change(response)

    return Fault(kind, f"{route.key} {name}", frozenset({route.key}), lambda node: Wrapper(hook))


def _successful(kind: str, route: Route, name: str, change: Change) -> Fault:
    def hook(asked: Asked, response: Response) -> None:
        good = route.matches(asked.method, asked.path) and 200 <= response.status < 300
        # The hooks of shapes read the JSON, and a stream has none.
        if good and (response.json is not None or kind == "another status"):
            change(response)

    return Fault(kind, f"{route.key} {name}", frozenset({route.key}), lambda node: Wrapper(hook))


def _missing(route: Route) -> Fault:
    """Answer as to a path that does not exist."""

    def request(sent: Sent) -> Sent:
        here = route.matches(sent.method, sent.target.partition("?")[0])
        return replace(sent, target=NOWHERE) if here else sent

    name = f"{route.key} 404"
    return Fault("route missing", name, frozenset({route.key}), lambda node: Wrapper(
        request=request))  # fmt: skip


def _moved(route: Route, prefix: str) -> Fault:
    """Serve the route under another prefix only."""
    base = "/api/training" if route.path.startswith("/api/training") else "/api/v1"
    there = prefix + route.path.removeprefix(base)

    def request(sent: Sent) -> Sent:
        path, mark, query = sent.target.partition("?")
        if sent.method == route.method and path == there:
            return replace(sent, target=route.path + mark + query)
        if sent.method == route.method and path == route.path:
            return replace(sent, target=NOWHERE)
        return sent

    name = f"{route.key} at {there}"
    return Fault(
        "under another prefix", name, frozenset({route.key}), lambda node: Wrapper(request=request)
    )


_GUARDS: dict[str, Callable[[str | None], bool]] = {
    "no token": lambda header: not header,
    "an unknown token": lambda header: bool(header and header.startswith("Bearer not-a-token")),
    "another scheme": lambda header: bool(header and header.startswith("Basic")),
    "any token": lambda header: True,
}


def _unguarded(route: Route, name: str, let_in: Callable[[str | None], bool]) -> Fault:
    def make(node: ToyNode) -> Wrapper:
        def hook(asked: Asked, response: Response) -> None:
            wrong = response.status == 401 and let_in(asked.authorization)
            if wrong and route.matches(asked.method, asked.path):
                good = node.valid_headers()
                body = b"" if asked.body is None else json.dumps(asked.body).encode()
                target = asked.path + (f"?{asked.query}" if asked.query else "")
                _, served = node.answered(Sent(asked.method, target, body, good))
                response.__dict__.update(served.__dict__)

        return Wrapper(hook)

    return Fault("without its guard", f"{route.key} {name}", frozenset({route.key}), make)


def _guarded(route: Route) -> Fault:
    def hook(asked: Asked, response: Response) -> None:
        if route.matches(asked.method, asked.path) and not asked.authorization:
            refused(401, "UNAUTHORIZED")(response)

    return Fault(
        "a guard where there is none", route.key, frozenset({route.key}), lambda node: Wrapper(hook)
    )
