"""The feed of events, and its readers (decision 0166).

Terms: an *event* has a kind, data and an audience. A *visitor* is who reads, with the rights that
its token gives. A *snapshot* is the state at one moment, from which later events go on.

Invariants: publishing never waits; an event is encoded once for all readers; a reader has no queue
of its own, only a place in the ring. One whose place has been overwritten gets a snapshot instead,
and so does one that names an event of an earlier run, so nobody misses a change for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import trio

from meshnode.domain.connections import is_here
from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.domain.ring import Ring
from meshnode.services.wakeup import Wakeup
from meshnode.wire import json

ROOM = 1024
"""Events kept: some minutes of a busy node, in less than a megabyte."""
MAX_READERS = 64
"""Readers at once. Each takes a connection, and a copy of what it is being sent."""
MAX_READERS_OF_ADDRESS = 8
BATCH = 64
"""Events sent together to a reader that has fallen behind."""
HEARTBEAT_S = 15.0
"""Silence after which a reader gets a sign of life; proxies cut connections after a minute."""
LIFETIME_S = 900.0
"""A stream ends after this long and its reader comes back, so one that is dead without having
closed its connection holds a place for a quarter of an hour at most."""
RETRY_S = 5


class Audience(Enum):
    """Who may see an event."""

    EVERYBODY = "everybody"
    READERS = "readers"
    """Visitors that may read about peers and generations."""
    ACCOUNT = "account"
    """The visitor whose token it concerns, and the operator."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who reads. Without a token it sees only what every route shows without one."""

    token_id: str = ""
    reads: bool = False
    wallet: bool = False
    operator: bool = False


ANYBODY = Visitor()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    kind: str
    data: bytes
    """JSON, on one line."""
    audience: Audience = Audience.EVERYBODY
    token_id: str = ""
    """The token that an event for one account concerns."""

    def visible_to(self, visitor: Visitor) -> bool:
        """Whether ``visitor`` may see the event."""
        if self.audience is Audience.EVERYBODY:
            return True
        if self.audience is Audience.READERS:
            return visitor.reads
        return visitor.wallet and (visitor.operator or visitor.token_id == self.token_id)


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event as it is sent. ``id`` lets a reader that comes back go on after it."""

    id: str
    kind: str
    data: bytes


SNAPSHOT = "snapshot"
Snapshot = Callable[[Visitor], Mapping[str, object]]


class EventFeed:
    """Owner of the events, and handle of the service that makes most of them."""

    def __init__(self, run_id: str, *, room: int = ROOM, max_readers: int = MAX_READERS) -> None:
        """``run_id`` differs between runs of a node, so that ids of an earlier run are noticed."""
        self.snapshot: Snapshot = lambda visitor: {}
        """Gives the present state; set before the first reader comes."""
        self._run_id = run_id
        self._ring: Ring[Event] = Ring(room)
        self._max_readers = max_readers
        self._readers: Counter[str] = Counter()
        self._news = Wakeup()
        self._closed = False

    @property
    def readers(self) -> int:
        """How many read now."""
        return self._readers.total()

    def publish(
        self,
        kind: str,
        data: Mapping[str, object],
        audience: Audience = Audience.EVERYBODY,
        token_id: str = "",
    ) -> None:
        """Tell all readers. Never waits."""
        self._ring.push(Event(kind, json.dumps(data), audience, token_id))
        self._news.set()

    def close(self) -> None:
        """End all streams; later ones are refused."""
        self._closed = True
        self._news.set()

    @contextmanager
    def reader(self, visitor: Visitor, address: str, after: str = "") -> Iterator[EventReader]:
        """A reader with a place among the readers, beginning after the event with an id.

        Raises RateLimited if there are too many readers, and Unavailable while the node stops.
        """
        if self._closed:
            raise Unavailable("the node is draining")
        of_address = 0 if is_here(address) else self._readers[address]
        if self.readers >= self._max_readers or of_address >= MAX_READERS_OF_ADDRESS:
            raise RateLimited(RETRY_S, "too many readers of events")
        self._readers[address] += 1
        try:
            yield EventReader(self, visitor, after)
        finally:
            self._readers[address] -= 1
            if not self._readers[address]:
                del self._readers[address]

    # For readers.

    @property
    def ended(self) -> bool:
        """Whether the node stops."""
        return self._closed

    def take(self, place: int | None, visitor: Visitor) -> tuple[int, list[Numbered]]:
        """What follows ``place``, as far as ``visitor`` may see it, and the place after it.

        A snapshot where the place is unknown.
        """
        found = None if place is None else self._ring.after(place, BATCH)
        if found is None:
            # The state is read first, because reading it may publish what has changed.
            data = json.dumps(self.snapshot(visitor))
            place = self._ring.last
            return place, [Numbered(self._id(place), SNAPSHOT, data)]
        place = found[-1][0] if found else place or 0
        sent = [
            Numbered(self._id(number), event.kind, event.data)
            for number, event in found
            if event.visible_to(visitor)
        ]
        return place, sent

    async def wait_news(self, place: int) -> None:
        """Wait until there is something after ``place``, or until the feed closes."""
        news = self._news.next
        if self._ring.last <= place and not self._closed:
            await news.wait()

    def place_of(self, identifier: str) -> int | None:
        """The place of an event by its id; None if the id is not of this run."""
        run_id, _, number = identifier.partition("-")
        known = run_id == self._run_id and number.isascii() and number.isdecimal()
        return int(number) if known and len(number) <= 18 else None

    def _id(self, number: int) -> str:
        return f"{self._run_id}-{number}"


class EventReader:
    """Iterates over lists of events. An empty list is a sign of life after a silence."""

    def __init__(self, feed: EventFeed, visitor: Visitor, after: str) -> None:
        self._feed = feed
        self._visitor = visitor
        self._place = feed.place_of(after) if after else None
        self._ends_at = trio.current_time() + LIFETIME_S

    def __aiter__(self) -> EventReader:
        """Iterate, once."""
        return self

    async def __anext__(self) -> list[Numbered]:
        """The next events. Ends when the node stops, or after ``LIFETIME_S``."""
        now = trio.current_time()
        with trio.move_on_at(min(now + HEARTBEAT_S, self._ends_at)):
            while not self._feed.ended:
                self._place, sent = self._feed.take(self._place, self._visitor)
                if sent:
                    # A reader that always finds something must not keep the node from its work.
                    await trio.lowlevel.checkpoint()
                    return sent
                await self._feed.wait_news(self._place)
        if self._feed.ended or trio.current_time() >= self._ends_at:
            raise StopAsyncIteration
        return []
