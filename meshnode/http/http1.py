"""HTTP/1 on the HTTP port: Hypercorn's protocol, with what it leaves unbounded or unsaid.

The transport hands it bytes and sends what it makes of them. Errors of the parser get the error
body of the API that the path belongs to; a request that was refused before all of it has come does
not cut an answer that has begun.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import h11
import trio
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol, H11WSConnection

from meshnode.domain.errors import RateLimited
from meshnode.http.errors import http_failure
from meshnode.http.exchange import error_message, new_request_id
from meshnode.http.prompt import plain_request, prompt_answer
from meshnode.http.websocket import PATH, is_handshake

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from hypercorn.events import Event
    from hypercorn.protocol.events import Event as StreamEvent

    from meshnode.http.errors import ErrorForm
    from meshnode.http.exchange import PromptRoute

HEADER_EXTRA = len(b": \r\n")
FLOOD_WAIT_S = 1
"""Seconds after which an address that was cut off has room for requests again."""
FREE_CHUNKS = 1000
MIN_CHUNK_BYTES = 64
"""Mean size of a body's pieces beyond the first ``FREE_CHUNKS``. A segment has 536 bytes at least,
and programs that send a line at a time stay above this too."""
BEGINNING_BYTES = 256
"""How much is kept of a request's beginning: enough to see which API its path belongs to."""


_BETWEEN = {h11.CLIENT: h11.IDLE, h11.SERVER: h11.IDLE}


class _HeadRefused(Exception):
    """The head of a request is well formed, but the server does not serve it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Parser(h11.Connection):
    """Keeps the beginning of the current request, since h11 drops a head that it cannot parse.

    It refuses bodies in tiny chunks: a body of 1 MiB could be a million events.
    """

    beginning = b""
    _chunks = 0
    _chunk_bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event."""
        if self.their_state is h11.IDLE:
            self.beginning = self.trailing_data[0][:BEGINNING_BYTES]
            self._chunks = self._chunk_bytes = 0
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += 1
            self._chunk_bytes += len(event.data)
            if self._chunk_bytes < (self._chunks - FREE_CHUNKS) * MIN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks are too small")
        return event


_REQUEST_LINE = re.compile(rb"\s*[^\s]+ +(?:https?://[^/?\s]*)?(/[^?\s]*)", re.IGNORECASE)


def path_of(beginning: bytes) -> str:
    """The path in the first bytes of a request; empty where none can be seen."""
    found = _REQUEST_LINE.match(beginning)
    return unquote(found[1].decode("latin-1")) if found else ""


class Http1(H11Protocol):
    """One connection: HTTP/1 alone, and with a body in its own errors."""

    def __init__(
        self,
        errors_for: Callable[[str], ErrorForm],
        prompt_route: Callable[[str, str], PromptRoute | None],
        admits: Callable[[Iterable[tuple[bytes, bytes]]], bool],
        turn: Callable[[], Awaitable[None]],
        more: Callable[[], Awaitable[bytes]],
        *arguments: Any,
    ) -> None:
        """``turn`` waits until the client may use more of the event loop; ``more`` gives the bytes
        that come next, or nothing if there are none within a moment.
        """
        super().__init__(*arguments)
        self._turn, self._more = turn, more
        self._pipelined = False
        """Whether a request has come with what was received last."""
        self._admits = admits
        self._errors_for, self._prompt_route = errors_for, prompt_route
        self._parser = _Parser(h11.SERVER, self.config.h11_max_incomplete_size)
        self.connection = self._parser
        self._pass_on = self.send
        self.send = self._send
        self._head = b""
        """The head of an answer that waits for the beginning of its body."""
        self._holding = False

    async def handle(self, event: Event) -> None:
        """Take bytes, or the end of the connection."""
        self._pipelined = False
        try:
            if isinstance(event, RawData):
                event = RawData(await self._unanswered(event.data))
                if not event.data:
                    return
            await super().handle(event)
        except _HeadRefused as refused:
            await self._send_error_response(refused.status)
            await self.send(Closed())

    async def _unanswered(self, data: bytes) -> bytes:
        """Answer a plain request for a prompt route, past the parser, which stays as it was.

        Returns what the parser must see: nothing, or ``data`` and what has come behind it.
        """
        if not self._between_requests or (plain := plain_request(data)) is None:
            return data
        route = self._prompt_route(plain.method, plain.path)
        if route is None:
            return data
        if plain.missing:
            # Many clients send a body by itself, right behind the head.
            data += await self._more()
            plain = plain_request(data)
        if plain is None or plain.missing or route.view.says not in plain.body:
            return data
        self._parser.beginning = data[:BEGINNING_BYTES]
        await self.send(Updated(idle=False))
        if not self._admits(plain.headers):
            raise _HeadRefused(429)
        self.keep_alive_requests += 1
        more = self.config.response_headers("h11")
        await prompt_answer(route, self.client, plain, more, self._send_bytes)
        await self.send(Updated(idle=True))
        return b""

    @property
    def _between_requests(self) -> bool:
        """Whether the next byte begins a request, after whose answer the connection goes on."""
        parser = self._parser
        return (
            self.connection is parser
            and self.stream is None
            and parser.states == _BETWEEN
            and not parser.trailing_data[0]
            and not self.context.terminated.is_set()
            and self.keep_alive_requests + 1 < self.config.keep_alive_max_requests
        )

    async def _send_bytes(self, data: bytes) -> None:
        await self._pass_on(RawData(data=data))

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of an answer from its application."""
        # Hypercorn sends a 500 for an application that ended without an answer. It would mistake an
        # application that was cancelled while it was sending for one of those.
        await trio.lowlevel.checkpoint_if_cancelled()
        await super().stream_send(event)

    async def _send_h11_event(self, event: Any) -> None:
        # A head and its body leave in one send, unless the body may come much later.
        self._holding = isinstance(event, h11.Response) and any(
            name == b"content-length" for name, _ in event.headers
        )
        await super()._send_h11_event(event)

    async def _send(self, event: Event) -> None:
        if isinstance(event, RawData):
            data, self._head = self._head + event.data, b""
            if self._holding:
                self._head, self._holding = data, False
            elif data:
                await self._pass_on(RawData(data=data))
            return
        if self._head:
            # Its application ended without the body.
            head, self._head = self._head, b""
            await self._pass_on(RawData(data=head))
        await self._pass_on(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        if self._pipelined:
            # One read may bring a thousand requests; the client had its turn for the first.
            await self._turn()
        self._pipelined = True
        if not self._admits(event.headers):
            raise _HeadRefused(429)
        if event.http_version not in (b"1.0", b"1.1"):
            raise _HeadRefused(505)
        lines = sum(len(name) + len(value) + HEADER_EXTRA for name, value in event.headers)
        if len(event.target) + lines > self.config.h11_max_incomplete_size:
            raise _HeadRefused(431)
        # RFC 9112, 6.1: requests are smuggled by stating a body's length in two ways.
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
            raise _HeadRefused(400)

    async def _create_stream(self, request: h11.Request) -> None:
        hidden = {b"upgrade"}
        if request.target.partition(b"?")[0] == PATH.encode("ascii") and is_handshake(
            request.method, dict(request.headers)
        ):
            # Without compression, what a client sends cannot become larger here.
            hidden = {b"sec-websocket-extensions"}
        if any(name in hidden for name, _ in request.headers):
            kept = [(name, value) for name, value in request.headers if name not in hidden]
            request = h11.Request(
                method=request.method,
                target=request.target,
                headers=kept,
                http_version=request.http_version,
            )
        await super()._create_stream(request)

    async def _send_error_response(self, status_code: int) -> None:
        form = self._errors_for(path_of(self._parser.beginning))
        identifier = new_request_id()
        failure = (
            form.failure(RateLimited(FLOOD_WAIT_S), identifier)
            if status_code == 429
            else http_failure(status_code)
        )
        headers, body = error_message(form, failure, identifier)
        headers += [(b"connection", b"close"), *self.config.response_headers("h11")]
        answer = (
            h11.Response(status_code=status_code, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        # In one send: an answer of the application must not come in between.
        data = b""
        # The answer to HEAD has no body.
        with suppress(h11.LocalProtocolError):
            for event in answer:
                data += self.connection.send(event) or b""
        await self.send(RawData(data=data))

    @property
    def answering(self) -> bool:
        """Whether an answer has begun that its application is still making."""
        return self.stream is not None and self.connection.our_state is h11.SEND_BODY

    @property
    def request_complete(self) -> bool:
        """Whether the client has nothing more to send for its request."""
        if isinstance(self.connection, H11WSConnection):
            return True
        return self.connection.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
