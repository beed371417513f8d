"""The lists of what HTTP offers: ``/openapi.json``, and an index at ``/`` and ``/api/v1``.

A browser that asks for ``/`` gets the page instead (decision 0165). Both lists are made once, when
the node starts, from the route tables of the HTTP port (decision 0112).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from meshnode.http.app import Response, encoded_response
from meshnode.http.openapi import (
    Section,
    native_section,
    node_section,
    openai_section,
    openapi_document,
    template,
)
from meshnode.http.page_files import PAGE, PageFile, page_files, page_response, wants_page
from meshnode.http.routes import JSON_TYPE, Reply, Route
from meshnode.http.schema import Json, extensible
from meshnode.wire import json

if TYPE_CHECKING:
    from typing import Self


@extensible
class OpenapiDocument(TypedDict):
    """An OpenAPI document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]


class IndexEntry(TypedDict):
    """One operation."""

    method: str
    path: str
    summary: str
    token: bool


class IndexLinks(TypedDict):
    """Where to find out more."""

    openapi: str
    join: str


class Index(TypedDict):
    """What this node serves over HTTP."""

    name: str
    version: str
    links: IndexLinks
    routes: list[IndexEntry]


@dataclass(frozen=True, slots=True)
class IndexApi:
    """The handlers, and their answers."""

    document: Json = field(repr=False)
    index: Index = field(repr=False)
    page: PageFile = field(repr=False)
    document_json: bytes = field(repr=False)
    """Encoded once: encoding it takes longer than all else about a request."""
    index_json: bytes = field(repr=False)

    @classmethod
    def of(
        cls,
        version: str,
        node: Iterable[Route[Any]],
        native: Iterable[Route[Any]] = (),
        openai: Iterable[Route[Any]] = (),
    ) -> Self:
        """Make the answers for a node of ``version`` from its routes and those of this module."""
        sections = (
            node_section((*node, *ROUTES)),
            native_section(native),
            openai_section(openai),
        )
        document, index = openapi_document(version, sections), _index(version, sections)
        return cls(document, index, page_files()[PAGE], json.dumps(document), json.dumps(index))

    async def get_openapi(self) -> Response:
        """The OpenAPI document."""
        return encoded_response(self.document_json)

    async def get_index(self) -> Response:
        """One line for each operation."""
        return encoded_response(self.index_json)

    async def get_root(self) -> Response:
        """The index for programs, the page for browsers."""
        response = page_response(self.page) if wants_page() else encoded_response(self.index_json)
        response.headers["Vary"] = "Accept"
        return response


def _index(version: str, sections: Iterable[Section]) -> Index:
    routes: list[IndexEntry] = [
        {
            "method": route.method,
            "path": template(route.path),
            "summary": route.summary,
            "token": route.auth,
        }
        for section in sections
        for route in section.routes
        # Routes without content are left out: removed interfaces, moved pages and refusals.
        if any(reply.content for reply in route.replies)
    ]
    links: IndexLinks = {"openapi": "/openapi.json", "join": "/join"}
    return {"name": "meshnode", "version": version, "links": links, "routes": routes}


ROUTES = (
    Route(
        "GET",
        "/openapi.json",
        IndexApi.get_openapi,
        "This document",
        OpenapiDocument,
        name="getOpenapi",
    ),
    *(
        Route("GET", path, IndexApi.get_index, "What this node serves over HTTP", Index, name=name)
        for path, name in (
            ("/api/v1", "getIndex"),
            ("/api/v1/", "getIndexSlash"),
        )
    ),
    Route(
        "GET",
        "/",
        IndexApi.get_root,
        "What this node serves over HTTP, or the page for browsers",
        (
            Reply(200, "Success.", {JSON_TYPE: Index, "text/html": str}),
            Reply(304, "The browser has the page.", {}, ("ETag",)),
        ),
        name="getRoot",
    ),
)
