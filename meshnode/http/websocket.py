"""A websocket that only sends (decision 0167), between Hypercorn's events and its source.

Only ``PATH`` is ever upgraded, and only by a handshake that can be answered: the transport hides
``Upgrade`` of all other requests. A client has nothing to say here: its first message of data ends
the connection with 1003. Compression is never negotiated, so a small frame cannot become a large
one.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qs

import trio

from meshnode.http.access_log import RequestRecord, log_request
from meshnode.http.errors import NODE_ERRORS
from meshnode.http.exchange import error_message, new_request_id

if TYPE_CHECKING:
    from hypercorn.typing import (
        ASGIReceiveCallable,
        ASGISendCallable,
        HTTPScope,
        WebsocketScope,
    )

PATH = "/ws"
UNSUPPORTED_DATA = 1003
GOING_AWAY = 1001
"""The reader may come back: the node stops, or the stream has lasted its time."""
MAX_QUERY_FIELDS = 8


@dataclass(frozen=True, slots=True)
class WebsocketRequest:
    """What a client says as it asks for a websocket."""

    headers: Mapping[str, str]
    """By lowercase name."""
    query: Mapping[str, str]
    address: str


Source = Callable[[WebsocketRequest], AbstractContextManager[AsyncIterable[list[str]]]]
"""Opens what is sent: lists of messages, each sent as text. Raises a failure to refuse."""


@dataclass(frozen=True, slots=True)
class Websocket:
    """Serves the websocket: an ASGI application for nothing else."""

    source: Source
    admit: Callable[[HTTPScope], None]
    """Refuses a request before it is looked at, by raising a failure."""
    log_requests: bool = False

    async def __call__(
        self, scope: WebsocketScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Answer a handshake with the messages of the source, or refuse it with an HTTP error."""
        record = RequestRecord(new_request_id(), "GET", trio.current_time(), PATH)
        try:
            await receive()
            with ExitStack() as held:
                try:
                    self.admit(cast("HTTPScope", scope))
                    messages = held.enter_context(self.source(_request(scope)))
                except Exception as error:  # noqa: BLE001 - an edge guard: the client must hear
                    await _refuse(error, record, send)
                else:
                    await _accept(messages, record, receive, send)
        finally:
            if self.log_requests:
                log_request(record, trio.current_time())


def is_handshake(method: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request asks for a websocket in the one way that is answered (RFC 6455, 4.2.1)."""
    tokens = {token.strip() for token in headers.get(b"connection", b"").lower().split(b",")}
    return (
        method == b"GET"
        and headers.get(b"upgrade", b"").strip().lower() == b"websocket"
        and b"upgrade" in tokens
        and headers.get(b"sec-websocket-version", b"").strip() == b"13"
        and len(headers.get(b"sec-websocket-key", b"").strip()) == 24
    )


def _request(scope: WebsocketScope) -> WebsocketRequest:
    fields = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=MAX_QUERY_FIELDS)
    client = scope["client"]
    return WebsocketRequest(
        {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        {name: values[0] for name, values in fields.items()},
        client[0] if client else "",
    )


async def _refuse(error: Exception, record: RequestRecord, send: ASGISendCallable) -> None:
    failure = NODE_ERRORS.failure(error, record.id)
    headers, body = error_message(NODE_ERRORS, failure, record.id)
    # The connection was made ready for frames, so no other request can follow.
    headers.append((b"connection", b"close"))
    record.status, record.complete = failure.status, True
    await send(
        {"type": "websocket.http.response.start", "status": failure.status, "headers": headers}
    )
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})


async def _accept(
    messages: AsyncIterable[list[str]],
    record: RequestRecord,
    receive: ASGIReceiveCallable,
    send: ASGISendCallable,
) -> None:
    """Send until the source ends or the client leaves."""
    record.status, code = 101, 0
    identifier = (b"x-request-id", record.id.encode())
    await send({"type": "websocket.accept", "subprotocol": None, "headers": [identifier]})

    async def listen(sending: trio.CancelScope) -> None:
        nonlocal code
        event = await receive()
        code = UNSUPPORTED_DATA if event["type"] == "websocket.receive" else 0
        sending.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, nursery.cancel_scope)
        async for batch in messages:
            for text in batch:
                await send({"type": "websocket.send", "bytes": None, "text": text})
        code = GOING_AWAY
        nursery.cancel_scope.cancel()
    record.complete = True
    if code:
        await send({"type": "websocket.close", "code": code, "reason": None})
