"""An in-memory network of DHT nodes for tests: losses, deaths, newcomers and liars, by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st

from meshnode.domain.kademlia.contact import Contact, NodeInfo
from meshnode.domain.kademlia.local_node import LocalNode
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import ID_BYTES, NodeId
from meshnode.domain.kademlia.query import LookupLimits, LookupResult, Query, Step
from meshnode.domain.kademlia.records import RecordLimits
from meshnode.domain.kademlia.refusals import DhtRefusal, Flooded

node_ids = st.binary(min_size=ID_BYTES, max_size=ID_BYTES).map(NodeId)


def id_of(number: int) -> NodeId:
    return NodeId(number.to_bytes(ID_BYTES))


def contact_of(number: int, ip: str = "127.0.0.1", port: int = 8000) -> Contact:
    return Contact(id_of(number), ip, port)


@dataclass(frozen=True)
class Info:
    """A node info as received from another node, not yet checked."""

    node_id: bytes
    ip: str = "127.0.0.1"
    port: int = 8000


@dataclass(frozen=True)
class Answer:
    """The answer to a FindNode or FindValue."""

    responder_id: bytes
    nodes: Sequence[NodeInfo] = ()
    values: tuple[str, ...] = ()


Liar = Callable[[NodeId], Answer]
"""Gives any answer it likes to a lookup of a target. It answers pings with its own id."""


@dataclass
class Network:
    """Nodes by contact. Messages take no time; a call fails if one is lost or the node is dead."""

    random: Random
    loss: float = 0.0
    now: float = 0.0
    limits: LookupLimits = field(default_factory=LookupLimits)
    record_limits: RecordLimits = field(default_factory=RecordLimits)
    nodes: dict[Contact, LocalNode] = field(default_factory=dict)
    liars: dict[Contact, Liar] = field(default_factory=dict)
    dead: set[Contact] = field(default_factory=set)
    called: list[Contact] = field(default_factory=list)
    """Every contact that was called, in order, whether or not a node is there."""
    answered: set[tuple[Contact, Contact]] = field(default_factory=set)
    """Pairs of a caller and a contact that has answered it."""

    # Members

    def fresh_contact(self) -> Contact:
        # Each node has its own /24, so that subnet limits do not matter here.
        octets = [self.random.randrange(1, 255) for _ in range(3)]
        ip = f"11.{octets[0]}.{octets[1]}.{octets[2]}"
        return Contact(NodeId(self.random.randbytes(ID_BYTES)), ip, self.random.randrange(1, 60000))

    def join(self, through: Contact | None = None) -> Contact:
        """Add a node, which looks itself up through ``through``, if given; return its contact."""
        contact = self.fresh_contact()
        node = LocalNode(
            contact.node_id, self.now, limits=self.limits, record_limits=self.record_limits
        )
        self.nodes[contact] = node
        if through is not None:
            while not self.ping(contact, through):
                assert self.loss, "one joins through somebody alive"
            self.find(contact, contact.node_id)
        return contact

    def grow(self, count: int) -> list[Contact]:
        joined = [self.join()]
        while len(joined) < count:
            joined.append(self.join(self.random.choice(joined)))
        return joined

    def add_liar(self, answer: Liar) -> Contact:
        contact = self.fresh_contact()
        self.liars[contact] = answer
        return contact

    def kill(self, contact: Contact) -> None:
        self.dead.add(contact)

    @property
    def alive(self) -> list[Contact]:
        return [contact for contact in self.nodes if contact not in self.dead]

    # Messages

    def _arrives(self, contact: Contact) -> bool:
        self.called.append(contact)
        there = contact in self.liars or (contact in self.nodes and contact not in self.dead)
        return there and self.random.random() >= self.loss

    def ping(self, caller: Contact, callee: Contact) -> bool:
        node = self.nodes[caller]
        if not self._arrives(callee):
            node.failed(callee, self.now)
            return False
        if callee in self.nodes:
            self._meet(callee, caller)
        self._heard(caller, callee)
        return True

    def _heard(self, caller: Contact, callee: Contact) -> None:
        self.answered.add((caller, callee))
        to_check = self.nodes[caller].answered(callee, callee.node_id, self.now)
        if to_check is not None:
            self.ping(caller, to_check)

    def _meet(self, callee: Contact, caller: Contact, storing: bool = False) -> Contact:
        """The callee's part of any request: identify the caller, and ping it if worthwhile."""
        node = self.nodes[callee]
        claim = Info(caller.node_id, "0.0.0.0", caller.port)  # noqa: S104 - a claim to be ignored
        sender = node.sender_of(claim, caller.ip)
        assert sender == caller
        if node.worth_pinging(sender, self.now, storing=storing):
            self.ping(callee, sender)
        return sender

    def ask(self, caller: Contact, callee: Contact, lookup: Lookup) -> Answer | None:
        if not self._arrives(callee):
            return None
        if callee in self.liars:
            return self.liars[callee](lookup.target)
        sender = self._meet(callee, caller)
        node = self.nodes[callee]
        if lookup.for_value:
            values, nodes = node.find_value(sender, lookup.target, self.now)
            return Answer(callee.node_id, nodes, values)
        return Answer(callee.node_id, node.find_node(sender, lookup.target))

    def store(self, caller: Contact, key: NodeId, value: str, age_s: float = 0.0) -> list[Contact]:
        """Store a record at the nodes closest to the key; return those that hold it now."""
        holders: list[Contact] = []
        for callee in self.find(caller, key).closest:
            if callee in self.liars or not self._arrives(callee):
                continue
            try:
                sender = self._meet(callee, caller, storing=True)
                self.nodes[callee].store(sender, key, value, self.now, age_s)
                holders.append(callee)
            except (DhtRefusal, Flooded):
                continue
        return holders

    # Lookups

    def find(self, caller: Contact, target: NodeId, for_value: bool = False) -> LookupResult:
        lookup = self.nodes[caller].lookup(target, self.now, for_value=for_value)
        return self.drive(caller, lookup)

    def drive(self, caller: Contact, lookup: Lookup) -> LookupResult:
        """Run a lookup; answers come in a random order."""
        in_flight: list[Query] = []
        while not lookup.done:
            in_flight += lookup.next_queries()
            assert len(in_flight) <= self.limits.alpha
            assert in_flight, "not done, and nothing to wait for"
            query = in_flight.pop(self.random.randrange(len(in_flight)))
            self._carry_out(caller, lookup, query)
        return lookup.result()

    def _carry_out(self, caller: Contact, lookup: Lookup, query: Query) -> None:
        if query.step is Step.PING:
            if self.ping(caller, query.contact):
                lookup.on_pong(query, query.contact.node_id)
            else:
                lookup.on_failure(query)
            return
        node = self.nodes[caller]
        assert (caller, query.contact) in self.answered, "only verified addresses are asked"
        answer = self.ask(caller, query.contact, lookup)
        if answer is None:
            node.failed(query.contact, self.now)
            lookup.on_failure(query)
            return
        if answer.responder_id == query.contact.node_id:
            self._heard(caller, query.contact)
        else:
            node.failed(query.contact, self.now)
        lookup.on_response(query, answer.responder_id, answer.nodes, answer.values)
