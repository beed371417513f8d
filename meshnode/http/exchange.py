"""One request and its response, between Hypercorn's events and a Quart-Trio application.

What is put right here, once for every route:

- Quart-Trio cancels a request's tasks at the disconnect event, and Hypercorn sends that event after
  every response, in the middle of the send that would have recycled or closed the connection. The
  event is withheld once the response is complete, so keep-alive and ``Connection: close`` work.
- Body events that arrive after the response are taken in and dropped, so that the connection's
  reader never waits for an application that has ended.
- What a handler holds for its response (a generation) lives in the exchange, not in the handler or
  in an async generator: it is let go as soon as the exchange ends, however that happens.
- Whatever goes wrong outside of the handler still gets the documented error body.
"""

from __future__ import annotations

import secrets
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio
from quart import request
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import BadRequest

from meshnode.http.errors import Failure, report
from meshnode.http.native import HEADERS, failure_body, is_native, native_failure
from meshnode.wire import json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypercorn.typing import (
        ASGIReceiveCallable,
        ASGIReceiveEvent,
        ASGISendCallable,
        ASGISendEvent,
    )

REQUEST_ID_HEADER = "X-Request-Id"

_HELD = "meshnode.held"
_REQUEST_ID = "meshnode.request_id"

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]


async def hold(resource: AbstractAsyncContextManager[T]) -> T:
    """Enter ``resource`` in the current request; it is left when the exchange ends."""
    stack: AsyncExitStack = _own(request.scope)[_HELD]
    return await stack.enter_async_context(resource)


def request_id() -> str:
    """The id of the current request, as its response will carry it."""
    return cast("str", _own(request.scope)[_REQUEST_ID])


def new_request_id() -> str:
    """A fresh id. One sent by the client is not believed: it would end up in the log."""
    return secrets.token_hex(8)


def error_message(
    failure: Failure, identifier: str, *, native: bool = False
) -> tuple[Headers, bytes]:
    """Headers and body of an error answered below the application."""
    body = failure_body(failure) if native else json.dumps(failure.body())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (REQUEST_ID_HEADER.lower().encode(), identifier.encode()),
    ]
    more = {**failure.headers, **(HEADERS if native else {})}
    headers += [(name.lower().encode(), text.encode()) for name, text in more.items()]
    return headers, body


class Exchange(TrioASGIHTTPConnection):
    """Runs the application for one request."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve the request; returns when the response is sent or the client has gone."""
        identifier = new_request_id()
        started = finished = False

        async def receive_unless_finished() -> ASGIReceiveEvent:
            event = await receive()
            while finished and event["type"] != "http.disconnect":
                event = await receive()
            if finished:
                # Quart-Trio ends the exchange itself once its last send has returned.
                await trio.sleep_forever()
            return event

        async def send_with_id(event: ASGISendEvent) -> None:
            nonlocal started, finished
            if event["type"] == "http.response.start":
                started = True
                event["headers"] = _with_id(event["headers"], identifier)
            elif event["type"] == "http.response.body":
                finished = not event.get("more_body", False)
            await send(event)

        try:
            _normalise_target(self.scope)
            async with AsyncExitStack() as held:
                _own(self.scope).update({_HELD: held, _REQUEST_ID: identifier})
                await super().__call__(receive_unless_finished, send_with_id)
        except Exception as error:  # noqa: BLE001 - the outermost guard of the HTTP edge
            path = str(self.scope["path"])
            made = native_failure if is_native(path) else report
            failure = made(_only(error), identifier)
            if not started:
                headers, body = error_message(failure, identifier, native=is_native(path))
                await _answer(send, failure.status, headers, body)


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
    path: str = scope["path"]
    if path.startswith("/"):
        return
    scheme, separator, rest = path.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise BadRequest
    _, slash, tail = rest.partition("/")
    scope["path"] = slash + tail or "/"


async def _answer(
    send: ASGISendCallable, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
