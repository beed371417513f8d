"""The Quart-Trio application: routing, limits, and JSON for every answer (section 7.1).

The application hosts nothing: no lifespan, no background tasks, no state of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quart import request
from quart.wrappers.response import ResponseBody
from quart_trio import QuartTrio
from quart_trio.wrappers import TrioResponse as Response

from meshnode.http.errors import Failure, report
from meshnode.http.exchange import Exchange, request_id
from meshnode.http.native import (
    NativeGate,
    NodeRequest,
    add_native_headers,
    failure_answer,
    is_native,
    native_failure,
)
from meshnode.wire import json, sse

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping

    from meshnode.http.access import Access

__all__ = ["QuartTrio", "Response", "event_stream", "failure_response", "json_response", "make_app"]

BODY_TIMEOUT_S = 30
"""For a request's body to arrive in full."""


def make_app(*, access: Access, max_body_bytes: int, native: NativeGate | None = None) -> QuartTrio:
    """An application without routes that answers every failure with the documented body.

    Which body that is, and which limit counts, follows from the path: ``native`` is the gate of the
    native API's.
    """
    gate = native or NativeGate()

    async def admit() -> Response | None:
        if is_native(request.path):
            return gate.admit()
        await access.count_address()
        return None

    app = QuartTrio("meshnode", static_folder=None, template_folder=None)
    app.asgi_http_class = Exchange
    app.request_class = NodeRequest
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.config["BODY_TIMEOUT"] = BODY_TIMEOUT_S
    # A stream lasts as long as its generation; stalled clients are the transport's concern.
    app.config["RESPONSE_TIMEOUT"] = None
    # `//path` is another path, not a redirect to this one.
    app.url_map.merge_slashes = False
    app.before_request(admit)
    app.register_error_handler(Exception, _answer_failure)
    app.after_request(_finish)
    return app


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer, never cached: all of them tell of a moment."""
    response = Response(json.dumps(value), status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(dict(headers or {}))
    return response


class _EventsBody(ResponseBody):
    """Hands events on one by one, and leaves nothing to be closed."""

    def __init__(self, events: AsyncIterable[bytes]) -> None:
        self._events = events

    async def __aenter__(self) -> AsyncIterable[bytes]:
        return self._events

    async def __aexit__(self, *_: object) -> None:
        pass


def event_stream(events: AsyncIterable[bytes]) -> Response:
    """A stream of encoded server-sent events, each sent as soon as it is there.

    ``events`` is iterated once and must hold no resources, so it is no async generator: it is
    abandoned when the client goes, and what it reads from is held by the exchange.
    """
    response = Response(_EventsBody(events), content_type=sse.MEDIA_TYPE)
    response.timeout = None
    response.headers["Cache-Control"] = "no-cache"
    # Proxies such as nginx would otherwise collect the events.
    response.headers["X-Accel-Buffering"] = "no"
    return response


def failure_response(failure: Failure) -> Response:
    """The documented error body."""
    return json_response(failure.body(), failure.status, failure.headers)


async def _answer_failure(error: Exception) -> Response:
    if is_native(request.path):
        return failure_answer(native_failure(error, request_id()))
    return failure_response(report(error, request_id()))


async def _finish(response: Response) -> Response:
    if is_native(request.path):
        add_native_headers(response)
    # The answer to OPTIONS is made by Quart, which calls its nothing HTML.
    if response.content_length == 0:
        response.headers.pop("Content-Type", None)
    return response
