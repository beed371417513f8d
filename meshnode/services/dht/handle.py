"""What others do with the DHT: answer its messages, look things up, publish (document, 4.3).

Terms: to *meet* a sender is to see who it is and, where the core wants it, to have it pinged back.

Invariants: a request makes this node ping nobody but its sender, at the address it came from; at
most TO_PING contacts wait to be pinged and LOOKUPS lookups run, however many ask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from meshnode.domain.kademlia.contact import Contact, NodeInfo
from meshnode.domain.kademlia.holding import holder_in, holder_value
from meshnode.domain.kademlia.local_node import LocalNode
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.query import LookupResult, Query, Step
from meshnode.domain.kademlia.refusals import Flooded, NotResponsible, Refused, UnverifiedSender
from meshnode.domain.kademlia.verification import ASKED_MAX
from meshnode.services.dht.messages import Messenger

if TYPE_CHECKING:
    from meshnode.domain.kademlia.own_address import OwnAddress
    from meshnode.rpc.pool import ChannelPool
    from meshnode.services.dht.timings import DhtTimings

TO_PING = 2 * ASKED_MAX
"""Senders that the core lets be pinged, and as many doubted contacts."""
LOOKUPS = 8
STORES = 5
"""Of one record, at a time."""
OWN_GROUP = "this node"
"""In whose name this node's own records are counted here."""


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
        """Made by ``serve_dht``, which pings what comes out of ``to_ping``."""
        self.local = local
        self.port = port
        self.timings = timings
        self.own_address = own_address
        self.joined = trio.Event()
        """Set once a lookup had answers."""
        self.messenger = Messenger(local, pool, own_address, port, timings.call_s, self._check)
        self._to_ping = to_ping
        self._waiting: set[Contact] = set()
        """Contacts that are to be pinged, or are being pinged for that reason."""
        self._lookups = trio.CapacityLimiter(LOOKUPS)
        self._announced: dict[NodeId, str] = {}
        self._returned: dict[Contact, float] = {}

    @property
    def own_id(self) -> NodeId:
        """Of this node."""
        return self.local.own_id

    def contacts(self) -> list[Contact]:
        """The verified nodes that this one knows, nearest first."""
        return list(self.local.table)

    # Others ask

    def meet(self, info: NodeInfo, observed_ip: str) -> Contact:
        """The sender of a request. Raises Refused."""
        sender = self.local.sender_of(info, observed_ip)
        now = trio.current_time()
        if self.local.worth_pinging(sender, now) or self._returns(sender, now):
            self._check(sender)
        return sender

    def find_node(self, info: NodeInfo, observed_ip: str, target: bytes) -> list[Contact]:
        """The K closest nodes to ``target`` that the sender can use. Raises Refused."""
        return self.local.find_node(self.meet(info, observed_ip), target)

    def find_value(
        self, info: NodeInfo, observed_ip: str, key: bytes
    ) -> tuple[tuple[str, ...], list[Contact]]:
        """The values under ``key``, or the K closest nodes. Raises Refused."""
        sender = self.meet(info, observed_ip)
        return self.local.find_value(sender, key, trio.current_time())

    async def store(
        self, info: NodeInfo, observed_ip: str, key: bytes, value: str, age_s: float
    ) -> bool:
        """Hold a record; False if it is not this node's to hold, or not from a node.

        Raises Refused for what is malformed and Flooded for what is too much. A sender that has not
        answered yet is pinged first.
        """
        sender = self.local.sender_of(info, observed_ip)
        now = trio.current_time()
        # The core lets a sender be pinged once; the ping may be on its way already.
        if not self.local.is_verified(sender, now) and (
            sender in self._waiting or self.local.worth_pinging(sender, now, storing=True)
        ):
            await self.messenger.ping(sender)
        try:
            self.local.store(sender, key, value, trio.current_time(), age_s)
        except (UnverifiedSender, NotResponsible):
            # Nothing is wrong with the message.
            return False
        return True

    # This node asks

    async def find_closest(self, target: NodeId) -> LookupResult:
        """The K nodes closest to ``target`` that answer."""
        return await self._drive(target, for_value=False)

    async def find_values(self, key: NodeId) -> LookupResult:
        """The values under ``key``, those held by this node among them."""
        result = await self._drive(key, for_value=True)
        own = self.local.records.values(key, trio.current_time())
        return replace(result, values=tuple(dict.fromkeys((*result.values, *own))))

    async def find_holders(self, key: NodeId) -> list[Contact]:
        """The nodes published under ``key`` that answer at their addresses, as themselves."""
        result = await self.find_values(key)
        tellers = [*result.closest, *self.local.table]
        found: list[Contact] = []
        for value in result.values:
            contact = holder_in(value, self.own_id, self.local.policy, tellers)
            if contact is not None and await self.verify(contact):
                found.append(contact)
        return found

    async def verify(self, contact: Contact) -> bool:
        """Whether the contact has answered as itself, lately or now."""
        now = trio.current_time()
        if self.local.is_verified(contact, now):
            return True
        return self.local.verifications.may_ping(contact, now) and await self.messenger.ping(
            contact
        )

    async def publish(self, key: NodeId, value: str, age_s: float = 0.0) -> int:
        """Store a record at the K nodes closest to its key; to how many others, is the answer.

        This node keeps it too if it is one of those, or knows no other.
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
        """Publish this node under ``key`` from now on, at the address that others see."""
        self._announced.setdefault(key, "")
        self.refresh_announcements()

    def withdraw(self, key: NodeId) -> None:
        """Publish it no more there. The record expires within the hour."""
        self.local.publications.withdraw(key, self._announced.pop(key, ""))

    def refresh_announcements(self, *, again: bool = False) -> None:
        """See to it that what is announced has this node's present address.

        ``again`` makes all of it due at once.
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

    # Others of this node know something about a contact

    def note_answer(self, contact: Contact, responder_id: NodeId) -> None:
        """A call to a contact was answered by ``responder_id``. Raises WrongResponder."""
        self.messenger.note_answer(contact, responder_id)

    def note_failure(self, contact: Contact) -> None:
        """A call to a contact was not answered."""
        self.messenger.note_failure(contact)

    def doubt(self, contact: Contact) -> None:
        """Have a contact pinged soon: another failure, and it loses its place."""
        if contact in self.local.table:
            self._check(contact)

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
        except (Refused, Flooded):
            # Others hold it.
            return

    def _check(self, contact: Contact) -> None:
        """Have a contact pinged soon. One for which there is no room is left for another time."""
        try:
            self._to_ping.send_nowait(contact)
        except trio.WouldBlock:
            return
        self._waiting.add(contact)

    async def check(self, contact: Contact) -> None:
        """Ping a contact that waited for it."""
        try:
            await self.messenger.ping(contact)
        finally:
            self._waiting.discard(contact)

    def _returns(self, sender: Contact, now: float) -> bool:
        """Whether the sender was lost and now calls: then it need not wait to be tried again."""
        if sender not in self.local.table.lost():
            return False
        if now - self._returned.get(sender, float("-inf")) < self.timings.returned_s:
            return False
        lost = set(self.local.table.lost())
        self._returned = {known: at for known, at in self._returned.items() if known in lost}
        self._returned[sender] = now
        return True


def _launch(messenger: Messenger, lookup: Lookup, nursery: trio.Nursery) -> None:
    """Send what the lookup wants sent now; each answer does the same, until it is done."""
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
