"""The Quart-Trio applications, one for each API: routing, limits, error bodies.

The applications host nothing: no lifespan, no background tasks, no state of the node. Which of them
serves a request is decided by :mod:`meshnode.http.dispatch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quart import request
from quart.wrappers.response import ResponseBody
from quart_trio.wrappers import TrioResponse as Response

from meshnode.http.cors import Cors
from meshnode.http.errors import NODE_ERRORS, ErrorForm
from meshnode.http.exchange import ApiApp, request_id, request_record
from meshnode.http.native import NATIVE_ERRORS, NativeGate, NativeRequest
from meshnode.http.openai import OPENAI_ERRORS
from meshnode.wire import json, sse

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping

    from meshnode.http.access import Access

__all__ = [
    "ApiApp",
    "Response",
    "encoded_response",
    "event_stream",
    "json_response",
    "native_app",
    "node_app",
    "openai_app",
]

NO_CORS = Cors()
BODY_TIMEOUT_S = 30
"""Seconds for a request's body to arrive in full."""


def node_app(
    access: Access, max_body_bytes: int, *, log_requests: bool = False, cors: Cors = NO_CORS
) -> ApiApp:
    """The node API's application, without routes (interface 4.1 and 7.1)."""
    app = _app(NODE_ERRORS, max_body_bytes, log_requests, cors)
    app.admit = access.count_address
    return app


def openai_app(
    access: Access, max_body_bytes: int, *, log_requests: bool = False, cors: Cors = NO_CORS
) -> ApiApp:
    """The application of OpenAI's interface, without routes (decision 0160)."""
    app = _app(OPENAI_ERRORS, max_body_bytes, log_requests, cors)
    app.admit = access.count_address
    return app


def native_app(gate: NativeGate, max_body_bytes: int, *, log_requests: bool = False) -> ApiApp:
    """The native API's application, without routes (interface 4.2 and 7.2)."""
    app = _app(NATIVE_ERRORS, max_body_bytes, log_requests)
    app.request_class = NativeRequest
    app.admit = gate.refuse_early
    app.before_request(gate.admit)
    return app


def _app(
    errors: ErrorForm, max_body_bytes: int, log_requests: bool, cors: Cors = NO_CORS
) -> ApiApp:
    async def note_route() -> None:
        if request.url_rule is not None:
            request_record().route = request.url_rule.rule

    async def answer_failure(error: Exception) -> Response:
        failure = errors.failure(error, request_id())
        response = Response(errors.body(failure), failure.status, content_type="application/json")
        response.headers["Cache-Control"] = "no-store"
        response.headers.update(dict(failure.headers))
        return response

    async def finish(response: Response) -> Response:
        response.headers.update(dict(errors.headers))
        preflight = request.method == "OPTIONS"
        origin = request.headers.get("Origin")
        response.headers.update(dict(cors.headers(origin, preflight=preflight)))
        # Quart gives the empty answer to OPTIONS the content type of HTML.
        if response.content_length == 0:
            response.headers.pop("Content-Type", None)
        return response

    app = ApiApp(errors, log_requests=log_requests)
    app.standing_headers = {**errors.headers, **cors.headers(None, preflight=False)}
    app.before_request(note_route)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.config["BODY_TIMEOUT"] = BODY_TIMEOUT_S
    # A stream lasts as long as its generation; stalled clients are the transport's concern.
    app.config["RESPONSE_TIMEOUT"] = None
    # `//path` is another path, not a redirect to this one.
    app.url_map.merge_slashes = False
    app.register_error_handler(Exception, answer_failure)
    app.after_request(finish)
    return app


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer. It is never cached, since it describes the node at one moment."""
    return encoded_response(json.dumps(value), status, headers)


def encoded_response(
    value: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """The same, of JSON that is encoded already."""
    response = Response(value, status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(dict(headers or {}))
    return response


class _EventsBody(ResponseBody):
    """Passes events on one by one; there is nothing to close."""

    def __init__(self, events: AsyncIterable[bytes]) -> None:
        self._events = events

    async def __aenter__(self) -> AsyncIterable[bytes]:
        return self._events

    async def __aexit__(self, *_: object) -> None:
        pass


def event_stream(events: AsyncIterable[bytes]) -> Response:
    """A stream of encoded server-sent events, each sent as soon as it has been made.

    ``events`` is iterated once. It must hold no resources, and so must not be an async generator:
    it is abandoned when the client leaves, and the exchange holds what it reads from.
    """
    response = Response(_EventsBody(events), content_type=sse.MEDIA_TYPE)
    response.timeout = None
    response.headers["Cache-Control"] = "no-cache"
    # Proxies such as nginx would otherwise collect the events.
    response.headers["X-Accel-Buffering"] = "no"
    return response
