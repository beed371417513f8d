"""One node of the DHT: its table, its records, and its answers (document, 4.3: the DHT operations).

A service that moves messages drives it like this:

- Each request: ``sender_of`` gives its contact; if it is ``worth_pinging``, ping it back: before a
  ``store``, and aside from the answer of ``find_node`` and ``find_value``.
- Each answered call: ``answered``. If that returns a contact, ping it. Each unanswered: ``failed``.
- A lookup: ``lookup(target)``; send what ``next_queries`` gives, report outcomes to the lookup and
  to this node, until it is ``done``.
- Now and then: look up a random id in each of ``table.due_buckets``; ping ``table.lost``; publish
  ``publications.due``; hand on ``records.due``.

Invariants: no unverified contact is told to anybody or kept in the table, and none of another
machine stores a record here; a request makes this node ping at most its own sender, at the address
it came from.
"""

from __future__ import annotations

from meshnode.domain.kademlia.contact import Contact, NodeInfo
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import NodeId, distance, parse_id
from meshnode.domain.kademlia.policy import (
    ANYWHERE,
    ContactPolicy,
    client_group,
    quota_group,
    visible_from,
)
from meshnode.domain.kademlia.publications import Publications
from meshnode.domain.kademlia.query import LOOKUP_LIMITS, LookupLimits
from meshnode.domain.kademlia.records import RECORD_LIMITS, RecordLimits, RecordStore
from meshnode.domain.kademlia.refusals import CrowdedSubnet, Refused, UnverifiedSender
from meshnode.domain.kademlia.routing_table import RoutingTable
from meshnode.domain.kademlia.verification import Verifications


class LocalNode:
    """The state of one node. Times are seconds of a monotonic clock."""

    def __init__(
        self,
        own_id: NodeId,
        now: float,
        *,
        policy: ContactPolicy = ANYWHERE,
        limits: LookupLimits = LOOKUP_LIMITS,
        record_limits: RecordLimits = RECORD_LIMITS,
    ) -> None:
        self.own_id = own_id
        self.policy = policy
        self.table = RoutingTable(own_id, now, policy, limits.k)
        self.verifications = Verifications()
        self.records = RecordStore(record_limits, spread=own_id[-1] / 255)
        self.publications = Publications()
        self._limits = limits

    # Others ask

    def sender_of(self, info: NodeInfo, observed_ip: str) -> Contact:
        """The sender of a request, at the address that it really came from. Raises Refused."""
        return self.policy.admit_sender(info, self.own_id, observed_ip)

    def worth_pinging(self, sender: Contact, now: float, *, storing: bool = False) -> bool:
        """Whether to ping a request's sender back. True counts as asked: then do it.

        A sender that is ``storing`` has to be verified even if the table has no place for it.
        """
        wanted = self.table.wants(sender, now) or (storing and not self.is_verified(sender, now))
        return wanted and self.verifications.may_ping(sender, now, calls=True)

    def find_node(self, sender: Contact, target: bytes) -> list[Contact]:
        """The K closest to ``target`` of those that the sender can use, itself left out.

        Raises BadIdLength.
        """
        return self.table.closest(
            parse_id(target),
            lambda c: c.node_id != sender.node_id and visible_from(sender.ip, c.ip),
        )

    def find_value(
        self, sender: Contact, key: bytes, now: float
    ) -> tuple[tuple[str, ...], list[Contact]]:
        """The values under ``key``; or, if there are none, the K closest. Raises BadIdLength."""
        values = self.records.values(parse_id(key), now)
        return values, [] if values else self.find_node(sender, key)

    def store(
        self, sender: Contact, key: bytes, value: str, now: float, age_s: float = 0.0
    ) -> None:
        """Hold a record for ``sender``. Raises Refused or Flooded."""
        record_key = parse_id(key)

        # Quotas are counted by sender, so the sender is one that has answered from there; or it is
        # on this machine, and shares its quota with all of those.
        verified = self.is_verified(sender, now)
        group = quota_group(sender) if verified else client_group(sender)
        if group is None:
            raise UnverifiedSender

        self.table.check_responsible(record_key)
        self.records.store(record_key, value, group, now, age_s)
        # Several nodes hold one layer; a client that stores again means to replace.
        if not verified:
            self.records.keep_only(record_key, value, group)

    # This node asks

    def lookup(self, target: NodeId, now: float, *, for_value: bool = False) -> Lookup:
        """A lookup that starts from this node's table; ``lookup.Lookup`` says how to drive it."""
        self.table.looked_up(target, now)
        return Lookup(
            target,
            self.own_id,
            self.table.closest(target),
            lambda contact: self.is_verified(contact, now),
            for_value=for_value,
            policy=self.policy,
            limits=self._limits,
        )

    def belongs_here(self, key: NodeId, closest: tuple[Contact, ...]) -> bool:
        """Whether this node itself is one of the K closest, given those that a lookup found."""
        if len(closest) < self._limits.k:
            return True
        return distance(self.own_id, key) < distance(closest[-1].node_id, key)

    def is_verified(self, contact: Contact, now: float) -> bool:
        """Whether this very address has answered with this very id."""
        return contact in self.table or self.verifications.is_verified(contact, now)

    def answered(self, contact: Contact, responder_id: bytes, now: float) -> Contact | None:
        """Take note of an answer to any call. Returns a contact to ping, if the table asks for it.

        Raises WrongResponder.
        """
        try:
            self.verifications.answered(contact, responder_id, now)
        except Refused:
            self.table.failed(contact, now)
            raise
        try:
            return self.table.heard(contact, now)
        except CrowdedSubnet:
            # It is no worse a node for that: it may be asked, it only is not kept.
            return None

    def failed(self, contact: Contact, now: float) -> None:
        """Take note of a call of any kind that was not answered."""
        self.verifications.failed(contact, now)
        self.table.failed(contact, now)
