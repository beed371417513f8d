"""The siege's arithmetic: what others took from a node, and what its honest clients kept."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from tools.siege.pace import Pace
from tools.siege.phase import Phase
from tools.siege.processor import Usage, taken
from tools.siege.report import faults, kept, remark
from tools.siege.trial import Outcome, Round

NOTHING = Usage(
    node=0.0, loop=0.0, siblings=0.0, attacker=0.0, attacker_waits=0.0, busy=0.0, waits={}
)
PHASE = Phase(
    requests=10.0,
    tokens=120.0,
    worst_wait_s=1.0,
    failed=0,
    wrong=0,
    health_p99_s=0.0,
    peak_memory=0,
    descriptors=0,
    node_cores=1.0,
    attacker_cores=0.0,
    attacker_waits=0.0,
    taken_cores=0.0,
    left_share=1.0,
    speed=1.0,
)


def phase(requests: float, left_share: float = 1.0, speed: float = 1.0) -> Phase:
    tokens = 12 * requests
    return replace(PHASE, requests=requests, tokens=tokens, left_share=left_share, speed=speed)


def outcome(*rounds: tuple[Phase, Phase, Phase], sources: int = 1) -> Outcome:
    return Outcome(
        sources=sources,
        rounds=tuple(Round(*phases, recovered_s=1.0) for phases in rounds),
        ended="",
        attack_ended="",
        charged_as_answered=True,
        log="",
    )


@pytest.mark.parametrize(
    ("node", "busy", "waited", "expected"),
    [
        pytest.param(4.0, 4.0, 0.0, 0.0, id="alone"),
        pytest.param(2.0, 4.0, 2.0, 2.0, id="computes all the time beside another program"),
        pytest.param(0.1, 4.0, 0.2, 0.2, id="has little to do"),
        pytest.param(4.0, 4.0, 3.0, 0.0, id="its threads wait for each other"),
        pytest.param(2.0, 1.9, 1.0, 0.0, id="the counters differ by a tick"),
    ],
)
def test_others_take_what_they_use_while_the_node_waits(
    node: float, busy: float, waited: float, expected: float
) -> None:
    before = replace(NOTHING, waits={7: 1.0})
    now = replace(NOTHING, node=node, busy=busy, waits={7: 1.0 + waited / 2, 8: waited / 2})
    assert taken(before, now) == pytest.approx(expected)


def test_further_nodes_of_a_trial_are_no_others() -> None:
    now = replace(NOTHING, node=1.0, siblings=1.0, busy=4.0, waits={7: 3.0})
    assert taken(NOTHING, now) == pytest.approx(2.0)


def test_the_load_of_others_cancels() -> None:
    """Others come, and take half of the machine during the attack."""
    assert kept(outcome((phase(10), phase(4.5, 0.5), phase(10)))) == pytest.approx(0.9)


def test_a_slower_processor_cancels() -> None:
    """Another guest of the hardware slows the node's processor down during the attack."""
    assert kept(outcome((phase(10), phase(4.5, speed=0.5), phase(10)))) == pytest.approx(0.9)


def test_a_drift_of_the_machine_cancels() -> None:
    found = outcome((phase(10), phase(8.1), phase(8)), (phase(8), phase(6.3), phase(6)))
    assert kept(found) == pytest.approx(0.9)
    assert faults(found) == []
    assert "differed by 50%" in remark(found)


def test_an_attack_that_could_not_work_is_said_to_be_weak() -> None:
    weak = replace(phase(9), attacker_cores=0.1, attacker_waits=0.3)
    assert "had 25% of the time" in remark(outcome((phase(10), weak, phase(10))))
    strong = replace(weak, attacker_cores=0.4)
    assert not remark(outcome((phase(10), strong, phase(10))))


def test_a_rate_below_the_bar_is_a_fault() -> None:
    rounds = (phase(10), phase(7.9), phase(10))
    assert faults(outcome(rounds)) == ["honest clients kept 79%, not 80%"]
    assert faults(outcome(rounds, sources=2)) == []


def test_whoever_served_nobody_before_has_kept_nothing() -> None:
    assert kept(outcome((phase(0), phase(1), phase(0)))) == 0.0


def test_the_speed_is_measured_and_compared_with_the_first() -> None:
    with Pace(os.sched_getaffinity(0)) as pace:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and len(pace) < 3:
            time.sleep(0.01)
        assert pace.speed(60) == 1.0
        assert 0.1 < pace.speed(60) < 10
