"""Rounds in any order of events: a state machine, and the table of states that it visits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import combinations
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from meshnode.domain.training import states
from meshnode.domain.training.agreement import WeightsVersion, agreement_rate
from meshnode.domain.training.replica import (
    Persisted,
    Replica,
    Report,
    State,
)
from meshnode.domain.transitions import IllegalTransition
from spec_tests.domain.training.simulation import START, TIMINGS, Network, SimulatedNode
from spec_tests.domain.transition_tables import documented, draw, pairs, run_until_all_happened


def acts(replica: Replica, now: float) -> bool:
    """Do what the service would do now; return whether that changed the replica."""
    before = replica.state, replica.report()
    if replica.fetch(now) is not None:
        replica.fetch_failed(now)
        return True
    if replica.begin(now):
        return False  # from here on the inner steps run on their own
    if replica.ready_to_apply(now) is not None:
        replica.applied("made", now)
    replica.settle(now)
    return (replica.state, replica.report()) != before


class TrainingMachine(RuleBasedStateMachine):
    """Faults in any order; once they stop, all nodes agree again."""

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
        """The agreement rate is below 1 while running nodes keep different weights."""
        if not hasattr(self, "network"):
            return
        hashes = {n.name: n.own.kept.model_hash for n in self.network.nodes if n.replica}
        if len(set(hashes.values())) > 1:
            assert agreement_rate(hashes) < 1.0

    @invariant()
    def nobody_diverges_silently(self) -> None:
        """Two nodes that heard each other in a round never both succeed with different weights."""
        nodes = self.network.nodes if hasattr(self, "network") else []
        # Only nodes that still keep those weights count: replaced weights do not diverge.
        kept = [n for n in nodes if n.success and n.success.weights == n.disk.kept]
        for one, other in combinations(kept, 2):
            mine, theirs = one.success, other.success
            assert mine
            assert theirs
            same_round = mine.weights.version == theirs.weights.version
            if same_round and other.name in mine.heard and one.name in theirs.heard:
                assert mine.weights == theirs.weights

    @invariant()
    def nothing_that_was_sent_is_counted_twice(self) -> None:
        """No weights include two contributions that were made with the same feedback."""
        for node in self.network.nodes if hasattr(self, "network") else []:
            assert not self.network.ancestry.counted_twice(node.disk.kept.model_hash)

    @invariant()
    def a_node_that_waits_until_it_is_due_misses_nothing(self) -> None:
        for node in self.network.nodes if hasattr(self, "network") else []:
            if node.replica is None or node.own.state is State.INNER:
                continue
            replica, now = deepcopy(node.replica), self.network.now
            while acts(replica, now):
                pass
            due = replica.due(now)
            before = now + TIMINGS.settle_s * 4 if due == math.inf else math.nextafter(due, 0.0)
            for later in ((now + before) / 2, before):
                assert not acts(replica, later), (replica, now, later, due)

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


@contextmanager
def transitions_taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    taken: set[tuple[str, str]] = set()
    enter = Replica._enter

    def watched(replica: Replica, state: State) -> None:
        before = replica.state
        enter(replica, state)
        taken.add((before.name, state.name))

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "_enter", watched)
        yield taken


def test_the_documented_table_is_the_one_in_use() -> None:
    assert draw(pairs(states.TRANSITIONS)) == draw(documented(states))


@pytest.mark.slow
def test_states_change_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with transitions_taken(monkeypatch) as taken:
        # Settings do not change in the simulation.
        node = SimulatedNode("a")
        node.start(0.0)
        assert node.own.begin(0.0)
        node.own.give_up()
        run_until_all_happened(TrainingMachine, states.TRANSITIONS, taken, steps=25)


def test_transitions_outside_the_table_are_refused() -> None:
    for state in State:
        for other in set(State) - states.TRANSITIONS[state]:
            replica = Replica("a", Persisted(START, 0), 0.0)
            replica.state = state
            with pytest.raises(IllegalTransition, match=f"{state.name} .* {other.name}"):
                replica._enter(other)
            assert replica.state is state


def test_a_report_names_the_newest_weights() -> None:
    pending = WeightsVersion(3, "c")
    assert Report(3, State.SETTLING, WeightsVersion(2, "b"), pending).latest == pending
    assert Report(3, State.INNER, WeightsVersion(2, "b")).latest == WeightsVersion(2, "b")
