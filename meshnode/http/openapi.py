"""The OpenAPI 3.1 description of the HTTP port, made of its tables of routes (interface 4.1, 4.2).

Paths, parameters, bodies and answers are what the routes say of themselves; the schemas are those
of their types. Added here is what follows from the API that a route belongs to: its error body, its
headers, and the errors that each of its routes can answer with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from meshnode.http.errors import HTTP_ERRORS, Error
from meshnode.http.openai import OpenaiError
from meshnode.http.routes import JSON_TYPE, Reply, Route
from meshnode.http.schema import Json, Kind, Schemas

_PHRASES = {
    401: "the bearer token is missing, invalid or expired",
    402: "the balance is too low for the operation",
    403: "the token does not have the scope, the path can only be read, or a page of another site "
    "asks",
    409: "the stake is locked until its unlock date",
    410: "this interface is gone; the text says what to use instead",
    429: "too many requests",
    500: "internal error",
    503: "the node is draining, or lacks what the request needs",
}

_ALWAYS = (429, 500)
_WITH_AUTH = (401, 403)
_WITH_QUERY = (400,)
_WITH_BODY = (400, 408, 413)

HEADERS: dict[str, Json] = {
    "X-Request-Id": {
        "description": "Names this exchange in the node's log.",
        "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    },
    "Retry-After": {
        "description": "Seconds to wait before another attempt.",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    },
    "WWW-Authenticate": {
        "description": "The scheme to use.",
        "schema": {"type": "string", "pattern": "^Bearer"},
    },
    "Location": {
        "description": "The page that replaced this one.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    "ETag": {"description": "The digest of the bytes.", "schema": {"type": "string"}},
    "Content-Range": {
        "description": "Which bytes these are, and of how many.",
        "schema": {"type": "string"},
    },
}
_ERROR_HEADERS = {401: ("WWW-Authenticate",), 429: ("Retry-After",)}

_VARIABLE = re.compile(r"<(?:\w+(?:\(([^)]*)\))?:)?(\w+)>")
"""A variable in Quart's notation: ``<name>``, ``<path:name>`` or ``<any(a, b):name>``."""


class NativeError(TypedDict):
    """The error body of the native API."""

    error: str


@dataclass(frozen=True, slots=True)
class Section:
    """The routes of one API, and what its routes have in common."""

    tag: str
    description: str
    routes: tuple[Route[Any], ...]
    error: Kind = Error
    error_headers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    always: tuple[int, ...] = _ALWAYS
    with_body: tuple[int, ...] = (*_WITH_BODY, 415)


def node_section(routes: Iterable[Route[Any]]) -> Section:
    """The node API."""
    headers = {**_ERROR_HEADERS, 503: ("Retry-After",)}
    text = "The node API: inference, wallet, peers, configuration."
    return Section("node", text, tuple(routes), error_headers=headers)


def native_section(routes: Iterable[Route[Any]]) -> Section:
    """The public native API, whose routes answer 503 until the node has a chain."""
    text = "The public native API: the chain, without credentials."
    always, body = (*_ALWAYS, 503), _WITH_BODY
    return Section("native", text, tuple(routes), NativeError, _ERROR_HEADERS, always, body)


def openai_section(routes: Iterable[Route[Any]]) -> Section:
    """OpenAI's interface."""
    headers = {**_ERROR_HEADERS, 503: ("Retry-After",)}
    text = "OpenAI's interface: models, chats, completions."
    return Section("openai", text, tuple(routes), OpenaiError, headers)


def openapi_document(version: str, sections: Iterable[Section]) -> Json:
    """The whole document. ``version`` is the node's."""
    schemas = Schemas()
    responses: Json = {}
    paths: dict[str, Json] = {}
    sections = tuple(sections)
    for section in sections:
        for route in section.routes:
            methods = paths.setdefault(template(route.path), {})
            methods[route.method.lower()] = _operation(route, section, schemas)
            for status in _error_statuses(route, section):
                responses[_error_name(status, section)] = _error(status, section, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "meshnode HTTP API",
            "version": version,
            "description": (
                "The HTTP port of a node in a distributed model network. Every response carries "
                "X-Request-Id. A failure has the body Error on the node API, NativeError on the "
                "native API, and OpenaiError under /v1."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": each.tag, "description": each.description} for each in sections],
        "paths": paths,
        "components": {
            "schemas": schemas.named,
            "headers": {name: {"required": True, **header} for name, header in HEADERS.items()},
            "responses": responses,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token issued with `meshnode token issue`, with its scopes.",
                }
            },
        },
    }


def template(path: str) -> str:
    """A route's path in OpenAPI's notation."""
    return _VARIABLE.sub(r"{\2}", path)


def _operation(route: Route[Any], section: Section, schemas: Schemas) -> Json:
    operation: Json = {
        "operationId": route.name or _made_name(route),
        "summary": route.summary,
        "tags": [section.tag],
        "security": [] if route.scope is None else [{"bearer": [str(route.scope)]}],
    }
    parameters = [*_variables(route, schemas), *_query(route, schemas)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        media: Json = {"schema": schemas.of(route.body)}
        if route.example is not None:
            media["example"] = route.example
        operation["requestBody"] = {"required": True, "content": {JSON_TYPE: media}}
    operation["responses"] = {
        **{str(reply.status): _reply(reply, schemas) for reply in route.replies},
        **{
            str(status): {"$ref": f"#/components/responses/{_error_name(status, section)}"}
            for status in _error_statuses(route, section)
        },
    }
    return operation


def _made_name(route: Route[Any]) -> str:
    """An operation's id from its path: no two operations have the same."""
    words = re.findall(r"[A-Za-z0-9]+", template(route.path))
    slash = "Slash" if route.path.endswith("/") else ""
    return route.method.lower() + "".join(word.capitalize() for word in words) + slash


def _variables(route: Route[Any], schemas: Schemas) -> list[Json]:
    found = []
    for choices, name in _VARIABLE.findall(route.path):
        schema = schemas.of(route.variables.get(name, str))
        if choices:
            schema = {"type": "string", "enum": choices.split(", ")}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    return found


def _query(route: Route[Any], schemas: Schemas) -> list[Json]:
    return [
        {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "schema": schemas.of(parameter.kind),
        }
        for parameter in route.query
    ]


def _reply(reply: Reply, schemas: Schemas) -> Json:
    response: Json = {
        "description": reply.description,
        "headers": _headers("X-Request-Id", *reply.headers),
    }
    if reply.content:
        response["content"] = {
            media: {"schema": schemas.of(kind)} for media, kind in reply.content.items()
        }
    return response


def _error_statuses(route: Route[Any], section: Section) -> list[int]:
    statuses = {*section.always, *route.errors}
    statuses |= set(_WITH_AUTH) if route.auth else set()
    statuses |= set(_WITH_QUERY) if route.query else set()
    # A value that the variable does not allow makes an unknown path.
    statuses |= {404} if _VARIABLE.search(route.path) else set()
    statuses |= set(section.with_body) if route.body is not None else set()
    if not route.limited:
        statuses.discard(429)
    return sorted(statuses - {reply.status for reply in route.replies})


def _error_name(status: int, section: Section) -> str:
    return f"{section.tag.capitalize()}Error{status}"


def _error(status: int, section: Section, schemas: Schemas) -> Json:
    phrase = _PHRASES.get(status) or HTTP_ERRORS[status][1]
    more = section.error_headers.get(status, ())
    return {
        "description": phrase[0].upper() + phrase[1:] + ".",
        "headers": _headers("X-Request-Id", *more),
        "content": {JSON_TYPE: {"schema": schemas.of(section.error)}},
    }


def _headers(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
