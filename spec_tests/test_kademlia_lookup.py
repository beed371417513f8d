"""The iterative lookup, step by step: bounded, parallel, unharmed by liars (document, 4.3)."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support_kademlia import Answer, Info, Liar, Network, contact_of, id_of, node_ids

from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import NodeId, distance
from meshnode.domain.kademlia.policy import ContactPolicy
from meshnode.domain.kademlia.query import ALPHA, CALLED_MAX, LookupLimits, Query, Step
from meshnode.domain.kademlia.refusals import (
    BadPort,
    CrowdedSubnet,
    InwardAddress,
    OwnId,
    TooManyContacts,
    UnaskedAnswer,
    WrongResponder,
)

OWN = id_of(0)
TARGET = id_of(1 << 100)
SMALL = LookupLimits(k=4, alpha=3, called=12, value_answers=2)


def lookup_of(*seeds: Contact, for_value: bool = False, limits: LookupLimits = SMALL) -> Lookup:
    """A lookup among verified seeds. Nobody else is verified."""
    return Lookup(TARGET, OWN, seeds, set(seeds).__contains__, for_value=for_value, limits=limits)


def near(number: int, ip: str = "127.0.0.1", port: int = 8000) -> Contact:
    """The contact at this distance from the target."""
    return contact_of((1 << 100) ^ number, ip, port)


class LookupMachine(RuleBasedStateMachine):
    """Any answers in any order, from anybody: every bound holds, and the result is sound."""

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
            # Whoever is asked has answered a ping with its id before.
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
        # Whatever has happened, it ends when what is out has come home.
        rounds = 0
        while not self.lookup.done:
            self.in_flight += self.lookup.next_queries()
            if self.in_flight:
                self.lookup.on_failure(self.in_flight.pop())
            rounds += 1
            assert rounds <= 4 * SMALL.called


TestLookup = LookupMachine.TestCase


def test_three_queries_go_out_at_once_and_more_only_when_one_lands() -> None:
    lookup = lookup_of(*(near(n) for n in range(1, 9)))
    first = lookup.next_queries()
    assert [query.contact for query in first] == [near(1), near(2), near(3)]
    assert ALPHA == 3
    assert lookup.next_queries() == []
    lookup.on_failure(first[1])
    assert [query.contact for query in lookup.next_queries()] == [near(4)]


def test_a_slow_node_holds_up_only_its_own_place() -> None:
    lookup = lookup_of(*(near(n) for n in range(1, 5)))
    slow, *others = lookup.next_queries()
    while others:
        query = others.pop()
        lookup.on_response(query, query.contact.node_id)
        others += lookup.next_queries()
    assert not lookup.done, "the slow one may still be the closest"
    lookup.on_response(slow, slow.contact.node_id)
    assert lookup.done
    assert lookup.result().closest == tuple(near(n) for n in range(1, 5))
    assert lookup.result().complete


def test_a_liar_with_ever_nearer_nodes_comes_to_an_end() -> None:
    lookup = lookup_of(near(1 << 90))
    nearest = 1 << 90
    called = set()
    while not lookup.done:
        for query in lookup.next_queries():
            called.add(query.contact)
            if query.step is Step.PING:
                lookup.on_pong(query, query.contact.node_id)
            else:
                told = [near(nearest - n) for n in range(1, SMALL.k + 1)]
                nearest -= SMALL.k
                lookup.on_response(query, query.contact.node_id, told)
    assert len(called) == SMALL.called
    assert not lookup.result().complete
    assert len(lookup.result().closest) <= SMALL.k


def test_what_a_stranger_told_is_pinged_before_it_is_asked() -> None:
    lookup = lookup_of(near(9))
    (ask,) = lookup.next_queries()
    assert ask.step is Step.ASK
    lookup.on_response(ask, near(9).node_id, [near(1)])
    (ping,) = lookup.next_queries()
    assert ping == Query(near(1), Step.PING)
    lookup.on_pong(ping, near(1).node_id)
    (ask,) = lookup.next_queries()
    assert ask == Query(near(1), Step.ASK)
    lookup.on_response(ask, near(1).node_id)
    assert lookup.result().closest == (near(1), near(9))
    assert lookup.result().hops == 2


def test_nobody_known_is_done_at_once() -> None:
    lookup = lookup_of()
    assert lookup.done
    assert lookup.next_queries() == []
    assert lookup.result().closest == ()
    assert lookup.result().hops == 0


def test_claims_that_break_a_rule_are_left_out_and_counted() -> None:
    lookup = lookup_of(near(9, "8.8.8.8"))
    (ask,) = lookup.next_queries()
    lookup.on_response(
        ask,
        ask.contact.node_id,
        [Info(OWN), Info(near(1).node_id, "127.0.0.1"), Info(near(2).node_id, "9.9.9.9", 0)],
    )
    assert lookup.done
    refused = lookup.result().refused
    assert refused == {c.__name__: 1 for c in (OwnId, InwardAddress, BadPort)}


def test_of_a_thousand_contacts_the_first_k_are_looked_at() -> None:
    lookup = lookup_of(near(9))
    (ask,) = lookup.next_queries()
    looked_at = []

    def thousand():  # type: ignore[no-untyped-def]
        for n in range(1000):
            looked_at.append(n)
            yield near(100 + n)

    lookup.on_response(ask, ask.contact.node_id, thousand())
    assert len(looked_at) <= SMALL.k + 1
    assert lookup.result().refused == {TooManyContacts.__name__: 1}
    called = set()
    while not lookup.done:
        for query in lookup.next_queries():
            called.add(query.contact)
            lookup.on_failure(query)
    assert called == {near(100 + n) for n in range(SMALL.k)}


def test_the_wrong_responder_counts_as_a_failure() -> None:
    lookup = lookup_of(near(9))
    (ask,) = lookup.next_queries()
    lookup.on_response(ask, near(8).node_id, [near(1)], ["value"])
    assert lookup.done
    assert lookup.result().closest == ()
    assert lookup.result().refused == {WrongResponder.__name__: 1}


def test_a_wrong_address_does_not_hide_an_honest_node() -> None:
    lookup = lookup_of(near(8), near(9))
    liar, honest = lookup.next_queries()
    lookup.on_response(liar, liar.contact.node_id, [near(1, port=6666)])
    lookup.on_response(honest, honest.contact.node_id, [near(1, port=8000)])
    (wrong,) = lookup.next_queries()
    assert wrong.contact.port == 6666
    lookup.on_failure(wrong)
    (right,) = lookup.next_queries()
    assert right.contact.port == 8000
    lookup.on_pong(right, right.contact.node_id)
    (ask,) = lookup.next_queries()
    lookup.on_response(ask, ask.contact.node_id)
    assert near(1) in lookup.result().closest


def test_one_subnet_is_called_only_so_often() -> None:
    limits = LookupLimits()
    seeds = [near(n, f"8.8.8.{n}") for n in range(1, 20)]
    other = near(99, "9.9.9.9")
    lookup = lookup_of(*seeds, other, limits=limits)
    called = []
    while not lookup.done:
        for query in lookup.next_queries():
            called.append(query.contact)
            lookup.on_response(query, query.contact.node_id)
    assert called == [*seeds[:10], other]
    assert lookup.result().refused == {CrowdedSubnet.__name__: 9}


def test_values_of_several_holders_are_merged_the_most_given_first() -> None:
    lookup = lookup_of(near(1), near(2), near(3), for_value=True)
    first, second, third = lookup.next_queries()
    lookup.on_response(first, first.contact.node_id, values=["a", "b"])
    assert not lookup.done
    lookup.on_response(second, second.contact.node_id, values=["b", "b"])
    assert lookup.done
    lookup.on_response(third, third.contact.node_id, values=["too late"])
    assert lookup.result().values == ("b", "a")
    assert lookup.result().hops == 1


def test_one_holder_is_enough_if_nobody_else_holds_it() -> None:
    lookup = lookup_of(near(1), near(2), near(3), for_value=True)
    for query in lookup.next_queries():
        values = ["a"] if query.contact == near(2) else []
        lookup.on_response(query, query.contact.node_id, values=values)
    assert lookup.done
    assert lookup.result().values == ("a",)


# Liars in a network. They answer every ping as themselves, so they count as verified.


def fakes_near(target: NodeId, random: Random, count: int = 20) -> list[Contact]:
    """Ids nearer than anybody's, at addresses where nobody is."""
    base = int.from_bytes(target)
    return [
        contact_of(base ^ random.randrange(1, 1 << 120), f"11.{random.randrange(255)}.{n}.1")
        for n in range(count)
    ]


def liars(random: Random, network: Network) -> dict[str, Liar]:
    me = network.fresh_contact()
    return {
        "loops": lambda target: Answer(me.node_id, network.alive[:1] * 20),
        "far nodes": lambda target: Answer(
            me.node_id, [contact_of(random.getrandbits(160), "12.1.1.1") for _ in range(20)]
        ),
        "fakes": lambda target: Answer(me.node_id, fakes_near(target, random)),
        "a thousand": lambda target: Answer(me.node_id, fakes_near(target, random, 1000)),
        "own id": lambda target: Answer(me.node_id, [Info(target)] * 20),
        "wrong responder": lambda target: Answer(random.randbytes(20), network.alive[:20]),
        "private": lambda target: Answer(
            me.node_id, [Info(random.randbytes(20), "10.0.0.1") for _ in range(20)]
        ),
    }


@pytest.mark.parametrize(
    "kind",
    ["loops", "far nodes", "fakes", "a thousand", "own id", "wrong responder", "private"],
)
def test_liars_do_no_harm(kind: str) -> None:
    random = Random(kind)
    network = Network(random)
    honest = network.grow(60)
    for _ in range(6):
        lie = liars(random, network)[kind]
        liar = network.add_liar(lambda target: Answer(b"", []))
        honest_id = liar.node_id

        def answer(target: NodeId, lie: Liar = lie, own: NodeId = honest_id) -> Answer:
            told = lie(target)
            responder = told.responder_id if kind == "wrong responder" else own
            return Answer(responder, told.nodes)

        network.liars[liar] = answer
        for contact in honest:
            network.ping(contact, liar)
    for _ in range(10):
        target = NodeId(random.randbytes(20))
        asker = random.choice(honest)
        network.called.clear()
        result = network.find(asker, target)
        others = [c for c in honest if c != asker]
        nearest = sorted(others, key=lambda c: distance(c.node_id, target))[:10]
        found = set(result.closest)
        assert set(nearest[:5]) <= found, result.refused
        assert len(set(network.called)) <= CALLED_MAX
        assert not any(contact.ip == "10.0.0.1" for contact in network.called)
        assert set(result.closest) <= set(honest) | set(network.liars)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 25), st.floats(0, 0.3))
def test_every_lookup_ends_within_its_bounds(seed: int, size: int, loss: float) -> None:
    random = Random(seed)
    network = Network(random, loss=loss)
    members = network.grow(size)
    for contact in random.sample(members, size // 3):
        network.kill(contact)
    if not network.alive:
        return
    network.called.clear()
    result = network.find(random.choice(network.alive), NodeId(random.randbytes(20)))
    assert result.messages <= 2 * CALLED_MAX
    assert set(result.closest) <= set(network.alive)
