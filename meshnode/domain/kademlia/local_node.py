"""One node of the DHT: its table, its records, and its answers (interface 4.3: the DHT operations).

A service that sends and receives messages uses it like this:

- For each request, ``sender_of`` returns the sender's contact. If it is ``worth_pinging``, ping it:
  before ``store``, or beside the answer of ``find_node`` and ``find_value``.
- After each call, report ``answered`` or ``failed``. If ``answered`` returns a contact, ping it.
- For a lookup, call ``lookup(target)``, send the queries of ``next_queries``, and report outcomes
  to the lookup and to this node, until the lookup is ``done``.
- Periodically, look up a random id in each of ``table.due_buckets``; ping ``table.lost``; publish
  ``publications.due``; hand on ``records.due``.

Invariants: no unverified contact is passed on to other nodes or kept in the table; an unverified
sender on another machine cannot store a record; a request makes this node ping at most its sender,
at the address it came from.
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
from meshnode.domain.kademlia.refusals import CrowdedSubnet, DhtRefusal, UnverifiedSender
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

    # Requests of other nodes

    def sender_of(self, info: NodeInfo, observed_ip: str) -> Contact:
        """The sender of a request, at the address it came from. Raises DhtRefusal."""
        return self.policy.admit_sender(info, self.own_id, observed_ip)

    def worth_pinging(self, sender: Contact, now: float, *, storing: bool = False) -> bool:
        """Whether to ping a request's sender. True marks it as asked, so the caller must ping it.

        A sender that is ``storing`` has to be verified even if the table has no place for it.
        """
        wanted = self.table.wants(sender, now) or (storing and not self.is_verified(sender, now))
        return wanted and self.verifications.may_ping(sender, now, calls=True)

    def find_node(self, sender: Contact, target: bytes) -> list[Contact]:
        """The K contacts closest to ``target`` that the sender can use, without the sender itself.

        Raises BadIdLength.
        """
        return self.table.closest(
            parse_id(target),
            lambda c: c.node_id != sender.node_id and visible_from(sender.ip, c.ip),
        )

    def find_value(
        self, sender: Contact, key: bytes, now: float
    ) -> tuple[tuple[str, ...], list[Contact]]:
        """The values under ``key``, or else the K closest contacts. Raises BadIdLength."""
        values = self.records.values(parse_id(key), now)
        return values, [] if values else self.find_node(sender, key)

    def store(
        self, sender: Contact, key: bytes, value: str, now: float, age_s: float = 0.0
    ) -> None:
        """Hold a record for ``sender``. Raises DhtRefusal or Flooded."""
        record_key = parse_id(key)

        # Quotas are counted by sender, so its address must be verified. Unverified senders on this
        # machine share one quota.
        verified = self.is_verified(sender, now)
        group = quota_group(sender) if verified else client_group(sender)
        if group is None:
            raise UnverifiedSender

        self.table.check_responsible(record_key)
        self.records.store(record_key, value, group, now, age_s)
        # Several nodes may hold one layer, but a client that stores again means to replace.
        if not verified:
            self.records.keep_only(record_key, value, group)

    # Requests of this node

    def lookup(self, target: NodeId, now: float, *, for_value: bool = False) -> Lookup:
        """A lookup that starts from this node's table; see ``lookup.Lookup``."""
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
        """Whether this node is one of the K closest; ``closest`` is what a lookup found."""
        if len(closest) < self._limits.k:
            return True
        return distance(self.own_id, key) < distance(closest[-1].node_id, key)

    def is_verified(self, contact: Contact, now: float) -> bool:
        """Whether this address has answered with this id."""
        return contact in self.table or self.verifications.is_verified(contact, now)

    def answered(self, contact: Contact, responder_id: bytes, now: float) -> Contact | None:
        """Note an answer to a call of any kind. Raises WrongResponder.

        Returns the eviction candidate if the table has one: ping it.
        """
        try:
            self.verifications.answered(contact, responder_id, now)
        except DhtRefusal:
            self.table.failed(contact, now)
            raise
        try:
            return self.table.heard(contact, now)
        except CrowdedSubnet:
            # The contact is verified and may be queried; the table only does not keep it.
            return None

    def failed(self, contact: Contact, now: float) -> None:
        """Note that a call of any kind was not answered."""
        self.verifications.failed(contact, now)
        self.table.failed(contact, now)
