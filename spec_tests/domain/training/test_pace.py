"""A quorum and a time of grace: slow nodes cost the others nothing (decision 0245)."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.pace import Pace, quorum_of
from meshnode.domain.training.states import Report, State, Timings
from spec_tests.domain.training.simulation import Network

KEPT = WeightsVersion(5, "w")
TIMINGS = Timings(exchange_least_s=5.0, exchange_share=0.5, grace_share=0.1, slack_s=1.0)
LEFT = st.floats(0, 1e6)


def inner(left_s: float, round_id: int = 6) -> Report:
    return Report(round_id, State.INNER, KEPT, left_s=left_s)


def past(round_id: int = 6) -> Report:
    return Report(round_id, State.EXCHANGE, KEPT)


def pace_of(*reports: Report, now: float = 100.0) -> Pace:
    pace = Pace(TIMINGS, 0.0)
    for name, report in enumerate(reports):
        pace.heard(str(name), report, now)
    return pace


def test_a_quorum_is_half_of_the_nodes() -> None:
    assert [quorum_of(count) for count in range(1, 8)] == [1, 1, 2, 2, 3, 3, 4]


def test_a_node_ends_its_steps_with_a_quorum_of_the_others() -> None:
    pace = pace_of(inner(20.0), inner(30.0), inner(500.0))
    assert not pace.is_late(129.0, 2.0, 6, KEPT)
    assert pace.is_late(129.0, 2.1, 6, KEPT)


def test_one_quick_node_shortens_the_steps_of_no_others() -> None:
    pace = pace_of(past(), inner(500.0), inner(500.0))
    assert not pace.is_late(300.0, 100.0, 6, KEPT)


def test_a_node_that_is_past_its_steps_has_ended_when_that_was_heard_first() -> None:
    pace = pace_of(past())
    pace.heard("0", past(), 110.0)
    assert pace.end(1, 6, KEPT) == 100.0
    pace.heard("0", past(7), 120.0)
    assert pace.end(1, 6, KEPT) == math.inf
    assert pace.end(1, 7, KEPT) == 120.0


def test_what_others_say_of_other_rounds_and_weights_does_not_count() -> None:
    strange = replace(past(), kept=WeightsVersion(5, "x"))
    pace = pace_of(past(7), strange, Report(6, State.INNER, KEPT), Report(5, State.WAITING, KEPT))
    assert pace.end(1, 6, KEPT) == math.inf
    assert pace.quorum(KEPT) == 2


def test_a_lost_peer_is_waited_for_no_longer() -> None:
    pace = pace_of(inner(20.0), inner(30.0))
    pace.lost("0")
    assert pace.end(1, 6, KEPT) == 130.0
    assert pace.quorum(KEPT) == 1


def test_a_quick_node_waits_for_a_quorum_but_not_for_ever() -> None:
    pace = pace_of(inner(60.0), inner(500.0))
    pace.begin_exchange(100.0, 8.0)
    pace.note(["me"], 6, KEPT, 100.0)
    assert pace.grace_until == math.inf
    assert pace.deadline(6, KEPT) == 165.0
    pace.heard("0", inner(1e9), 101.0)
    pace.heard("1", inner(1e9), 101.0)
    assert pace.deadline(6, KEPT) == 100.0 + TIMINGS.exchange_most_s


def test_grace_begins_with_the_contributions_of_a_quorum() -> None:
    pace = pace_of(inner(60.0), inner(500.0))
    pace.begin_exchange(100.0, 80.0)
    pace.note(["me", "0"], 6, KEPT, 150.0)
    pace.note(["me", "0"], 6, KEPT, 155.0)
    assert pace.grace_until == 158.0
    assert pace.deadline(6, KEPT) == 158.0


def test_the_contribution_of_a_node_that_has_gone_on_is_of_no_quorum() -> None:
    pace = pace_of(past(7), inner(500.0))
    pace.begin_exchange(100.0, 80.0)
    pace.note(["me", "0"], 6, KEPT, 150.0)
    assert pace.grace_until == math.inf
    pace.note(["me", "0", "1"], 6, KEPT, 155.0)
    assert pace.grace_until == 163.0


@given(st.lists(LEFT, min_size=2, max_size=9), st.data())
def test_a_minority_of_liars_moves_the_end_no_further_than_honest_ends(
    honest: list[float], data: st.DataObject
) -> None:
    lies = data.draw(st.lists(st.floats(0, math.inf), max_size=len(honest) - 1))
    pace = pace_of(*map(inner, [*honest, *lies]), now=0.0)
    assert min(honest) <= pace.end(pace.quorum(KEPT), 6, KEPT) <= max(honest)


def trained(count: int, slowness: float) -> Network:
    """Ten minutes of nodes that take 40 steps a round, one second each; the last is slower."""
    network = Network(count, Random(count))
    for node in network.nodes:
        node.step_s = 1.0
    network.nodes[-1].step_s = slowness
    for node in network.nodes:
        node.slowness = 40 * node.step_s
    for _ in range(600):
        network.tick()
    return network


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("slowness", [7.0, 10.0])
def test_a_node_at_a_tenth_of_the_speed_costs_the_others_nothing(
    count: int, slowness: float
) -> None:
    """Rounds last as long as without it, its contributions are in them, and no sync fails."""
    version = trained(count, 1.0).nodes[0].own.kept.version
    network = trained(count, slowness)
    slow = network.nodes[-1]
    assert version >= 10
    assert slow.own.kept.version >= version - 1
    assert not any(node.own.tally.failed_syncs for node in network.nodes)
    made_of = network.ancestry.made_of[slow.own.kept.model_hash]
    own = [digest for digest in made_of if network.ancestry.maker_of[digest] == slow.name]
    assert len(own) == slow.own.kept.version


def test_a_node_that_never_ends_a_step_is_left_out_after_the_grace() -> None:
    network = trained(4, 1e6)
    quick = network.nodes[0].own.kept.version
    assert quick >= trained(4, 1.0).nodes[0].own.kept.version * 0.8
    assert not any(node.own.tally.failed_syncs for node in network.nodes[:3])


def test_nodes_that_say_nothing_of_their_ends_and_are_out_of_step_meet() -> None:
    """They missed each other for 200 s while one that had gone on counted for a quorum."""
    network = Network(3, Random(1))
    first, second, third = network.nodes
    first.slowness = second.slowness = 30.0
    network.cut = {first.name, second.name}
    for _ in range(4):
        network.tick()
    second.crash()
    third.slowness = 30.0
    for _ in range(12):
        network.tick()
    second.start(network.now)
    for _ in range(2):
        network.tick()
    network.settle_down(60)
    before = first.own.kept.version
    network.settle_down(80)
    assert first.own.kept.version > before
