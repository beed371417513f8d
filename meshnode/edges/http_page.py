"""The files of the page for browsers, and what only the page asks for (decision 0165).

``/`` itself is in ``http_index``: it is an index for programs, and the page for browsers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from werkzeug.exceptions import NotFound

from meshnode.domain.tokens import Scope
from meshnode.http.app import Response, json_response
from meshnode.http.native import variable
from meshnode.http.page_files import PageFile, page_response
from meshnode.http.routes import IntegerParameter, Reply, Route
from meshnode.http.values import query_integer

LIMIT = IntegerParameter("limit", default=200, low=1, high=1000)


class LogEntry(TypedDict):
    """One record of the log."""

    time: str
    level: str
    logger: str
    message: str
    fields: NotRequired[dict[str, Any]]


class NodeLog(TypedDict):
    """The latest records, oldest first."""

    records: list[LogEntry]


@dataclass(frozen=True, slots=True)
class PageApi:
    """The handlers."""

    files: Mapping[str, PageFile]
    log: Callable[[int], list[Any]] = lambda limit: []
    """The latest records of the log."""

    async def get_file(self) -> Response:
        """One file of the page."""
        file = self.files.get(variable("name"))
        if file is None:
            raise NotFound
        return page_response(file)

    async def get_log(self) -> Response:
        """The latest records of the node's log."""
        answer: NodeLog = {"records": self.log(query_integer(LIMIT))}
        return json_response(answer)


ROUTES = (
    Route(
        "GET",
        "/page/<name>",
        PageApi.get_file,
        "A file of the page for browsers",
        (
            Reply(
                200,
                "The file.",
                {"text/html": str, "text/css": str, "text/javascript": str, "image/svg+xml": str},
                ("ETag",),
            ),
            Reply(304, "The browser has it.", {}, ("ETag",)),
        ),
        name="getPageFile",
    ),
    Route(
        "GET",
        "/api/v1/log",
        PageApi.get_log,
        "The latest records of the node's log; for operators",
        NodeLog,
        name="getLog",
        scope=Scope.ADMIN,
        query=(LIMIT,),
    ),
)
