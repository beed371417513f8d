"""One request and its response, between Hypercorn's events and a Quart-Trio application.

Corrected here, once for every route:

- Quart-Trio cancels a request's tasks at the disconnect event, and Hypercorn sends that event after
  every response, in the middle of the send that would have recycled or closed the connection. The
  event is withheld once the response is complete, so keep-alive and ``Connection: close`` work.
- A request without a body whose answer is no stream is served by one task instead of three.
- Body events that arrive after the response are taken in and dropped, so that the connection's
  reader never waits for an application that has ended.
- Resources that a response needs (a generation) are held by the exchange, not by the handler or an
  async generator: they are released as soon as the exchange ends, however that happens.
- A failure outside of the handler is still answered with the documented error body.
"""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import trio
from quart import request
from quart.utils import encode_headers
from quart.wrappers.response import DataBody
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import BadRequest

from meshnode.domain.metering import HttpMeter
from meshnode.http.access_log import METHODS, RequestRecord, log_request
from meshnode.http.errors import ErrorForm, Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from hypercorn.typing import (
        ASGIReceiveCallable,
        ASGIReceiveEvent,
        ASGISendCallable,
        ASGISendEvent,
        HTTPScope,
    )
    from quart.wrappers import Response as AnyResponse
    from quart_trio.wrappers import TrioResponse as Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from meshnode.http.asked import Asked

REQUEST_ID_HEADER = "X-Request-Id"
_ID_HEADER = REQUEST_ID_HEADER.lower().encode()

_identifiers = random.Random()  # noqa: S311 - they tell requests apart, and are no secrets
_HELD = "meshnode.held"
_RECORD = "meshnode.record"

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]


async def hold(resource: AbstractAsyncContextManager[T]) -> T:
    """Enter ``resource`` in the current request; it is left when the exchange ends."""
    stack: AsyncExitStack = _own(request.scope)[_HELD]
    return await stack.enter_async_context(resource)


def request_id() -> str:
    """The id of the current request, as its response will carry it."""
    return request_record().id


def request_record() -> RequestRecord:
    """What the access log will say of the current request."""
    return cast("RequestRecord", _own(request.scope)[_RECORD])


def new_request_id() -> str:
    """A fresh id. One sent by the client is not believed: it would end up in the log."""
    return f"{_identifiers.getrandbits(64):016x}"


def error_message(form: ErrorForm, failure: Failure, identifier: str) -> tuple[Headers, bytes]:
    """Headers and body of an error answered below the application."""
    body = form.body(failure)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        id_header(identifier),
    ]
    more = {**failure.headers, **form.headers}
    headers += [(name.lower().encode(), text.encode()) for name, text in more.items()]
    return headers, body


def id_header(identifier: str) -> tuple[bytes, bytes]:
    """The header that tells a client the id of its request."""
    return _ID_HEADER, identifier.encode()


def whole_body(response: AnyResponse | WerkzeugResponse) -> bytes | None:
    """The body of an answer that is known in whole; None for a stream or a file."""
    body = response.response
    return body.data[body.begin : body.end] if isinstance(body, DataBody) else None


class RequestTracer(Protocol):
    """Is told of every request, by the task that serves it. Returns at once and never raises."""

    def request_began(self, record: RequestRecord, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """A request with these headers has arrived."""

    def request_ended(self, record: RequestRecord) -> None:
        """Its answer is complete, or its client has gone."""


class Recorded:
    """A context: records a request while it is served; logs and counts it afterwards."""

    __slots__ = ("_app", "_headers", "_record")

    def __init__(self, app: ApiApp, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """``headers`` are the request's."""
        self._app, self._headers = app, headers
        self._record = RequestRecord(new_request_id(), method, trio.current_time())

    def __enter__(self) -> RequestRecord:
        """Tell the tracer that the request has come."""
        if self._app.tracer is not None:
            self._app.tracer.request_began(self._record, self._headers)
        return self._record

    def __exit__(self, *_: object) -> None:
        """Log and count the request, and tell the tracer."""
        app, record = self._app, self._record
        name = record.method if record.method in METHODS else "other"
        app.meter.requests[name, record.route or "other", record.status or 0] += 1
        if app.log_requests:
            log_request(record, trio.current_time())
        if app.tracer is not None:
            app.tracer.request_ended(record)


class Exchange(TrioASGIHTTPConnection):
    """Runs the application for one request."""

    app: ApiApp

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve the request; returns when the response is sent or the client has gone."""
        with Recorded(self.app, str(self.scope["method"]), self.scope["headers"]) as record:
            await self._serve(record, receive, send)

    async def _serve(
        self, record: RequestRecord, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:

        async def receive_unless_finished() -> ASGIReceiveEvent:
            event = await receive()
            while record.complete and event["type"] != "http.disconnect":
                event = await receive()
            if record.complete:
                # Quart-Trio ends the exchange itself once its last send has returned.
                await trio.sleep_forever()
            return event

        async def send_with_id(event: ASGISendEvent) -> None:
            if event["type"] == "http.response.start":
                record.status, record.answered = event["status"], trio.current_time()
                event["headers"] = [*event["headers"], id_header(record.id)]
            elif event["type"] == "http.response.body":
                record.complete = not event.get("more_body", False)
            await send(event)

        try:
            _normalise_target(self.scope)
            self.app.admit(self.scope)
            async with AsyncExitStack() as held:
                _own(self.scope).update({_HELD: held, _RECORD: record})
                if self._has_no_body():
                    await self._answer(receive_unless_finished, send_with_id)
                else:
                    await super().__call__(receive_unless_finished, send_with_id)
        except Exception as error:  # noqa: BLE001 - the outermost guard of the HTTP edge
            form = self.app.errors
            failure = form.failure(_only(error), record.id)
            if record.status is None:
                headers, body = error_message(form, failure, record.id)
                record.status, record.complete = failure.status, True
                await _send_whole(send, failure.status, headers, body)

    def _has_no_body(self) -> bool:
        # A body that nobody reads would block the reader of an HTTP/2 connection.
        return self.scope["http_version"].startswith("1") and not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self.scope["headers"]
        )

    async def _answer(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer a request without a body; only a stream needs a task that looks for its reader."""
        request = self._create_request_from_scope(send)
        request.body.set_complete()
        response = await self.app.handle_request(request)
        if (body := whole_body(response)) is not None:
            headers = encode_headers(response.headers)
            await _send_whole(send, response.status_code, headers, body)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.handle_messages, nursery, request, receive)
            await self._send_response(send, response)
            nursery.cancel_scope.cancel()


def origin_path(target: str) -> str | None:
    """The path in a request's target: ``/path`` or ``http://host/path``. None if it has neither."""
    if target.startswith("/"):
        return target
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        return None
    _, slash, tail = rest.partition("/")
    return slash + tail or "/"


class ApiApp(QuartTrio):
    """The application of one API, which words its errors in its own form."""

    asgi_http_class = Exchange

    def __init__(self, errors: ErrorForm, *, log_requests: bool = False) -> None:
        super().__init__("meshnode", static_folder=None, template_folder=None)
        self.errors = errors
        self.log_requests = log_requests
        self.meter = HttpMeter()
        """Counts the requests; the APIs of a node share one."""
        self.tracer: RequestTracer | None = None
        """Records the spans of requests, if somebody wants them."""
        self.admit: Callable[[HTTPScope], None] = lambda scope: None
        """Refuses a request before the application sees it, by raising a failure. Uses the path and
        the client alone."""
        self.prompt_views: dict[tuple[str, str], PromptView] = {}
        """Of prompt routes, by method and path (:mod:`meshnode.http.prompt`)."""
        self.standing_headers: Mapping[str, str] = {}
        """What every answer has whose request names no origin."""

    def errors_for(self, target: str) -> ErrorForm:
        """The form of an error about a request with this target: always the API's own."""
        return self.errors

    def prompt_route(self, method: str, path: str) -> PromptRoute | None:
        """The prompt route with this method and path, if there is one."""
        view = self.prompt_views.get((method, path))
        return PromptRoute(self, method, path, view) if view is not None else None


class PromptView(NamedTuple):
    """How a prompt route answers a plain request."""

    answer: Callable[[Asked, bytes], Awaitable[Response]]
    """Takes who asks and the body."""
    says: bytes = b""
    """What the body must contain; every other request goes the ordinary way."""


class PromptRoute(NamedTuple):
    """A prompt view at its place."""

    app: ApiApp
    method: str
    path: str
    view: PromptView


def _own(scope: object) -> dict[str, Any]:
    # A scope may carry keys of its application's; its type knows only the specification's.
    return cast("dict[str, Any]", scope)


def _only(error: Exception) -> Exception:
    # Nurseries wrap even a single exception.
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _normalise_target(scope: Any) -> None:
    """Bring ``http://host/path`` to ``/path``; refuse what is neither that nor a path."""
    path = origin_path(scope["path"])
    if path is None:
        raise BadRequest
    scope["path"] = path


async def _send_whole(
    send: ASGISendCallable, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
