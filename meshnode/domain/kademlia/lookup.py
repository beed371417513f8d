"""The iterative lookup, without IO (interface 4.3: DHTFindNode, DHTFindValue).

The caller sends the queries of ``next_queries`` and reports each outcome; the lookup chooses the
contacts to query next. A contact that came from another node is pinged before it is queried.

=========  ==========================================  =========  ================================
candidate  event                                       next       other effect
=========  ==========================================  =========  ================================
(none)     in this node's table, or in an answer       HEARD      KNOWN if verified before
HEARD      next_queries                                PINGING    a PING goes out
PINGING    on_pong, with its id                        KNOWN
PINGING    on_pong with another id, on_failure         DROPPED    HEARD again if there is another
                                                                  address to try
KNOWN      next_queries                                ASKING     an ASK goes out
ASKING     on_response, with its id                    ANSWERED   its contacts become candidates
ASKING     on_response with another id, on_failure     DROPPED    as above
DROPPED    an answer has another address of it         HEARD
=========  ==========================================  =========  ================================

Terms: the *frontier* is the K candidates closest to the target that are not dropped. A *source* is
a node whose answer held a contact; it is *discredited* when MAX_FALSE of its contacts did not
answer.

Invariants: at most ALPHA queries are in flight; at most MAX_CALLED addresses are called, each at
most twice (PING, ASK), so every lookup ends; only nodes that answered under their own id are in the
result, closest first, at most K, this node never among them. The lookup is done when the frontier
has answered, when enough holders gave values, or when the bound is reached.

A liar can cause calls up to the bound. Alone it cannot hide an honest node: addresses of an id from
other sources are tried too, and contacts that only discredited sources gave are tried last.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from meshnode.domain.kademlia.candidates import Candidate, State
from meshnode.domain.kademlia.contact import Contact, NodeInfo
from meshnode.domain.kademlia.node_id import NodeId, distance
from meshnode.domain.kademlia.policy import ANYWHERE, ContactPolicy
from meshnode.domain.kademlia.query import LOOKUP_LIMITS, LookupLimits, LookupResult, Query, Step
from meshnode.domain.kademlia.refusals import (
    CrowdedSubnet,
    DhtRefusal,
    TooManyContacts,
    UnaskedAnswer,
    WrongResponder,
)

MAX_FALSE = 5
"""The contacts of an honest source rarely include this many dead ones. If they do, they are tried
last, but not lost."""


class Lookup:
    """One FindNode or FindValue lookup. ``LocalNode.lookup`` builds it."""

    def __init__(
        self,
        target: NodeId,
        own_id: NodeId,
        seeds: Iterable[Contact],
        is_verified: Callable[[Contact], bool],
        *,
        for_value: bool = False,
        policy: ContactPolicy = ANYWHERE,
        limits: LookupLimits = LOOKUP_LIMITS,
    ) -> None:
        self.target = target
        self.for_value = for_value
        self._own_id = own_id
        self._is_verified = is_verified
        self._policy = policy
        self._limits = limits
        self._candidates: dict[NodeId, Candidate] = {}
        self._ranking: list[Candidate] = []
        """All candidates that are not dropped, closest first; the frontier is its first K."""
        self._in_flight: dict[Query, Candidate] = {}
        self._called: set[Contact] = set()
        self._subnets: Counter[str] = Counter()
        self._disproved_by_source: Counter[NodeId] = Counter()
        self._values: Counter[str] = Counter()
        self._holders: list[Candidate] = []
        self._messages = 0
        self._done = False
        self._refused: Counter[str] = Counter()
        for contact in seeds:
            self._consider(contact, source=None)

    # What to send

    @property
    def done(self) -> bool:
        """Whether the result is final. Later answers are ignored."""
        self._done = self._done or self._has_enough() or not self._has_more()
        return self._done

    def _has_enough(self) -> bool:
        return len(self._holders) >= self._limits.value_answers

    def _has_more(self) -> bool:
        return any(
            candidate.state in (State.PINGING, State.ASKING) or self._may_call(candidate)
            for candidate in self._ranking[: self._limits.k]
        )

    def next_queries(self) -> list[Query]:
        """The queries to send now, concurrently. Often none while others are in flight."""
        if self.done:
            return []
        queries: list[Query] = []
        while len(self._in_flight) < self._limits.alpha:
            candidate = self._next_candidate()
            if candidate is None:
                break
            step = Step.PING if candidate.state is State.HEARD else Step.ASK
            candidate.state = State.PINGING if step is Step.PING else State.ASKING
            query = Query(candidate.contact, step)
            self._in_flight[query] = candidate
            self._called.add(candidate.contact)
            self._messages += 1
            queries.append(query)
        return queries

    def _next_candidate(self) -> Candidate | None:
        # An address whose subnet has used its share is dropped, and the next candidate moves up.
        while True:
            waiting = [c for c in self._ranking[: self._limits.k] if self._may_call(c)]
            if not waiting:
                return None
            # The closest comes first; candidates from discredited sources alone come last.
            candidate = next((c for c in waiting if not self._is_doubtful(c)), waiting[0])
            if candidate.contact in self._called or self._has_share(candidate.contact):
                return candidate
            self._refused[CrowdedSubnet.__name__] += 1
            self._drop(candidate)

    def _may_call(self, candidate: Candidate) -> bool:
        if candidate.state not in (State.HEARD, State.KNOWN):
            return False
        return len(self._called) < self._limits.called or candidate.contact in self._called

    def _is_doubtful(self, candidate: Candidate) -> bool:
        sources = candidate.sources
        return bool(sources) and all(self._disproved_by_source[t] >= MAX_FALSE for t in sources)

    def _has_share(self, contact: Contact) -> bool:
        # A lookup calls a bounded number of addresses in a subnet. So the owner of a subnet cannot
        # fill the lookup, and liars cannot aim lookups at a subnet.
        subnet = self._policy.subnet_in_question(contact)
        if subnet is None:
            return True
        if self._subnets[subnet] >= self._policy.share_of_lookup:
            return False
        self._subnets[subnet] += 1
        return True

    # Outcomes

    def on_pong(self, query: Query, responder_id: bytes) -> None:
        """Note the answer to a PING; ``responder_id`` is the id in it."""
        candidate = self._answered(query, Step.PING, responder_id)
        if candidate is not None:
            candidate.state = State.KNOWN

    def on_response(
        self,
        query: Query,
        responder_id: bytes,
        nodes: Iterable[NodeInfo] = (),
        values: Sequence[str] = (),
    ) -> None:
        """Note the answer to an ASK: ``values`` if the responder holds the key, else ``nodes``.

        ``values`` are those that ``value.split_values`` accepted.
        """
        candidate = self._answered(query, Step.ASK, responder_id)
        if candidate is None:
            return
        candidate.state = State.ANSWERED
        if values and self.for_value:
            self._holders.append(candidate)
            self._values.update(dict.fromkeys(values, 1))

        # An answer holds at most the K closest nodes (interface 2.3: DHTFindNodeResponse).
        received = list(islice(nodes, self._limits.k + 1))
        if len(received) > self._limits.k:
            self._refused[TooManyContacts.__name__] += 1
        # An answer counts for one address of each node.
        for info in {bytes(info.node_id): info for info in received[: self._limits.k]}.values():
            try:
                contact = self._policy.admit(info, self._own_id, query.contact.ip)
            except DhtRefusal as refusal:
                self._refused[type(refusal).__name__] += 1
            else:
                self._consider(contact, candidate)

    def on_failure(self, query: Query) -> None:
        """Note that no valid answer came in time."""
        candidate = self._close(query, query.step)
        if candidate is not None:
            self._disproved(candidate)

    def _close(self, query: Query, step: Step) -> Candidate | None:
        # An outcome counts only for a query in flight, once, and while the lookup is not done.
        candidate = self._in_flight.pop(query, None) if query.step is step else None
        if candidate is None:
            self._refused[UnaskedAnswer.__name__] += 1
            return None
        return None if self.done else candidate

    def _answered(self, query: Query, step: Step, responder_id: bytes) -> Candidate | None:
        candidate = self._close(query, step)
        # The id in the answer is the id of the contact.
        if candidate is not None and responder_id != query.contact.node_id:
            self._refused[WrongResponder.__name__] += 1
            self._disproved(candidate)
            return None
        return candidate

    # Candidates

    def _consider(self, contact: Contact, source: Candidate | None) -> None:
        candidate = self._candidates.get(contact.node_id)
        if candidate is None:
            depth = 1 if source is None else source.depth + 1
            away = distance(contact.node_id, self.target)
            candidate = self._candidates[contact.node_id] = Candidate(away, depth)
        candidate.add_address(contact, source.contact.node_id if source else None)
        if candidate.state is State.DROPPED:
            self._try_next_address(candidate)

    def _try_next_address(self, candidate: Candidate) -> None:
        if candidate.next_address(self._is_verified):
            insort(self._ranking, candidate, key=lambda c: c.distance)

    def _disproved(self, candidate: Candidate) -> None:
        self._disproved_by_source.update(candidate.sources)
        self._drop(candidate)
        self._try_next_address(candidate)

    def _drop(self, candidate: Candidate) -> None:
        candidate.state = State.DROPPED
        self._ranking.remove(candidate)

    # The end

    def result(self) -> LookupResult:
        """The result so far; final when ``done``."""
        answered = [c for c in self._ranking if c.state is State.ANSWERED][: self._limits.k]
        found = self._holders or answered
        nearest = self._ranking[: self._limits.k]
        return LookupResult(
            closest=tuple(c.contact for c in answered),
            values=tuple(value for value, _ in self._values.most_common()),
            complete=bool(self._holders) or all(c.state is State.ANSWERED for c in nearest),
            hops=found[0].depth if found else 0,
            messages=self._messages,
            refused=self._refused.copy(),
        )
