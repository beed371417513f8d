"""The node API's error body, and the one table from failures to status and code (interface 7.1).

The document shows three codes; the others are this project's (decision 0025). Every answer that is
not a success has the body ``{"error": {"code", "message", "details"?}}``, whichever layer found the
fault: the HTTP parser, the router, the edge or the domain. It shows nothing of the node's insides;
an unexpected exception goes to the log, under the id that the client reads in ``X-Request-Id``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from werkzeug.exceptions import HTTPException

from meshnode.domain.errors import (
    ComputationFailed,
    ForeignSite,
    FundsLocked,
    InsufficientBalance,
    InvalidRequest,
    LayerNotHeld,
    MeshnodeError,
    MissingScope,
    ModelNotServed,
    RateLimited,
    Unauthorized,
    Unavailable,
)
from meshnode.http.schema import Limits
from meshnode.wire import json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

RETRY_UNAVAILABLE_S = 5
"""``Retry-After`` of a node that drains or lacks a part: about the time of a restart."""

MAX_TEXT_CHARS = 200
"""Longest text in an error body."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One answer that is not a success."""

    status: int
    code: str
    message: str
    details: Mapping[str, object] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, object]:
        """The documented error body."""
        error: dict[str, object] = {"code": self.code, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return {"error": error}


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """How one of the HTTP port's two APIs words its failures."""

    failure: Callable[[Exception, str], Failure]
    """The failure to answer with, for an exception and the id of the request that raised it."""
    body: Callable[[Failure], bytes]
    headers: Mapping[str, str] = field(default_factory=dict)
    """What every answer of the API has, errors included."""


class ErrorDetails(TypedDict):
    """The value of ``error``: what went wrong, for a person and for a program."""

    code: str
    message: str
    details: NotRequired[
        Annotated[
            dict[str, Any],
            Limits(
                description="field and reason of an INVALID_REQUEST, retry_after seconds of a "
                "RATE_LIMITED, required and available of an INSUFFICIENT_BALANCE, unlock_date of "
                "a FUNDS_LOCKED, scope of a FORBIDDEN for a token without it."
            ),
        ]
    ]


class Error(TypedDict):
    """The node API's error body."""

    error: ErrorDetails


INTERNAL_ERROR = Failure(500, "INTERNAL_ERROR", "internal error")


def _plain(text: str) -> str:
    # A field may be a key that the client made up: long, or with half a surrogate pair in it.
    short = text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"
    return short.encode("utf-8", "replace").decode("utf-8")


def _no_details(_: Any) -> None:
    return None


def _no_headers(_: Any) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class _Row:
    status: int
    code: str
    details: Callable[[Any], Mapping[str, object] | None] = _no_details
    headers: Callable[[Any], Mapping[str, str]] = _no_headers


# A subclass without a row of its own takes the row of its nearest base.
DOMAIN_ERRORS: Mapping[type[MeshnodeError], _Row] = {
    InvalidRequest: _Row(
        400,
        "INVALID_REQUEST",
        details=lambda error: {
            "field": _plain(error.field or "body"),
            "reason": _plain(error.reason),
        },
    ),
    Unauthorized: _Row(
        401,
        "UNAUTHORIZED",
        headers=lambda _: {"WWW-Authenticate": 'Bearer realm="meshnode"'},
    ),
    InsufficientBalance: _Row(
        402,
        "INSUFFICIENT_BALANCE",
        details=lambda error: {"required": error.required, "available": error.available},
    ),
    MissingScope: _Row(
        403,
        "FORBIDDEN",
        details=lambda error: {"scope": error.scope},
        headers=lambda error: {
            "WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{error.scope}"'
        },
    ),
    ForeignSite: _Row(403, "FORBIDDEN"),
    LayerNotHeld: _Row(404, "NOT_FOUND"),
    ModelNotServed: _Row(404, "NOT_FOUND"),
    FundsLocked: _Row(
        409, "FUNDS_LOCKED", details=lambda error: {"unlock_date": error.unlock_date}
    ),
    RateLimited: _Row(
        429,
        "RATE_LIMITED",
        details=lambda error: {"retry_after": error.retry_after},
        headers=lambda error: {"Retry-After": str(error.retry_after)},
    ),
    ComputationFailed: _Row(500, "INTERNAL_ERROR"),
    Unavailable: _Row(
        503,
        "UNAVAILABLE",
        headers=lambda _: {"Retry-After": str(RETRY_UNAVAILABLE_S)},
    ),
}

# Faults found before a request has a meaning: by the parser, the router or the body reader.
HTTP_ERRORS: Mapping[int, tuple[str, str]] = {
    400: ("INVALID_REQUEST", "the request is malformed"),
    404: ("NOT_FOUND", "there is nothing at this path"),
    405: ("METHOD_NOT_ALLOWED", "the path does not support this method"),
    408: ("REQUEST_TIMEOUT", "the request did not arrive in time"),
    413: ("PAYLOAD_TOO_LARGE", "the body is too large"),
    415: ("UNSUPPORTED_MEDIA_TYPE", "the body must be application/json in UTF-8"),
    426: ("UPGRADE_REQUIRED", "this path is a websocket (RFC 6455, version 13)"),
    431: ("HEADERS_TOO_LARGE", "the headers are too large"),
    501: ("NOT_IMPLEMENTED", "this transfer coding is not supported"),
    503: ("UNAVAILABLE", "the node has too many connections"),
    505: ("HTTP_VERSION_NOT_SUPPORTED", "HTTP/1.1 and HTTP/1.0 are supported"),
}


def failure_of(error: Exception) -> Failure:
    """The failure for an exception. One that is in neither table is an internal error."""
    for kind in type(error).__mro__:
        row = DOMAIN_ERRORS.get(kind)
        if row is not None:
            details, headers = row.details(error), row.headers(error)
            return Failure(row.status, row.code, _plain(str(error)), details, headers)
    if isinstance(error, HTTPException):
        # Werkzeug knows the Allow header of a 405; its HTML page and content type are left behind.
        headers = {name: value for name, value in error.get_headers() if name == "Allow"}
        return http_failure(error.code or 500, headers)
    return INTERNAL_ERROR


def http_failure(status: int, headers: Mapping[str, str] | None = None) -> Failure:
    """The failure for a bare HTTP status."""
    if status not in HTTP_ERRORS and status >= 500:
        return INTERNAL_ERROR
    code, message = HTTP_ERRORS.get(status, HTTP_ERRORS[400])
    details = {"field": "request", "reason": message} if code == "INVALID_REQUEST" else None
    if status == 503:
        headers = {"Retry-After": str(RETRY_UNAVAILABLE_S), **(headers or {})}
    return Failure(status, code, message, details, headers or {})


def report(error: Exception, request_id: str) -> Failure:
    """The failure for an exception, which is logged when the fault is the node's."""
    failure = failure_of(error)
    if failure.status == 500:
        fields = {"fields": {"request_id": request_id}}
        log.error("a request failed unexpectedly", exc_info=error, extra=fields)
    return failure


NODE_ERRORS = ErrorForm(report, lambda failure: json.dumps(failure.body()))
"""The node API's form."""
