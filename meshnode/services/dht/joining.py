"""Joining a network, and joining it again (interface 2.1: tracker_url; decision 0044).

Terms: a *tracker* is any node whose address the operator gave; after joining it is a contact like
any other. This node has *joined* when somebody has answered a lookup of its own id.

==========  ============================================  ==========  ==============================
state       event                                         next        other effect
==========  ============================================  ==========  ==============================
alone       a remembered peer or a tracker answers, and   joined      announcements are published
            then somebody answers a lookup
alone       nobody answers                                alone       retries after a longer pause
joined      the table has become empty                    alone
joined      a tracker that is not in the table is due     joined      it is pinged; if it answers,
                                                                      this node's id is looked up
==========  ============================================  ==========  ==============================

A node without trackers and remembered peers is a network of one until another node calls it.
Names are resolved again at each attempt, outside of the event loop. No error of name resolution or
sockets ends the service.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence

import trio

from meshnode.domain.kademlia.address import canonical
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.refusals import NotAnAddress
from meshnode.services.dht.handle import Dht

log = logging.getLogger(__name__)

MAX_ADDRESSES = 4
"""A name may resolve to several nodes; at most this many are tried."""
MAX_CALLS = 8
"""Calls in flight."""

Tracker = tuple[str, int]
"""Host name or address, and gRPC port."""


class Joining:
    """Keeps this node in the network."""

    def __init__(
        self,
        dht: Dht,
        trackers: Sequence[Tracker],
        remembered: Sequence[Contact],
        random: Callable[[], float],
    ) -> None:
        self._dht = dht
        self._trackers = trackers
        self._remembered = remembered
        self._random = random
        self._known_as: dict[Tracker, Contact] = {}
        self._said_unreachable = False

    async def run(self) -> None:
        """Join, and join again whenever it is needed, until cancelled."""
        timings = self._dht.timings
        pause = timings.retry_first_s
        while True:
            if await self._attempt():
                pause = timings.retry_first_s
                await self._wait_needed(timings.trackers_s)
            else:
                # Half of the pause is random, so that nodes that lost a tracker at the same moment
                # do not all call it at the same moment.
                await trio.sleep(pause * (0.5 + 0.5 * self._random()))
                pause = min(2 * pause, timings.retry_most_s)

    async def _attempt(self) -> bool:
        """Call the nodes that may know the network. Returns False if a retry is due soon."""
        table = self._dht.local.table
        alone = len(table) == 0
        missing = [tracker for tracker in self._trackers if not self._knows(tracker)]
        answered = await self._greet_all(missing, self._remembered if alone else ())
        if answered or (alone and len(table)):
            result = await self._dht.find_closest(self._dht.own_id)
            if result.closest:
                self._say_joined(len(result.closest))
        if len(table):
            return True
        if self._trackers and not self._said_unreachable:
            self._said_unreachable = True
            log.warning("no tracker answers; trying again until one does")
        return not self._trackers and not self._remembered

    def _knows(self, tracker: Tracker) -> bool:
        contact = self._known_as.get(tracker)
        return contact is not None and contact in self._dht.local.table

    async def _greet_all(self, trackers: Sequence[Tracker], contacts: Sequence[Contact]) -> bool:
        """Ping all trackers and contacts. Returns whether any of them answered."""
        limiter, answered = trio.CapacityLimiter(MAX_CALLS), False

        async def greet(tracker: Tracker) -> None:
            nonlocal answered
            async with limiter:
                for ip in await self._resolve(tracker):
                    contact = await self._dht.messenger.greet(ip, tracker[1])
                    if contact is not None:
                        self._known_as[tracker] = contact
                        answered = True

        async def ping(contact: Contact) -> None:
            nonlocal answered
            async with limiter:
                if await self._dht.messenger.ping(contact):
                    answered = True

        async with trio.open_nursery() as nursery:
            for tracker in trackers:
                nursery.start_soon(greet, tracker)
            for contact in contacts:
                nursery.start_soon(ping, contact)
        return answered

    async def _resolve(self, tracker: Tracker) -> list[str]:
        """The addresses of a tracker; none if its name cannot be resolved now."""
        found: list[str] = []
        with trio.move_on_after(self._dht.timings.resolve_s):
            try:
                rows = await trio.socket.getaddrinfo(*tracker, type=socket.SOCK_STREAM)
                found = [canonical(str(row[4][0])) for row in rows]
            except (OSError, UnicodeError, NotAnAddress) as error:
                log.debug("cannot resolve %s: %s", tracker[0], error)
        return list(dict.fromkeys(found))[:MAX_ADDRESSES]

    async def _wait_needed(self, seconds: float) -> None:
        """Wait until it is time to call the trackers again, or until all contacts are lost."""
        deadline = trio.current_time() + seconds
        can_be_lost = len(self._dht.local.table) > 0
        while trio.current_time() < deadline:
            await trio.sleep(min(seconds, self._dht.timings.tick_s))
            if can_be_lost and len(self._dht.local.table) == 0:
                log.warning("all contacts are lost; joining again")
                return

    def _say_joined(self, found: int) -> None:
        self._said_unreachable = False
        self._dht.refresh_announcements()
        if not self._dht.joined.is_set():
            log.info("joined the network: %d nodes answered", found)
            self._dht.joined.set()
