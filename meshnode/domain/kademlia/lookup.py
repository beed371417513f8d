"""The iterative lookup, without IO (document, 4.3: DHTFindNode, DHTFindValue).

The caller sends what ``next_queries`` gives and reports each outcome; the lookup decides whom to
ask next. A contact told by another node is pinged before it is asked anything.

=========  ==========================================  =========  ================================
candidate  event                                       next       other effect
=========  ==========================================  =========  ================================
(none)     own table knows it, or an answer tells it   HEARD      KNOWN if verified before
HEARD      next_queries                                PINGING    a PING goes out
PINGING    on_pong, with its id                        KNOWN
PINGING    on_pong with another id, on_failure         DROPPED    HEARD again if it was told at
                                                                  another address as well
KNOWN      next_queries                                ASKING     an ASK goes out
ASKING     on_response, with its id                    ANSWERED   its contacts become candidates
ASKING     on_response with another id, on_failure     DROPPED    as above
DROPPED    an answer tells it at another address       HEARD
=========  ==========================================  =========  ================================

Terms: the *frontier* is the K candidates closest to the target that are not dropped. A *teller* is
a node whose answer held a contact; it is *discredited* when FALSE_MAX of those did not answer.

Invariants: at most ALPHA queries are in flight; at most CALLED_MAX addresses are called, each at
most twice (PING, ASK), so every lookup ends; only nodes that answered under their own id are in the
result, closest first, at most K, this node never among them. The lookup is done when the frontier
has answered, when enough holders gave values, or when the bound is reached.

A liar can add calls up to the bound. Alone it cannot hide an honest node: other addresses of an id
are tried besides the one that it told, and what only the discredited tell is tried last.
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
    Refused,
    TooManyContacts,
    UnaskedAnswer,
    WrongResponder,
)

FALSE_MAX = 5
"""An honest teller's contacts have rarely so many dead among them; what it tells is not lost."""


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
        self._false_tales: Counter[NodeId] = Counter()
        self._values: Counter[str] = Counter()
        self._holders: list[Candidate] = []
        self._messages = 0
        self._done = False
        self._refused: Counter[str] = Counter()
        for contact in seeds:
            self._consider(contact, teller=None)

    # What to send

    @property
    def done(self) -> bool:
        """Whether the result is final. Answers still to come are ignored then."""
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
        """Queries to send now, all at once; often none while others are in flight."""
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
        # An address of a crowded subnet is passed over for good, and the next one moves up.
        while True:
            waiting = [c for c in self._ranking[: self._limits.k] if self._may_call(c)]
            if not waiting:
                return None
            # The closest comes first, but what only the discredited tell comes last.
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
        tellers = candidate.tellers
        return bool(tellers) and all(self._false_tales[t] >= FALSE_MAX for t in tellers)

    def _has_share(self, contact: Contact) -> bool:
        # A lookup calls so many addresses of a subnet: neither can a subnet's owner fill it, nor
        # can liars aim it at a subnet.
        subnet = self._policy.subnet_in_question(contact)
        if subnet is None:
            return True
        if self._subnets[subnet] >= self._policy.share_of_lookup:
            return False
        self._subnets[subnet] += 1
        return True

    # What came of it

    def on_pong(self, query: Query, responder_id: bytes) -> None:
        """A PING was answered, by the node that calls itself ``responder_id``."""
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
        """An ASK was answered: with ``values`` if the responder holds the key, else with nodes.

        ``values`` are those that ``value.split_values`` accepted.
        """
        candidate = self._answered(query, Step.ASK, responder_id)
        if candidate is None:
            return
        candidate.state = State.ANSWERED
        if values and self.for_value:
            self._holders.append(candidate)
            self._values.update(dict.fromkeys(values, 1))

        # An answer holds at most the K closest nodes (document, 2.3: DHTFindNodeResponse).
        told = list(islice(nodes, self._limits.k + 1))
        if len(told) > self._limits.k:
            self._refused[TooManyContacts.__name__] += 1
        # It holds a node once: one answer has one say about where a node is.
        for info in {bytes(info.node_id): info for info in told[: self._limits.k]}.values():
            try:
                contact = self._policy.admit(info, self._own_id, query.contact.ip)
            except Refused as refusal:
                self._refused[type(refusal).__name__] += 1
            else:
                self._consider(contact, candidate)

    def on_failure(self, query: Query) -> None:
        """No answer came in time, or none that could be read."""
        candidate = self._landed(query, query.step)
        if candidate is not None:
            self._disproved(candidate)

    def _landed(self, query: Query, step: Step) -> Candidate | None:
        # Only what was asked can be answered, once, and while the lookup is open.
        candidate = self._in_flight.pop(query, None) if query.step is step else None
        if candidate is None:
            self._refused[UnaskedAnswer.__name__] += 1
            return None
        return None if self.done else candidate

    def _answered(self, query: Query, step: Step, responder_id: bytes) -> Candidate | None:
        candidate = self._landed(query, step)
        # The one who answers is the one who was called.
        if candidate is not None and responder_id != query.contact.node_id:
            self._refused[WrongResponder.__name__] += 1
            self._disproved(candidate)
            return None
        return candidate

    # Candidates

    def _consider(self, contact: Contact, teller: Candidate | None) -> None:
        candidate = self._candidates.get(contact.node_id)
        if candidate is None:
            depth = 1 if teller is None else teller.depth + 1
            away = distance(contact.node_id, self.target)
            candidate = self._candidates[contact.node_id] = Candidate(away, depth)
        candidate.told(contact, teller.contact.node_id if teller else None)
        if candidate.state is State.DROPPED:
            self._try_next_address(candidate)

    def _try_next_address(self, candidate: Candidate) -> None:
        if candidate.next_address(self._is_verified):
            insort(self._ranking, candidate, key=lambda c: c.distance)

    def _disproved(self, candidate: Candidate) -> None:
        self._false_tales.update(candidate.tellers)
        self._drop(candidate)
        self._try_next_address(candidate)

    def _drop(self, candidate: Candidate) -> None:
        candidate.state = State.DROPPED
        self._ranking.remove(candidate)

    # The end

    def result(self) -> LookupResult:
        """What was found so far; final when ``done``."""
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
