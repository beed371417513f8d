"""One request and its response, between Hypercorn's events and a Quart-Trio application.

Corrected here, once for every route:

- Quart-Trio cancels a request's tasks at the disconnect event, and Hypercorn sends that event after
  every response, in the middle of the send that would have recycled or closed the connection. The
  event is withheld once the response is complete, so keep-alive and ``Connection: close`` work.
- Body events that arrive after the response are taken in and dropped, so that the connection's
  reader never waits for an application that has ended.
- Resources that a response needs (a generation) are held by the exchange, not by the handler or an
  async generator: they are released as soon as the exchange ends, however that happens.
- A failure outside of the handler is still answered with the documented error body.
"""

from __future__ import annotations

import secrets
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio
from quart import request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import BadRequest

from meshnode.http.access_log import RequestRecord, log_request
from meshnode.http.errors import ErrorForm, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypercorn.typing import (
        ASGIReceiveCallable,
        ASGIReceiveEvent,
        ASGISendCallable,
        ASGISendEvent,
        HTTPScope,
    )

REQUEST_ID_HEADER = "X-Request-Id"

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
    return secrets.token_hex(8)


def error_message(form: ErrorForm, failure: Failure, identifier: str) -> tuple[Headers, bytes]:
    """Headers and body of an error answered below the application."""
    body = form.body(failure)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (REQUEST_ID_HEADER.lower().encode(), identifier.encode()),
    ]
    more = {**failure.headers, **form.headers}
    headers += [(name.lower().encode(), text.encode()) for name, text in more.items()]
    return headers, body


class Exchange(TrioASGIHTTPConnection):
    """Runs the application for one request."""

    app: ApiApp

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve the request; returns when the response is sent or the client has gone."""
        began = trio.current_time()
        record = RequestRecord(new_request_id(), str(self.scope["method"]), began)
        try:
            await self._serve(record, receive, send)
        finally:
            if self.app.log_requests:
                log_request(record, trio.current_time())

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
                record.status = event["status"]
                event["headers"] = _with_id(event["headers"], record.id)
            elif event["type"] == "http.response.body":
                record.complete = not event.get("more_body", False)
            await send(event)

        try:
            _normalise_target(self.scope)
            self.app.admit(self.scope)
            async with AsyncExitStack() as held:
                _own(self.scope).update({_HELD: held, _RECORD: record})
                await super().__call__(receive_unless_finished, send_with_id)
        except Exception as error:  # noqa: BLE001 - the outermost guard of the HTTP edge
            form = self.app.errors
            failure = form.failure(_only(error), record.id)
            if record.status is None:
                headers, body = error_message(form, failure, record.id)
                record.status, record.complete = failure.status, True
                await _answer(send, failure.status, headers, body)


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
        self.admit: Callable[[HTTPScope], None] = lambda scope: None
        """Refuses a request before the application sees it, by raising a failure."""

    def errors_for(self, target: str) -> ErrorForm:
        """The form of an error about a request with this target: always the API's own."""
        return self.errors


def _own(scope: object) -> dict[str, Any]:
    # A scope may carry keys of its application's; its type knows only the specification's.
    return cast("dict[str, Any]", scope)


def _only(error: Exception) -> Exception:
    # Nurseries wrap even a single exception.
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _with_id(headers: Any, identifier: str) -> Headers:
    return [*headers, (REQUEST_ID_HEADER.lower().encode(), identifier.encode())]


def _normalise_target(scope: Any) -> None:
    """Bring ``http://host/path`` to ``/path``; refuse what is neither that nor a path."""
    path = origin_path(scope["path"])
    if path is None:
        raise BadRequest
    scope["path"] = path


async def _answer(
    send: ASGISendCallable, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
