"""Rounds with loss, duplication, reordering and crashes: nodes agree, or say that they do not.

The nodes are real ``Replica`` objects; a simulated network carries reports and contributions, and
weights are numbers: what a set makes of an anchor is a hash of both.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support_replica import START, TIMINGS, Network, SimulatedNode

from meshnode.domain.training.agreement import Weights, agreement_rate, winner
from meshnode.domain.training.contribution import Contributions, set_digest
from meshnode.domain.training.replica import (
    MOST_FAILURES,
    Persisted,
    Replica,
    Report,
    State,
)


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


def test_newcomers_in_numbers_do_not_undo_the_training() -> None:
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


def test_a_node_that_equivocates_counts_for_nobody() -> None:
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


def test_one_that_names_weights_which_nobody_has_keeps_nobody_from_training() -> None:
    node = SimulatedNode("a", slowness=1.0)
    node.start(0.0)
    lie = Report(900, State.WAITING, Weights(900, "nowhere"))
    node.own.heard("liar", lie, 0.0)
    assert not node.own.begin(0.0)
    for attempt in range(MOST_FAILURES):
        now = 10.0 * attempt
        assert node.own.fetch(now) == Weights(900, "nowhere")
        node.own.fetch_failed(now)
        node.own.heard("liar", lie, now + 1.0)
        assert node.own.begin(now + 1.0) == (attempt == MOST_FAILURES - 1)
    node.own.give_up()
    assert node.own.state is State.WAITING


def test_a_holder_that_has_gone_on_is_believed_again() -> None:
    node = SimulatedNode("late")
    node.start(0.0)
    for version in (5, 6):
        node.own.heard("a", Report(version, State.INNER, Weights(version, "w")), float(version))
        assert node.own.fetch(10.0 * version) == Weights(version, "w")
        node.own.fetch_failed(10.0 * version)
    assert node.own.known_peers() == {"a"}
    node.own.heard("a", Report(7, State.INNER, Weights(7, "w")), 70.0)
    assert node.own.fetch(70.0) == Weights(7, "w")
    node.own.adopted(Weights(7, "w"))


def in_exchange(*peers: Report) -> Replica:
    """A node that has contributed to round 6, and heard these."""
    node = SimulatedNode("a", disk=Persisted(Weights(5, "w"), 5), slowness=0.0)
    node.start(0.0)
    for name, report in zip("bcd", peers, strict=False):
        node.own.heard(name, report, 0.0)
    assert node.own.begin(0.0)
    node.own.inner_done("own", 0.0)
    return node.own


def test_the_exchange_waits_for_one_that_is_about_to_have_the_same_weights() -> None:
    replica = in_exchange(Report(5, State.SETTLING, Weights(4, "v"), Weights(5, "w")))
    assert replica.ready_to_apply(1.0) is None
    assert replica.ready_to_apply(TIMINGS.exchange_least_s) == {"a": "own"}


def test_the_exchange_waits_a_little_for_one_that_has_other_weights() -> None:
    replica = in_exchange(Report(0, State.FETCHING, START))
    assert replica.ready_to_apply(1.0) is None
    replica.heard("b", Report(5, State.WAITING, Weights(5, "w")), 1.0)
    assert replica.ready_to_apply(1.0) is None
    replica.heard("b", Report(0, State.WAITING, START), 2.0)
    assert replica.ready_to_apply(2.0) is None
    assert replica.ready_to_apply(TIMINGS.exchange_least_s) == {"a": "own"}


def test_one_that_the_others_have_left_behind_does_not_wait_for_them() -> None:
    replica = in_exchange()
    assert replica.ready_to_apply(0.0) == {"a": "own"}
    replica.applied("x", 0.0)
    replica.heard("b", Report(8, State.INNER, Weights(7, "y")), 1.0)
    assert replica.settle(1.0) is None
    assert replica.fetch(1.0) == Weights(7, "y")
    assert replica.tally.failed_syncs == 1


def test_one_that_was_left_out_fetches_what_the_others_made() -> None:
    replica = in_exchange(Report(6, State.INNER, Weights(5, "w")))
    ending = Report(6, State.SETTLING, Weights(5, "w"), Weights(6, "z"), {"b": ("1",)})
    for peer in "bc":
        replica.heard(peer, ending, 1.0)
    assert replica.ready_to_apply(TIMINGS.exchange_least_s + 1) is None
    for peer in "bc":
        replica.heard(peer, Report(7, State.INNER, Weights(6, "z")), 1.0)
    assert replica.fetch(6.0) == Weights(6, "z")
    assert (replica.tally.rounds, replica.tally.failed_syncs) == (1, 1)


def test_a_sync_that_left_somebody_out_who_contributed_is_no_success() -> None:
    contributed = {"a": ("own",), "b": ("1",)}
    for said, failed in (({}, 0), (contributed, 1)):
        replica = in_exchange(Report(6, State.EXCHANGE, Weights(5, "w"), None, said))
        now = TIMINGS.exchange_least_s
        assert replica.ready_to_apply(now) == {"a": "own"}
        replica.applied("x", now)
        assert replica.settle(now) == Weights(6, "x")
        assert (replica.tally.successful_syncs, replica.tally.failed_syncs) == (1 - failed, failed)


def test_no_liar_uses_the_round_numbers_up() -> None:
    node = SimulatedNode("a")
    node.start(0.0)
    node.own.heard("liar", Report(2**31 - 1, State.INNER, START), 0.0)
    node.work(0.0)
    assert node.own.round_id == 1
    reason = node.own.contributed("liar", 2**31 - 1, "start", "x")
    assert reason == "the round is too far ahead"
    assert node.own.round_id == 1


def test_a_lone_peer_moves_nobody_out_of_a_round_that_others_are_in() -> None:
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


def test_one_that_counted_far_alone_comes_back_to_what_the_others_count() -> None:
    node = SimulatedNode("a", disk=Persisted(Weights(5000, "own"), 5000))
    node.start(0.0)
    for peer in "bc":
        node.own.heard(peer, Report(8, State.INNER, Weights(7, "w")), 0.0)
    assert node.own.fetch(0.0) == Weights(7, "w")
    node.own.adopted(Weights(7, "w"))
    assert node.own.round_id == 7
    assert node.own.begin(1.0)
    assert node.own.round_id == 8


def test_what_is_refused_says_why() -> None:
    node = SimulatedNode("a")
    node.start(0.0)
    node.work(0.0)
    replica = node.own
    assert replica.contributed("b", 0, "start", "x") == "the round is over"
    assert replica.contributed("b", 1, "other", "x") == "made from other weights"
    assert replica.contributed("b", 1, "start", "x") is None
    assert replica.contributed("b", 1, "start", "x") == "known already"
    assert replica.contributed("b", 2, "start", "y") is None
    assert replica.round_id == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=1))
def test_the_winner_is_what_most_have(reports: list[tuple[int, str]]) -> None:
    weights = [Weights(version, model_hash) for version, model_hash in reports]
    best = winner(weights)
    assert best in weights
    trained = [one for one in weights if one.version] or weights
    assert all(weights.count(one) <= weights.count(best) for one in trained)
    assert winner(reversed(weights)) == best


def test_agreement_is_the_share_of_the_most_common_hash() -> None:
    assert agreement_rate({}) == 1.0
    assert agreement_rate({"a": "x", "b": "x", "c": "y"}) == pytest.approx(2 / 3)


class TrainingMachine(RuleBasedStateMachine):
    """Trouble in any order; afterwards, without trouble, all agree again."""

    @initialize(count=st.integers(2, 5), seed=st.integers(0, 2**16))
    def begin(self, count: int, seed: int) -> None:
        self.network = Network(count, Random(seed))
        self.spoken: dict[tuple[str, int], set[str]] = {}

    @rule(ticks=st.integers(1, 12))
    def time_passes(self, ticks: int) -> None:
        for _ in range(ticks):
            self.network.tick()
            self.listen()

    def listen(self) -> None:
        for node in self.network.nodes:
            if node.replica:
                own = node.own.contributions.known().get(node.name, ())
                self.spoken.setdefault((node.name, node.own.round_id), set()).update(own)

    @rule(loss=st.sampled_from([0.0, 0.2, 0.5, 0.9]))
    def weather(self, loss: float) -> None:
        self.network.loss = loss

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.network.nodes)).crash()

    @rule()
    def restart(self) -> None:
        for node in self.network.nodes:
            if node.replica is None:
                node.start(self.network.now)

    @rule(data=st.data())
    def partition(self, data: st.DataObject) -> None:
        names = [node.name for node in self.network.nodes]
        self.network.cut = set(data.draw(st.sets(st.sampled_from(names))))

    @precondition(lambda self: len(self.network.nodes) > 1)
    @rule(data=st.data())
    def straggle(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.network.nodes)).slowness = 30.0

    @invariant()
    def nobody_contributes_twice_to_a_round(self) -> None:
        assert all(len(digests) <= 1 for digests in getattr(self, "spoken", {}).values())

    @invariant()
    def disagreement_is_seen(self) -> None:
        """Nodes that kept different weights and hear each other do not call it agreement."""
        if not hasattr(self, "network"):
            return
        hashes = {n.name: n.own.kept.model_hash for n in self.network.nodes if n.replica}
        if len(set(hashes.values())) > 1:
            assert agreement_rate(hashes) < 1.0

    @invariant()
    def nobody_diverges_silently(self) -> None:
        """Of two that heard each other contribute, never both call other weights a success."""
        nodes = self.network.nodes if hasattr(self, "network") else []
        # As long as they keep them: what is given up for those of others has not diverged.
        kept = [n for n in nodes if n.success and n.success.weights == n.disk.kept]
        for one, other in combinations(kept, 2):
            mine, theirs = one.success, other.success
            assert mine
            assert theirs
            same_round = mine.weights.version == theirs.weights.version
            if same_round and other.name in mine.heard and one.name in theirs.heard:
                assert mine.weights == theirs.weights

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.network.settle_down()
            self.network.run_until_agreed()
            before = self.network.nodes[0].own.kept.version
            self.network.settle_down(80)
            self.network.run_until_agreed()
            assert self.network.nodes[0].own.kept.version > before
            self.nobody_diverges_silently()


TestTraining = TrainingMachine.TestCase
TestTraining.settings = settings(stateful_step_count=25, deadline=None)


def test_a_report_names_the_newest_weights() -> None:
    pending = Weights(3, "c")
    assert Report(3, State.SETTLING, Weights(2, "b"), pending).latest == pending
    assert Report(3, State.INNER, Weights(2, "b")).latest == Weights(2, "b")
