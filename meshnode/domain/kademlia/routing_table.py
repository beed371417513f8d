"""The routing table: most of the nodes near this one, and some that are far (interface 4.3).

Paper 2.4 describes it; ``bucket`` names the paper and explains the terms. Further terms: a
*newcomer* is a verified contact without a place. A contact is *lost* when it was dropped for not
answering; lost contacts are tried again, so that two halves of a partitioned network find each
other when it heals. A bucket is *due* when nothing in it was looked up for REFRESH_S.

Invariants: the node's own id is not in the table; every contact is in the bucket of its distance;
no bucket exceeds K, no subnet its share (``policy``); ``closest`` is exact over all entries. The
table makes no calls: it returns the contact to ping, and the caller reports the outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from meshnode.domain.kademlia.bucket import FRESH_S, PING_S, Bucket, K
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import ID_BITS, NodeId, bucket_of, distance
from meshnode.domain.kademlia.policy import ANYWHERE, ContactPolicy
from meshnode.domain.kademlia.refusals import CrowdedSubnet, NotResponsible

REFRESH_S = 3600.0
MAX_LOST = 64
RESPONSIBLE = 2
"""A node stores a record while it knows fewer than this many times K nodes nearer to the key. The
factor allows for a storing node that knows fewer of them."""


class RoutingTable:
    """One node's buckets. Times are seconds of a monotonic clock."""

    def __init__(
        self, own_id: NodeId, now: float, policy: ContactPolicy = ANYWHERE, k: int = K
    ) -> None:
        self._own_id = own_id
        self._policy = policy
        self._k = k
        self._buckets: dict[int, Bucket] = {}
        self._looked_up: dict[int, float] = {}
        self._started = now
        self._subnets: Counter[str] = Counter()
        self._lost: dict[NodeId, Contact] = {}

    # Contents

    def __len__(self) -> int:
        """How many contacts have a place."""
        return sum(len(bucket.entries) for bucket in self._buckets.values())

    def __iter__(self) -> Iterator[Contact]:
        """All contacts with a place, nearest bucket first."""
        for index in sorted(self._buckets):
            yield from self._buckets[index].contacts()

    def __contains__(self, contact: Contact) -> bool:
        """Whether this contact has a place, at this address."""
        return self.find(contact.node_id) == contact

    def find(self, node_id: NodeId) -> Contact | None:
        """The contact with this id, if it has a place."""
        if node_id == self._own_id:
            return None
        bucket = self._buckets.get(bucket_of(self._own_id, node_id))
        entry = bucket.entries.get(node_id) if bucket else None
        return entry.contact if entry else None

    def closest(
        self, target: NodeId, accept: Callable[[Contact], bool] = lambda _: True
    ) -> list[Contact]:
        """The K accepted contacts closest to ``target``, closest first; or fewer."""
        away = distance(self._own_id, target)
        # Seen from the target, the contacts of bucket i are at distances whose bits above i are
        # those of ``away`` and whose bit i is its opposite: ranges that do not overlap. So whole
        # buckets are taken in order, and only the last of them is cut.
        in_order = sorted(self._buckets, key=lambda i: (away >> i ^ 1) << i)
        found: list[Contact] = []
        for index in in_order:
            contacts = [c for c in self._buckets[index].contacts() if accept(c)]
            contacts.sort(key=lambda c: distance(c.node_id, target))
            found += contacts[: self._k - len(found)]
            if len(found) == self._k:
                break
        return found

    def check_responsible(self, key: NodeId) -> None:
        """Raise NotResponsible for a key to which this node knows many nearer nodes."""
        # A contact of bucket i is nearer to the key than this node if bit i of the distance is set.
        away = distance(self._own_id, key)
        nearer = sum(len(b.entries) for i, b in self._buckets.items() if away >> i & 1)
        # A record belongs to the K nodes closest to its key.
        if nearer >= RESPONSIBLE * self._k:
            raise NotResponsible

    # Changes

    def wants(self, contact: Contact, now: float) -> bool:
        """Whether a ping to an unverified contact could change the table, and so is worth sending.

        Raises OwnId; :meth:`heard` enforces the other rules.
        """
        bucket = self._buckets.get(bucket_of(self._own_id, contact.node_id))
        if bucket is None:
            return True
        entry = bucket.entries.get(contact.node_id)
        if entry is not None:
            return now - entry.heard_at >= FRESH_S
        return not bucket.full or bucket.candidate(now) is not None

    def heard(self, contact: Contact, now: float) -> Contact | None:
        """Take note of an answer from a verified contact.

        Returns the eviction candidate if this contact could only replace another entry. The
        caller pings the candidate and reports the outcome to :meth:`heard` or :meth:`failed`, and
        the candidate is kept or replaced. Raises OwnId or CrowdedSubnet.
        """
        index = bucket_of(self._own_id, contact.node_id)
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = self._buckets[index] = Bucket(self._k)
        self._lost.pop(contact.node_id, None)

        holder = bucket.entries.get(contact.node_id)
        if holder is not None and holder.contact == contact:
            bucket.place(contact, now)
            return None

        # An id keeps its address while that address answers: ids are not signed, so a known id at
        # a new address may be the same node after a move, or an impostor.
        if holder is not None:
            bucket.add_replacement(contact, now)
            return self._nominate(bucket, now, contact.node_id)

        # A subnet has its share of each bucket and of the table, and no more.
        if not self._has_share(contact, bucket):
            if not bucket.entries:
                del self._buckets[index]
            raise CrowdedSubnet

        if not bucket.full:
            self._place(contact, bucket, now)
            return None

        # A full bucket keeps its least recently seen contact if that answers a ping.
        bucket.add_replacement(contact, now)
        return self._nominate(bucket, now)

    def failed(self, contact: Contact, now: float) -> None:
        """Take note of a call that the contact did not answer under its own id."""
        index = bucket_of(self._own_id, contact.node_id)
        bucket = self._buckets.get(index)
        if bucket is None:
            return
        gone, newcomer = bucket.failed(
            contact, now, lambda other: self._has_share(other, bucket, leaving=contact)
        )
        if not gone:
            return
        self._count(contact, -1)
        if newcomer is not None:
            self._count(newcomer, +1)
        if not bucket.entries:
            del self._buckets[index]
        self._lost[contact.node_id] = contact
        if len(self._lost) > MAX_LOST:
            del self._lost[next(iter(self._lost))]

    def lost(self) -> list[Contact]:
        """Contacts to try again now and then, the longest lost first; at most MAX_LOST."""
        return list(self._lost.values())

    # What is due

    def looked_up(self, target: NodeId, now: float) -> None:
        """Take note of a lookup, which refreshes the target's bucket."""
        self._looked_up[max(0, distance(self._own_id, target).bit_length() - 1)] = now

    def due_buckets(self, now: float) -> list[int]:
        """Buckets to refresh, nearest first, by a lookup for an ``id_in_bucket`` in each.

        Buckets nearer than the nearest contact are left out: looking up this node's own id covers
        them.
        """
        nearest = min(self._buckets, default=ID_BITS)
        return [
            index
            for index in range(nearest, ID_BITS)
            if now - self._looked_up.get(index, self._started) >= REFRESH_S
        ]

    # Details

    def _nominate(
        self, bucket: Bucket, now: float, node_id: NodeId | None = None
    ) -> Contact | None:
        candidate = bucket.candidate(now, node_id)
        if candidate is None:
            return None
        candidate.nominate(now + PING_S)
        return candidate.contact

    def _place(self, contact: Contact, bucket: Bucket, now: float) -> None:
        bucket.place(contact, now)
        self._count(contact, +1)

    def _count(self, contact: Contact, change: int) -> None:
        subnet = self._policy.subnet_in_question(contact)
        if subnet is not None:
            self._subnets[subnet] += change
            if not self._subnets[subnet]:
                del self._subnets[subnet]

    def _has_share(self, contact: Contact, bucket: Bucket, leaving: Contact | None = None) -> bool:
        subnet = self._policy.subnet_in_question(contact)
        if subnet is None:
            return True
        in_table = self._subnets[subnet]
        if leaving is not None and self._policy.subnet_in_question(leaving) == subnet:
            in_table -= 1
        if in_table >= self._policy.share_of_table:
            return False
        if in_table == 0:
            return True
        in_bucket = sum(
            self._policy.subnet_in_question(other) == subnet for other in bucket.contacts()
        )
        return in_bucket < self._policy.share_of_bucket
