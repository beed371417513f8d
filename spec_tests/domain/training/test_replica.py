"""Rounds with loss, duplication, reordering and crashes: nodes agree or report that they do not.

The nodes are real ``Replica`` objects; a simulated network carries reports and contributions, and
weights are only hashes: those after a round are a hash of the anchor and the set of contributions.
"""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.training.agreement import WeightsVersion, agreement_rate, winner
from meshnode.domain.training.contribution import Contributions, set_digest
from meshnode.domain.training.replica import Persisted, Replica, Report, State
from meshnode.domain.training.trust import MAX_FAILURES
from spec_tests.domain.training.simulation import START, TIMINGS, Network, SimulatedNode


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_rounds_succeed_and_all_have_the_same_weights(count: int) -> None:
    network = Network(count, Random(count))
    for _ in range(200):
        network.tick()
    network.run_until_agreed()
    for node in network.nodes:
        assert node.own.kept.version >= 8
        assert node.own.tally.failed_syncs == 0
        assert node.own.tally.successful_syncs >= 8


def test_a_late_joiner_agrees_within_one_round() -> None:
    network = Network(4, Random(5))
    joiner = network.nodes[3]
    joiner.crash()
    for _ in range(100):
        network.tick()
    version = max(node.own.kept.version for node in network.nodes[:3])
    assert version > 3
    joiner.disk = Persisted(START, 0)
    joiner.start(network.now)
    while joiner.own.kept.version == 0:
        network.tick()
    network.run_until_agreed()
    assert joiner.own.tally.adopted == 1
    assert joiner.own.kept.version <= version + 3


def test_many_newcomers_do_not_undo_the_training() -> None:
    network = Network(5, Random(6))
    for node in network.nodes[2:]:
        node.crash()
    for _ in range(60):
        network.tick()
    version = network.nodes[0].own.kept.version
    assert version > 2
    network.settle_down()
    network.run_until_agreed()
    assert network.nodes[0].own.kept.version > version


def test_a_partition_that_heals_agrees_again() -> None:
    network = Network(5, Random(7))
    for _ in range(30):
        network.tick()
    network.cut = {"node-0", "node-1"}
    for _ in range(60):
        network.tick()
    assert len(network.hashes()) > 1
    network.settle_down()
    network.run_until_agreed()


def test_a_node_that_equivocates_is_counted_by_none() -> None:
    contributions = Contributions()
    assert contributions.add("a", "1")
    assert contributions.add("b", "2")
    assert contributions.add("b", "3")
    assert not contributions.add("b", "4")
    assert not contributions.add("a", "1")
    assert contributions.included() == {"a": "1"}
    assert contributions.known() == {"a": ("1",), "b": ("2", "3")}
    assert contributions.missing_at({"a": ("1",), "b": ("2",)}) == [("b", "3")]


@given(st.permutations([("a", "1"), ("b", "2"), ("c", "3"), ("c", "4")]))
def test_the_set_does_not_depend_on_the_order_of_arrival(order: list[tuple[str, str]]) -> None:
    contributions = Contributions()
    for node, digest in order:
        contributions.add(node, digest)
    assert list(contributions.included()) == ["a", "b"]
    assert set_digest(contributions.included()) == set_digest({"b": "2", "a": "1"})


def test_a_crash_after_contributing_sends_the_same_again() -> None:
    node = SimulatedNode("a", slowness=1.0)
    slow_peer = Report(1, State.INNER, START)
    node.start(0.0)
    node.own.heard("b", slow_peer, 0.0)
    node.work(0.0)
    node.work(2.0)
    assert node.own.state is State.EXCHANGE
    sent = node.own.contributions.known()
    node.crash()
    node.start(3.0)
    node.own.heard("b", slow_peer, 3.0)
    node.work(3.0)
    assert node.own.state is State.EXCHANGE
    assert node.own.contributions.known() == sent


def test_a_node_that_names_unknown_weights_keeps_no_other_from_training() -> None:
    node = SimulatedNode("a", slowness=1.0)
    node.start(0.0)
    lie = Report(900, State.WAITING, WeightsVersion(900, "nowhere"))
    node.own.heard("liar", lie, 0.0)
    assert not node.own.begin(0.0)
    for attempt in range(MAX_FAILURES):
        now = 10.0 * attempt
        assert node.own.fetch(now) == WeightsVersion(900, "nowhere")
        node.own.fetch_failed(now)
        node.own.heard("liar", lie, now + 1.0)
        assert node.own.begin(now + 1.0) == (attempt == MAX_FAILURES - 1)
    node.own.give_up()
    assert node.own.state is State.WAITING


def test_a_holder_that_has_gone_on_is_believed_again() -> None:
    node = SimulatedNode("late")
    node.start(0.0)
    for version in (5, 6):
        node.own.heard(
            "a", Report(version, State.INNER, WeightsVersion(version, "w")), float(version)
        )
        assert node.own.fetch(10.0 * version) == WeightsVersion(version, "w")
        node.own.fetch_failed(10.0 * version)
    assert node.own.known_peers() == {"a"}
    node.own.heard("a", Report(7, State.INNER, WeightsVersion(7, "w")), 70.0)
    assert node.own.fetch(70.0) == WeightsVersion(7, "w")
    node.own.adopted(WeightsVersion(7, "w"))


def at_work(round_id: int) -> Report:
    """A peer's report from the steps of a round that begins with version 5."""
    return Report(round_id, State.INNER, WeightsVersion(5, "w"))


def test_a_crash_in_the_middle_of_the_steps_leaves_no_round() -> None:
    node = SimulatedNode("a", disk=Persisted(WeightsVersion(5, "w"), 5))
    node.start(0.0)
    node.work(0.0)
    assert node.own.state is State.INNER
    assert node.disk.round_id == 6
    node.crash()
    node.start(1.0)
    for peer in "bc":
        node.own.heard(peer, at_work(6), 1.0)
    assert node.own.begin(1.0)
    assert node.own.round_id == 6
    # Others may have gone on meanwhile.
    node.crash()
    node.start(2.0)
    node.own.heard("b", at_work(7), 2.0)
    assert node.own.begin(2.0)
    assert node.own.round_id == 7


@pytest.mark.parametrize("last", [6, None])
def test_nobody_contributes_to_a_round_twice(last: int | None) -> None:
    # Its contribution was dropped with the weights that it was made from. A folder of an earlier
    # version does not say so.
    disk = Persisted(WeightsVersion(5, "w"), 6, last=last)
    node = SimulatedNode("a", disk=disk)
    node.start(0.0)
    node.own.heard("b", at_work(6), 0.0)
    assert node.own.begin(0.0)
    assert node.own.round_id == 7


def in_exchange(*peers: Report) -> Replica:
    """A replica that has contributed to round 6 and has heard the reports of ``peers``."""
    node = SimulatedNode("a", disk=Persisted(WeightsVersion(5, "w"), 5), slowness=0.0)
    node.start(0.0)
    for name, report in zip("bcd", peers, strict=False):
        node.own.heard(name, report, 0.0)
    assert node.own.begin(0.0)
    node.own.inner_done("own", 0.0)
    return node.own


def test_the_exchange_waits_for_one_that_is_about_to_have_the_same_weights() -> None:
    replica = in_exchange(Report(5, State.SETTLING, WeightsVersion(4, "v"), WeightsVersion(5, "w")))
    assert replica.ready_to_apply(1.0) is None
    assert replica.ready_to_apply(TIMINGS.exchange_least_s) == {"a": "own"}


def test_the_exchange_waits_a_little_for_one_that_has_other_weights() -> None:
    replica = in_exchange(Report(0, State.FETCHING, START))
    assert replica.ready_to_apply(1.0) is None
    replica.heard("b", Report(5, State.WAITING, WeightsVersion(5, "w")), 1.0)
    assert replica.ready_to_apply(1.0) is None
    replica.heard("b", Report(0, State.WAITING, START), 2.0)
    assert replica.ready_to_apply(2.0) is None
    assert replica.ready_to_apply(TIMINGS.exchange_least_s) == {"a": "own"}


def test_the_deadlines_of_an_exchange() -> None:
    node = SimulatedNode("a", disk=Persisted(WeightsVersion(5, "w"), 5))
    node.start(0.0)
    node.own.heard("b", Report(6, State.INNER, WeightsVersion(5, "w")), 0.0)
    assert node.own.begin(0.0)
    assert node.own.due(0.0) == math.inf
    node.own.inner_done("own", 20.0)
    joiners_until, deadline = 20.0 + TIMINGS.exchange_least_s, 20.0 + 20.0 * TIMINGS.exchange_share
    left_out_until = deadline + TIMINGS.settle_s
    assert node.own.due(20.0) == joiners_until
    assert node.own.due(joiners_until) == deadline
    assert node.own.due(deadline) == left_out_until
    ending = Report(
        6, State.SETTLING, WeightsVersion(5, "w"), WeightsVersion(6, "z"), {"b": ("1",)}
    )
    for peer in "bc":
        node.own.heard(peer, ending, deadline)
    assert node.own.ready_to_apply(math.nextafter(left_out_until, 0.0)) is None
    assert node.own.ready_to_apply(left_out_until) == {"a": "own"}
    node.own.applied("x", left_out_until)
    assert node.own.due(left_out_until) == left_out_until + TIMINGS.settle_s


def test_one_that_the_others_have_left_behind_does_not_wait_for_them() -> None:
    replica = in_exchange()
    assert replica.ready_to_apply(0.0) == {"a": "own"}
    replica.applied("x", 0.0)
    replica.heard("b", Report(8, State.INNER, WeightsVersion(7, "y")), 1.0)
    assert replica.settle(1.0) is None
    assert replica.fetch(1.0) == WeightsVersion(7, "y")
    assert replica.tally.failed_syncs == 1


def test_a_node_that_was_left_out_fetches_the_others_weights() -> None:
    replica = in_exchange(Report(6, State.INNER, WeightsVersion(5, "w")))
    ending = Report(
        6, State.SETTLING, WeightsVersion(5, "w"), WeightsVersion(6, "z"), {"b": ("1",)}
    )
    for peer in "bc":
        replica.heard(peer, ending, 1.0)
    assert replica.ready_to_apply(TIMINGS.exchange_least_s + 1) is None
    for peer in "bc":
        replica.heard(peer, Report(7, State.INNER, WeightsVersion(6, "z")), 1.0)
    assert replica.fetch(6.0) == WeightsVersion(6, "z")
    assert (replica.tally.rounds, replica.tally.failed_syncs) == (1, 1)


def test_a_sync_that_left_out_a_contributor_is_not_a_success() -> None:
    contributed = {"a": ("own",), "b": ("1",)}
    for said, failed in (({}, 0), (contributed, 1)):
        replica = in_exchange(Report(6, State.EXCHANGE, WeightsVersion(5, "w"), None, said))
        now = TIMINGS.exchange_least_s
        assert replica.ready_to_apply(now) == {"a": "own"}
        replica.applied("x", now)
        assert replica.settle(now) == WeightsVersion(6, "x")
        assert (replica.tally.successful_syncs, replica.tally.failed_syncs) == (1 - failed, failed)


def test_a_liar_cannot_use_up_the_round_numbers() -> None:
    node = SimulatedNode("a")
    node.start(0.0)
    node.own.heard("liar", Report(2**31 - 1, State.INNER, START), 0.0)
    node.work(0.0)
    assert node.own.round_id == 1
    reason = node.own.contributed("liar", 2**31 - 1, "start", "x")
    assert reason == "the round is too far ahead"
    assert node.own.round_id == 1


def test_a_single_peer_cannot_end_the_round_of_the_others() -> None:
    node = SimulatedNode("a")
    node.start(0.0)
    node.work(0.0)
    for peer in "bc":
        node.own.heard(peer, Report(1, State.INNER, START), 0.0)
    assert node.own.contributed("b", 1, "start", "x") is None
    node.own.heard("liar", Report(2, State.EXCHANGE, START), 0.0)
    assert node.own.contributed("liar", 2, "start", "y") == "the round has not begun here"
    assert node.own.contributions.included() == {"b": "x"}
    for peer in "bc":
        node.own.heard(peer, Report(2, State.EXCHANGE, START), 0.0)
    assert node.own.contributed("liar", 2, "start", "y") is None
    assert node.own.round_id == 2


def test_a_node_that_counted_rounds_alone_returns_to_the_others_round() -> None:
    node = SimulatedNode("a", disk=Persisted(WeightsVersion(5000, "own"), 5000))
    node.start(0.0)
    for peer in "bc":
        node.own.heard(peer, Report(8, State.INNER, WeightsVersion(7, "w")), 0.0)
    assert node.own.fetch(0.0) == WeightsVersion(7, "w")
    node.own.adopted(WeightsVersion(7, "w"))
    assert node.own.round_id == 7
    assert node.own.begin(1.0)
    assert node.own.round_id == 8


def test_every_refusal_has_a_reason() -> None:
    node = SimulatedNode("a")
    node.start(0.0)
    node.work(0.0)
    replica = node.own
    assert replica.contributed("b", 0, "start", "x") == "the round is over"
    assert (
        replica.contributed("b", 1, "other", "x") == "the contribution was made from other weights"
    )
    assert replica.contributed("b", 1, "start", "x") is None
    assert replica.contributed("b", 1, "start", "x") == "the contribution is known already"
    assert replica.contributed("b", 2, "start", "y") is None
    assert replica.round_id == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=1))
def test_the_most_common_version_wins(reports: list[tuple[int, str]]) -> None:
    weights = [WeightsVersion(version, model_hash) for version, model_hash in reports]
    best = winner(weights)
    assert best in weights
    trained = [one for one in weights if one.version] or weights
    assert all(weights.count(one) <= weights.count(best) for one in trained)
    assert winner(reversed(weights)) == best


def test_agreement_is_the_share_of_the_most_common_hash() -> None:
    assert agreement_rate({}) == 1.0
    assert agreement_rate({"a": "x", "b": "x", "c": "y"}) == pytest.approx(2 / 3)
