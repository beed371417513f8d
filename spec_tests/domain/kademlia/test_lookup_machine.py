"""The iterative lookup under any answers in any order: its bounds hold (interface 4.3)."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import distance
from meshnode.domain.kademlia.policy import ContactPolicy
from meshnode.domain.kademlia.query import Query, Step
from meshnode.domain.kademlia.refusals import (
    UnaskedAnswer,
)
from spec_tests.domain.kademlia.network import Info, node_ids
from spec_tests.domain.kademlia.small_lookup import OWN, SMALL, TARGET, near


class LookupMachine(RuleBasedStateMachine):
    """Any node may give any answer in any order: every bound holds, and the result is valid."""

    infos = st.one_of(
        st.builds(near, st.integers(0, 40), port=st.integers(8000, 8002)),
        st.builds(near, st.integers(0, 40), st.sampled_from(["8.8.8.8", "8.8.8.9", "9.9.9.9"])),
        st.builds(Info, st.binary(max_size=25), st.sampled_from(["127.0.0.1", "x", "0.0.0.0"])),  # noqa: S104
        st.just(Info(OWN)),
        st.builds(Info, node_ids, port=st.integers(-5, 70000)),
    )

    @initialize(
        seeds=st.lists(st.integers(1, 40), max_size=6, unique=True), for_value=st.booleans()
    )
    def start(self, seeds: list[int], for_value: bool) -> None:
        self.seeds = [near(n) for n in seeds]
        self.for_value = for_value
        self.policy = ContactPolicy(share_of_lookup=2)
        self.lookup = Lookup(
            TARGET,
            OWN,
            self.seeds,
            set(self.seeds).__contains__,
            for_value=for_value,
            policy=self.policy,
            limits=SMALL,
        )
        self.in_flight: list[Query] = []
        self.sent: Counter[Query] = Counter()
        self.verified = set(self.seeds)
        self.answered: set[Contact] = set()
        self.was_done = False

    @rule()
    def send(self) -> None:
        queries = self.lookup.next_queries()
        for query in queries:
            assert not self.was_done
            # Every contact that is asked has already answered a ping with its id.
            assert query.step is Step.PING or query.contact in self.verified
        self.in_flight += queries
        self.sent.update(queries)

    def land(self, data: st.DataObject) -> Query:
        query = data.draw(st.sampled_from(self.in_flight))
        self.in_flight.remove(query)
        return query

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), responder=st.sampled_from(["itself", "another", "nonsense"]))
    def answer(self, data: st.DataObject, responder: str) -> None:
        query = self.land(data)
        ids = {"itself": query.contact.node_id, "another": near(99).node_id, "nonsense": b""}
        if query.step is Step.PING:
            self.lookup.on_pong(query, ids[responder])
        else:
            nodes = data.draw(st.lists(self.infos, max_size=8))
            values = data.draw(st.lists(st.sampled_from("abc"), max_size=2, unique=True))
            self.lookup.on_response(query, ids[responder], nodes, values)
        if responder == "itself":
            self.verified.add(query.contact)
            if query.step is Step.ASK:
                self.answered.add(query.contact)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.lookup.on_failure(self.land(data))

    @rule(contact=st.builds(near, st.integers(0, 40)), step=st.sampled_from(Step))
    def unasked(self, contact: Contact, step: Step) -> None:
        query = Query(contact, step)
        if query not in self.in_flight:
            before = self.lookup.result()
            self.lookup.on_pong(query, contact.node_id)
            self.lookup.on_response(query, contact.node_id, [near(0)], ["spoofed"])
            self.lookup.on_failure(query)
            after = self.lookup.result()
            assert (before.closest, before.values) == (after.closest, after.values)
            assert after.refused[UnaskedAnswer.__name__] > before.refused[UnaskedAnswer.__name__]

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "lookup"):
            return
        assert len(self.in_flight) <= SMALL.alpha
        assert all(count == 1 for count in self.sent.values())
        addresses = {query.contact for query in self.sent}
        assert len(addresses) <= SMALL.called
        subnets = Counter(self.policy.subnet_in_question(contact) for contact in addresses)
        assert all(n <= 2 for subnet, n in subnets.items() if subnet is not None)

    @invariant()
    def result_is_sound(self) -> None:
        if not hasattr(self, "lookup"):
            return
        result = self.lookup.result()
        assert len(result.closest) <= SMALL.k
        assert set(result.closest) <= self.answered
        assert OWN not in {contact.node_id for contact in result.closest}
        distances = [distance(contact.node_id, TARGET) for contact in result.closest]
        assert distances == sorted(set(distances))
        assert result.messages == self.sent.total()
        assert not result.values or self.for_value

    @invariant()
    def it_goes_on_until_it_is_done_and_stays_done(self) -> None:
        if not hasattr(self, "lookup"):
            return
        assert self.lookup.done or not self.was_done
        self.was_done = self.lookup.done
        if not self.was_done and not self.in_flight:
            queries = self.lookup.next_queries()
            assert queries or self.lookup.done
            self.in_flight += queries
            self.sent.update(queries)

    def teardown(self) -> None:
        if not hasattr(self, "lookup"):
            return
        # In every case the lookup ends once all its queries are answered.
        rounds = 0
        while not self.lookup.done:
            self.in_flight += self.lookup.next_queries()
            if self.in_flight:
                self.lookup.on_failure(self.in_flight.pop())
            rounds += 1
            assert rounds <= 4 * SMALL.called


TestLookup = LookupMachine.TestCase
