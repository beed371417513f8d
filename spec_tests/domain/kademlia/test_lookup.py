"""The iterative lookup, step by step: bounded and parallel (interface 4.3)."""

from collections.abc import Iterator
from typing import Any

from meshnode.domain.kademlia.query import ALPHA, LookupLimits, Query, Step
from meshnode.domain.kademlia.refusals import (
    BadPort,
    CrowdedSubnet,
    InwardAddress,
    OwnId,
    TooManyContacts,
    WrongResponder,
)
from spec_tests.domain.kademlia.network import Info
from spec_tests.domain.kademlia.small_lookup import OWN, SMALL, lookup_of, near


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


def test_a_contact_named_by_an_unknown_node_is_pinged_before_it_is_asked() -> None:
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

    def thousand() -> Iterator[Any]:
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
