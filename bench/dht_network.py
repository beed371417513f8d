"""A network of DHT nodes in virtual time: the production core, simulated messages.

Every node is a ``LocalNode`` and every lookup a ``Lookup``, driven as the node's service drives
them; only the transport is simulated. A message takes 20 to 80 ms each way; a call to a node that
has left fails after two seconds. All randomness comes from one seed, so a run can be repeated
exactly.

Terms: to *replace* a node is to stop it without notice and to let a new node, with a new id and
address, join through any other. A *round* is the maintenance of a node every ten minutes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.local_node import LocalNode
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import ID_BYTES, NodeId, id_in_bucket
from meshnode.domain.kademlia.query import LookupResult, Query, Step
from meshnode.domain.kademlia.refusals import DhtRefusal, Flooded

FASTEST_S, SLOWEST_S = 0.020, 0.080
"""Latency of a message in one direction."""
DEADLINE_S = 2.0
ROUND_S = 600.0
JOIN_ATTEMPTS = 5

Then = Callable[[LookupResult], None]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a call."""

    nodes: tuple[Contact, ...] = ()
    values: tuple[str, ...] = ()
    accepted: bool = True


Serve = Callable[[LocalNode, Contact], Reply]
"""The callee's side of a call; its arguments are the callee's node and the sender as seen there."""


class Network:
    """All nodes, and the messages in flight between them. Times are virtual seconds."""

    def __init__(self, seed: int, refresh: bool) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable on purpose
        self.refresh = refresh
        self.now = 0.0
        self.nodes: dict[Contact, LocalNode] = {}
        self.alive: list[Contact] = []
        self.calls: Counter[str] = Counter()
        self._place: dict[Contact, int] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    # Time

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self._sequence += 1
        heapq.heappush(self._events, (self.now + seconds, self._sequence, action))

    def run(self, until: float) -> None:
        """Run all events until this virtual time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    # Membership

    def add(self) -> Contact:
        """Add a node without contacts, with a random public address."""
        octets = [self.random.randrange(1, 224), *(self.random.randrange(256) for _ in range(3))]
        # All of 11/8 to 99/8 counts as public, so every address can be used.
        octets[0] = 11 + octets[0] % 89
        ip = ".".join(map(str, octets))
        contact = Contact(NodeId(self.random.randbytes(ID_BYTES)), ip, 8000)
        self.nodes[contact] = LocalNode(contact.node_id, self.now)
        self._place[contact] = len(self.alive)
        self.alive.append(contact)
        self.after(self.random.uniform(0, ROUND_S), lambda: self._round(contact))
        return contact

    def remove(self, contact: Contact) -> None:
        """Stop a node."""
        place, last = self._place.pop(contact), self.alive.pop()
        if last != contact:
            self.alive[place] = last
            self._place[last] = place
        del self.nodes[contact]

    def anybody(self) -> Contact:
        """Return a randomly chosen live node."""
        return self.alive[self.random.randrange(len(self.alive))]

    def join(self, attempts: int = JOIN_ATTEMPTS) -> Contact:
        """Let a new node join through a random other one: a ping, then a lookup of its own id."""
        through = self.anybody() if self.alive else None
        contact = self.add()
        if through is not None:
            self._join_through(contact, through, attempts)
        return contact

    def _join_through(self, contact: Contact, through: Contact, attempts: int) -> None:
        def joined() -> None:
            self.find(contact, contact.node_id)

        def failed() -> None:
            if attempts and contact in self.nodes:
                self._join_through(contact, self.anybody(), attempts - 1)

        self.ping(contact, through, joined, failed)

    # Calls

    def call(
        self,
        kind: str,
        caller: Contact,
        callee: Contact,
        serve: Serve,
        answered: Callable[[Reply], None],
        failed: Callable[[], None],
    ) -> None:
        """Send a message; call ``answered`` or ``failed`` if the caller is still alive then."""
        self.calls[kind] += 1
        there = self.random.uniform(FASTEST_S, SLOWEST_S)
        back = self.random.uniform(FASTEST_S, SLOWEST_S)

        def arrive() -> None:
            node = self.nodes.get(callee)
            if node is None:
                self.after(DEADLINE_S - there, fail)
                return
            sender = node.sender_of(caller, caller.ip)
            if node.worth_pinging(sender, self.now, storing=kind == "store"):
                self.ping(callee, sender)
            reply = serve(node, sender)
            self.after(back, lambda: come_back(reply))

        def come_back(reply: Reply) -> None:
            node = self.nodes.get(caller)
            if node is None:
                return
            to_check = node.answered(callee, callee.node_id, self.now)
            if to_check is not None:
                self.ping(caller, to_check)
            answered(reply)

        def fail() -> None:
            node = self.nodes.get(caller)
            if node is not None:
                node.failed(callee, self.now)
                failed()

        self.after(there, arrive)

    def ping(
        self,
        caller: Contact,
        callee: Contact,
        answered: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a DHTPing."""
        self.call("ping", caller, callee, lambda *_: Reply(), lambda _: answered(), failed)

    def find(
        self,
        caller: Contact,
        target: NodeId,
        then: Then = lambda _: None,
        *,
        for_value: bool = False,
    ) -> None:
        """Start a lookup with DHTFindNode or DHTFindValue."""
        lookup = self.nodes[caller].lookup(target, self.now, for_value=for_value)
        self._continue(caller, lookup, then)

    def _continue(self, caller: Contact, lookup: Lookup, then: Then) -> None:
        for query in lookup.next_queries():
            self._send(caller, lookup, query, then)
        if lookup.done:
            then(lookup.result())

    def _send(self, caller: Contact, lookup: Lookup, query: Query, then: Then) -> None:
        callee = query.contact

        def pong(_: Reply) -> None:
            self._land(caller, lookup, then, lambda: lookup.on_pong(query, callee.node_id))

        def response(reply: Reply) -> None:
            self._land(
                caller,
                lookup,
                then,
                lambda: lookup.on_response(query, callee.node_id, reply.nodes, reply.values),
            )

        def failed() -> None:
            self._land(caller, lookup, then, lambda: lookup.on_failure(query))

        if query.step is Step.PING:
            self.call("ping", caller, callee, lambda *_: Reply(), pong, failed)
            return

        def serve(node: LocalNode, sender: Contact) -> Reply:
            if lookup.for_value:
                values, nodes = node.find_value(sender, lookup.target, self.now)
                return Reply(tuple(nodes), values)
            return Reply(tuple(node.find_node(sender, lookup.target)))

        self.call("find", caller, callee, serve, response, failed)

    def _land(
        self, caller: Contact, lookup: Lookup, then: Then, report: Callable[[], None]
    ) -> None:
        if not lookup.done:
            report()
            self._continue(caller, lookup, then)

    # Records

    def announce(self, publisher: Contact, key: NodeId, value: str) -> None:
        """Publish a record now, and again as long as the publisher is alive."""
        self.nodes[publisher].publications.announce(key, value, self.now)
        self._publish(publisher)

    def _publish(self, publisher: Contact) -> None:
        node = self.nodes[publisher]
        for key, value in node.publications.due(self.now):
            node.publications.tried(key, value, 1, self.now)
            self._store(publisher, key, value, 0.0)

    def _store(self, caller: Contact, key: NodeId, value: str, age_s: float) -> None:
        def serve(node: LocalNode, sender: Contact) -> Reply:
            try:
                node.store(sender, key, value, self.now, age_s)
            except (DhtRefusal, Flooded):
                return Reply(accepted=False)
            return Reply()

        def stored(reply: Reply) -> None:
            self.calls["store refused"] += not reply.accepted

        def found(result: LookupResult) -> None:
            for callee in result.closest:
                self.call("store", caller, callee, serve, stored, lambda: None)

        self.find(caller, key, found)

    # Maintenance

    def _round(self, contact: Contact) -> None:
        node = self.nodes.get(contact)
        if node is None:
            return
        self._publish(contact)
        for due in node.records.due(self.now):
            self._store(contact, due.key, due.value, due.age_s)
        for lost in node.table.lost()[-2:]:
            self.ping(contact, lost)
        if self.refresh:
            for bucket in node.table.due_buckets(self.now):
                self.find(contact, id_in_bucket(node.own_id, bucket, self.random.getrandbits(160)))
        self.after(ROUND_S, lambda: self._round(contact))
