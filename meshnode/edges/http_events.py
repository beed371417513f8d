"""Live events: ``GET /api/v1/events`` and the websocket ``GET /ws`` (decisions 0166, 0167).

Both send the same events. A token is optional: without one, a reader sees what every route shows
without one. It is sent in the ``Authorization`` header, never in a URL, which ends up in logs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from quart import request

from meshnode.domain.errors import ForeignSite
from meshnode.domain.sites import is_own_host, is_own_origin
from meshnode.domain.tokens import Scope
from meshnode.http.app import Response, event_stream
from meshnode.http.errors import NODE_ERRORS, http_failure
from meshnode.http.exchange import hold
from meshnode.http.routes import JSON_TYPE, Reply, Route, TextParameter
from meshnode.http.websocket import PATH, WebsocketRequest
from meshnode.services.events.feed import ANYBODY, EventFeed, EventReader, Visitor
from meshnode.wire import sse

if TYPE_CHECKING:
    from meshnode.domain.tokens import TokenRecord
    from meshnode.http.access import Access

AFTER = TextParameter("after")
RETRY_MS = 2000
"""How long a browser waits before it comes back."""


class LiveEvent(TypedDict):
    """A message of the websocket. A ``heartbeat`` has neither id nor data."""

    id: str
    event: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsApi:
    """The handlers, and the source of the websocket."""

    feed: EventFeed
    access: Access
    names: frozenset[str] = frozenset()
    """Further names of this node, whose pages may use the websocket."""

    async def get_events(self) -> Response:
        """Server-sent events, beginning with a snapshot, or after ``Last-Event-ID``."""
        visitor = self._visitor(request.headers.get("Authorization"))
        after = request.headers.get("Last-Event-ID") or request.args.get(AFTER.name, "")
        client = request.scope["client"]
        reader = _held(self.feed, visitor, client[0] if client else "", after)
        return event_stream(_Encoded(await hold(reader)))

    async def get_websocket(self) -> Response:
        """Tell a client that asks for no websocket what this path is."""
        body = NODE_ERRORS.body(http_failure(426))
        response = Response(body, 426, content_type=JSON_TYPE)
        response.headers.update({"Upgrade": "websocket", "Cache-Control": "no-store"})
        return response

    @contextmanager
    def open(self, asked: WebsocketRequest) -> Iterator[_Messages]:
        """The messages for one websocket. Raises a failure of the domain to refuse it."""
        host, origin = asked.headers.get("host", ""), asked.headers.get("origin")
        # No rule of browsers keeps a page of another site from opening a websocket here.
        if origin is not None and not (
            is_own_host(host, self.names) and is_own_origin(origin, host, self.names)
        ):
            raise ForeignSite("the Origin is another site; host_names can list it")
        after = asked.headers.get("last-event-id") or asked.query.get(AFTER.name, "")
        visitor = self._visitor(asked.headers.get("authorization"))
        with self.feed.reader(visitor, asked.address, after) as reader:
            yield _Messages(reader)

    def _visitor(self, authorization: str | None) -> Visitor:
        return ANYBODY if authorization is None else visitor(self.access.recognise(authorization))


def visitor(record: TokenRecord) -> Visitor:
    """What the holder of a token may see."""
    may = record.scopes
    return Visitor(
        record.id,
        reads=Scope.READ in may,
        wallet=Scope.WALLET in may,
        operator=Scope.ADMIN in may,
    )


@asynccontextmanager
async def _held(
    feed: EventFeed, visitor: Visitor, address: str, after: str
) -> AsyncIterator[EventReader]:
    with feed.reader(visitor, address, after) as reader:
        yield reader


class _Encoded(AsyncIterator[bytes]):
    """Events as lines of a stream. Holds nothing: the exchange has the reader."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader
        self._begun = False

    async def __anext__(self) -> bytes:
        if not self._begun:
            # At once, so that a proxy passes the head of the answer on.
            self._begun = True
            return b"retry: %d\n\n" % RETRY_MS
        events = await anext(self._reader)
        if not events:
            return sse.encode_comment("")
        return b"".join(sse.encode_named(event.id, event.kind, event.data) for event in events)


class _Messages(AsyncIterator[list[str]]):
    """Events as messages of a websocket."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader

    async def __anext__(self) -> list[str]:
        events = await anext(self._reader)
        if not events:
            return ['{"event":"heartbeat"}']
        return [
            f'{{"id":"{event.id}","event":"{event.kind}","data":{event.data.decode()}}}'
            for event in events
        ]


ROUTES = (
    Route(
        "GET",
        "/api/v1/events",
        EventsApi.get_events,
        "Live events; a token, which is optional, shows more of them",
        (Reply(200, "Server-sent events.", {sse.MEDIA_TYPE: str}),),
        name="getEvents",
        query=(AFTER,),
        errors=(401, 503),
    ),
    Route(
        "GET",
        PATH,
        EventsApi.get_websocket,
        "The same events as a websocket",
        (Reply(101, "Messages of the websocket follow."),),
        name="getWebsocket",
        query=(AFTER,),
        errors=(401, 403, 426, 503),
    ),
)
