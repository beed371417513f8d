"""The handle of the DHT: answer requests, look things up, publish (interface 4.3).

Terms: to *meet* a sender is to identify it and, where the core wants it, to ping it back.

Invariants: a request makes this node ping only its sender, at the address it came from; at most
TO_PING contacts wait to be pinged and at most LOOKUPS lookups run, however many are requested; no
address is called because a record has it.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from meshnode.domain.kademlia.contact import Contact, NodeInfo
from meshnode.domain.kademlia.holding import holder_in, holder_value
from meshnode.domain.kademlia.local_node import LocalNode
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.query import LookupResult, Query, Step
from meshnode.domain.kademlia.refusals import DhtRefusal, Flooded, NotResponsible, UnverifiedSender
from meshnode.domain.kademlia.verification import MAX_ASKED
from meshnode.services.dht.messages import Messenger

if TYPE_CHECKING:
    from meshnode.domain.kademlia.own_address import OwnAddress
    from meshnode.rpc.pool import ChannelPool
    from meshnode.services.dht.timings import DhtTimings

TO_PING = 2 * MAX_ASKED
"""Room for the senders that the core allows to ping, and for as many eviction candidates."""
LOOKUPS = 8
"""Lookups that run at once."""
STORES = 5
"""Stores of one record that run at once."""
RESOLVED = 2
"""Unknown ids of the records under one key that are looked up at a time. A crowd of false records
delays an honest holder that this node does not know yet, but causes few calls."""
UNRESOLVED_S = 600.0
"""Pause between two lookups of such an id."""
OWN_GROUP = "this node"
"""The quota group of this node's own records."""


class Dht:
    """Handle of the service."""

    def __init__(
        self,
        local: LocalNode,
        pool: ChannelPool,
        own_address: OwnAddress,
        port: int,
        timings: DhtTimings,
        to_ping: trio.MemorySendChannel[Contact],
    ) -> None:
        """Made by ``serve_dht``, which pings the contacts it receives from ``to_ping``."""
        self.local = local
        self.port = port
        self.timings = timings
        self.own_address = own_address
        self.joined = trio.Event()
        """Set once somebody has answered a lookup."""
        self.messenger = Messenger(local, pool, own_address, port, timings.call_s, self._ping_soon)
        self._to_ping = to_ping
        self._waiting: set[Contact] = set()
        """Contacts that are in ``to_ping``, or were in it and are being pinged."""
        self._lookups = trio.CapacityLimiter(LOOKUPS)
        self._announced: dict[NodeId, str] = {}
        self._returned: dict[Contact, float] = {}
        self._unresolved: dict[NodeId, float] = {}
        """When the ids of records were looked up; few, because lookups are."""

    @property
    def own_id(self) -> NodeId:
        """The id of this node."""
        return self.local.own_id

    def contacts(self) -> list[Contact]:
        """The verified nodes that this one knows, nearest first."""
        return list(self.local.table)

    # Requests of other nodes

    def meet(self, info: NodeInfo, observed_ip: str) -> Contact:
        """Identify the sender of a request, and ping it soon if the core wants that.

        Raises DhtRefusal if the request names no valid sender.
        """
        sender = self.local.sender_of(info, observed_ip)
        now = trio.current_time()
        if self.local.worth_pinging(sender, now) or self._returns(sender, now):
            self._ping_soon(sender)
        return sender

    def find_node(self, info: NodeInfo, observed_ip: str, target: bytes) -> list[Contact]:
        """The K closest nodes to ``target`` that the sender can use. Raises DhtRefusal."""
        return self.local.find_node(self.meet(info, observed_ip), target)

    def find_value(
        self, info: NodeInfo, observed_ip: str, key: bytes
    ) -> tuple[tuple[str, ...], list[Contact]]:
        """The values under ``key``, or the K closest nodes. Raises DhtRefusal."""
        sender = self.meet(info, observed_ip)
        return self.local.find_value(sender, key, trio.current_time())

    async def store(
        self, info: NodeInfo, observed_ip: str, key: bytes, value: str, age_s: float
    ) -> bool:
        """Hold a record. Returns False if this node is not responsible for the key, or if the
        sender does not answer a ping.

        Raises DhtRefusal if the message is malformed and Flooded if a quota is used up. A sender
        that has not been verified yet is pinged first.
        """
        sender = self.local.sender_of(info, observed_ip)
        now = trio.current_time()
        # The core allows one ping to a sender, and that may be on its way already.
        if not self.local.is_verified(sender, now) and (
            sender in self._waiting or self.local.worth_pinging(sender, now, storing=True)
        ):
            await self.messenger.ping(sender)
        try:
            self.local.store(sender, key, value, trio.current_time(), age_s)
        except (UnverifiedSender, NotResponsible):
            # The message is valid, so the answer is a plain "not stored" instead of an error.
            return False
        return True

    # Requests of this node

    async def find_closest(self, target: NodeId) -> LookupResult:
        """The K nodes closest to ``target`` that answer."""
        return await self._drive(target, for_value=False)

    async def find_values(self, key: NodeId) -> LookupResult:
        """The values under ``key``, including those that this node holds."""
        result = await self._drive(key, for_value=True)
        own = self.local.records.values(key, trio.current_time())
        return replace(result, values=tuple(dict.fromkeys((*result.values, *own))))

    async def find_holders(self, key: NodeId) -> list[Contact]:
        """The nodes published under ``key`` that the DHT has verified, at their verified addresses.

        A record's address is never called, since anybody may publish any address (decision 0135).
        An id that is unknown here is looked up like any other; at most RESOLVED at a time.
        """
        result = await self.find_values(key)
        sources = [*result.closest, *self.local.table]
        told = [
            contact
            for value in result.values
            if (contact := holder_in(value, self.own_id, self.local.policy, sources))
        ]
        now = trio.current_time()
        verified = [each for each in told if self.local.is_verified(each, now)]
        known = {each.node_id: each for each in (*verified, *result.closest, *self.local.table)}
        unknown = {each.node_id for each in told} - known.keys()
        for node_id in self._resolvable(unknown, now):
            answered = (await self.find_closest(node_id)).closest
            self._unresolved[node_id] = now
            known.update((each.node_id, each) for each in answered if each.node_id == node_id)
        wanted = dict.fromkeys(each.node_id for each in told)
        return [known[node_id] for node_id in wanted if node_id in known]

    def _resolvable(self, unknown: Collection[NodeId], now: float) -> list[NodeId]:
        """Those of the ids that are worth a lookup now, chosen at random."""
        self._unresolved = {
            node_id: at for node_id, at in self._unresolved.items() if now - at < UNRESOLVED_S
        }
        worth = sorted(set(unknown) - self._unresolved.keys())
        return random.sample(worth, min(len(worth), RESOLVED))

    async def publish(self, key: NodeId, value: str, age_s: float = 0.0) -> int:
        """Store a record at the K nodes closest to its key. Returns how many others hold it.

        This node keeps it too if it is one of the K, or knows no other node.
        """
        result = await self.find_closest(key)
        if self.local.belongs_here(key, result.closest):
            self._keep(key, value, age_s)
        stored = 0
        limiter = trio.CapacityLimiter(STORES)

        async def store(contact: Contact) -> None:
            nonlocal stored
            async with limiter:
                if await self.messenger.store(contact, key, value, age_s):
                    stored += 1

        async with trio.open_nursery() as nursery:
            for contact in result.closest:
                nursery.start_soon(store, contact)
        return stored

    def announce(self, key: NodeId) -> None:
        """Publish this node under ``key`` from now on, with the address that others see."""
        self._announced.setdefault(key, "")
        self.refresh_announcements()

    def withdraw(self, key: NodeId) -> None:
        """Stop publishing this node under ``key``. The record expires within the hour."""
        self.local.publications.withdraw(key, self._announced.pop(key, ""))

    def refresh_announcements(self, *, again: bool = False) -> None:
        """Publish announcements anew where this node's address has changed.

        With ``again`` all announcements are due at once.
        """
        ip = self.own_address.best()
        if ip is None:
            return
        now, publications = trio.current_time(), self.local.publications
        value = holder_value(Contact(self.own_id, ip, self.port))
        for key, before in self._announced.items():
            if before != value or again:
                publications.withdraw(key, before)
                publications.announce(key, value, now)
                self._announced[key] = value

    # Reports about a contact by this node's other services

    def note_answer(self, contact: Contact, responder_id: NodeId) -> None:
        """Note that a call to a contact was answered by ``responder_id``. Raises WrongResponder."""
        self.messenger.note_answer(contact, responder_id)

    def note_failure(self, contact: Contact) -> None:
        """Note that a call to a contact was not answered."""
        self.messenger.note_failure(contact)

    def suspect(self, contact: Contact) -> None:
        """Ping an entry of the table soon. After another failure it loses its place."""
        if contact in self.local.table:
            self._ping_soon(contact)

    # Details

    async def _drive(self, target: NodeId, *, for_value: bool) -> LookupResult:
        async with self._lookups:
            lookup = self.local.lookup(target, trio.current_time(), for_value=for_value)
            with trio.move_on_after(self.timings.lookup_s):
                async with trio.open_nursery() as nursery:
                    _launch(self.messenger, lookup, nursery)
            return lookup.result()

    def _keep(self, key: NodeId, value: str, age_s: float) -> None:
        try:
            self.local.records.store(key, value, OWN_GROUP, trio.current_time(), age_s)
        except (DhtRefusal, Flooded):
            # The record is held by other nodes too.
            return

    def _ping_soon(self, contact: Contact) -> None:
        """Queue a contact to be pinged; do nothing if the queue is full."""
        try:
            self._to_ping.send_nowait(contact)
        except trio.WouldBlock:
            return
        self._waiting.add(contact)

    async def ping_queued(self, contact: Contact) -> None:
        """Ping a contact that was taken from the queue."""
        try:
            await self.messenger.ping(contact)
        finally:
            self._waiting.discard(contact)

    def _returns(self, sender: Contact, now: float) -> bool:
        """Whether to ping a lost contact at once because it has just called this node."""
        if sender not in self.local.table.lost():
            return False
        if now - self._returned.get(sender, float("-inf")) < self.timings.returned_s:
            return False
        lost = set(self.local.table.lost())
        self._returned = {known: at for known, at in self._returned.items() if known in lost}
        self._returned[sender] = now
        return True


def _launch(messenger: Messenger, lookup: Lookup, nursery: trio.Nursery) -> None:
    """Send the lookup's next queries. Each outcome sends more, until the lookup is done."""
    if lookup.done:
        nursery.cancel_scope.cancel()
        return
    for query in lookup.next_queries():
        nursery.start_soon(_carry_out, messenger, lookup, query, nursery)


async def _carry_out(
    messenger: Messenger, lookup: Lookup, query: Query, nursery: trio.Nursery
) -> None:
    if query.step is Step.ASK:
        await messenger.ask(lookup, query)
    elif await messenger.ping(query.contact):
        lookup.on_pong(query, query.contact.node_id)
    else:
        lookup.on_failure(query)
    _launch(messenger, lookup, nursery)
