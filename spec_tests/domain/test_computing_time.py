"""Decisions 0132, 0142 and 0208: who computes next, and who has used more than others."""

from __future__ import annotations

import pytest

from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.shares import (
    RECENT_S,
    SLACK_S,
    ComputingTime,
    Requester,
)
from spec_tests.domain.batches import ALICE, ANY, BOB, FREE, NEAR


def test_computing_time_is_shared_by_weight() -> None:
    shares = ComputingTime()
    used = dict.fromkeys([ALICE, NEAR, ANY], 0.0)
    for _ in range(4000):
        held_back = shares.held_back(used)
        assert ALICE not in held_back
        for requester in set(used) - held_back:
            shares.spend([requester], 0.01)
            used[requester] += 0.01
    whole = sum(used.values())
    assert used[ALICE] / whole == pytest.approx(0.8, abs=0.01)
    assert used[NEAR] / whole == pytest.approx(0.15, abs=0.01)
    assert used[ANY] / whole == pytest.approx(0.05, abs=0.01)


def test_accounts_share_the_time_equally_however_many_requests_each_has() -> None:
    shares, steps = ComputingTime(), dict.fromkeys([ALICE, BOB], 0)
    used = dict.fromkeys([ALICE, BOB], 0.0)
    for _ in range(4000):
        rows = {ALICE: 15, BOB: 1}
        taking = [one for one in rows if one not in shares.held_back(rows)]
        computed = [one for one in taking for _ in range(rows[one])]
        shares.spend(computed, 0.001 * len(computed))
        for one in taking:
            steps[one] += 1
            used[one] += 0.001 * rows[one]
    assert steps[BOB] == 4000
    assert used[ALICE] == pytest.approx(used[BOB], abs=0.1)


def test_equals_compute_in_one_step() -> None:
    shares = ComputingTime()
    for _ in range(100):
        assert shares.held_back({ALICE, BOB}) == frozenset()
        shares.spend([ALICE, BOB], 1.0)


def test_who_computes_alone_is_never_held_back_and_owes_nothing_for_it() -> None:
    shares = ComputingTime()
    for _ in range(100):
        assert shares.held_back({ANY}) == frozenset()
        shares.spend([ANY], 1.0)
    assert shares.held_back({ALICE}) == frozenset()
    shares.spend([ALICE], 1.0)
    steps = 0
    while ANY in shares.held_back({ALICE, ANY}):
        shares.spend([ALICE], 1.0)
        steps += 1
    assert steps <= 16


def test_resting_between_two_steps_saves_up_nothing() -> None:
    shares = ComputingTime()
    used = 0.0
    for step in range(2000):
        working = {ALICE, NEAR} if step % 2 else {ALICE}
        for requester in working - shares.held_back(working):
            shares.spend([requester], 1.0)
            used += requester is NEAR
    assert used <= 2000 * 3 / 16 + 1


def test_clocks_of_those_who_left_are_forgotten() -> None:
    shares = ComputingTime()
    for number in range(100):
        one = Requester(FREE, str(number))
        assert shares.held_back({one}) == frozenset()
        shares.spend([one], 1.0)
    assert len(shares._requesters[FREE]._clocks) <= 2


def test_who_wastes_computing_time_waits_for_as_much() -> None:
    shares = ComputingTime()
    shares.held_back({ALICE, BOB})
    shares.owe(ALICE, 1.0)
    steps = 0
    while ALICE in shares.held_back({ALICE, BOB}):
        shares.spend([BOB], 0.01)
        steps += 1
    assert steps == pytest.approx(95, abs=2)


def test_who_is_ahead_of_somebody_expected_back_is_told_so() -> None:
    shares = ComputingTime()
    shares.held_back({ALICE, BOB}, 0.0)
    shares.spend([BOB], 2 * SLACK_S)
    shares.held_back({ALICE, BOB}, 0.0)
    assert not shares.is_ahead
    # Alice's answer is complete, and she may ask again.
    assert shares.held_back({BOB}, 1.0) == frozenset()
    assert shares.is_ahead
    shares.held_back({BOB}, 1.0 + RECENT_S)
    assert not shares.is_ahead


def test_who_is_not_ahead_computes_while_others_are_away() -> None:
    shares = ComputingTime()
    shares.held_back({ALICE, BOB}, 0.0)
    shares.spend([BOB], SLACK_S / 2)
    shares.held_back({BOB}, 1.0)
    assert not shares.is_ahead


def test_lower_standings_are_ahead_of_higher_ones_that_are_expected_back() -> None:
    shares = ComputingTime()
    shares.held_back({ALICE, ANY}, 0.0)
    shares.held_back({ANY}, 1.0)
    assert shares.is_ahead
    shares.held_back({ANY}, 1.0 + RECENT_S)
    assert not shares.is_ahead


@pytest.mark.parametrize(("sessions", "computes"), [(1, True), (2, False)])
def test_only_a_step_for_several_sessions_waits_for_the_event_loop(
    sessions: int, computes: bool
) -> None:
    scheduler: Scheduler[str] = Scheduler(EngineLimits())
    scheduler.submit("a", 4, 1, ALICE)
    for number in range(sessions):
        scheduler.submit(f"b{number}", 4, 1, BOB)
    scheduler.admit()
    assert scheduler.turn(0.0)
    scheduler.spend([BOB], 2 * SLACK_S)
    assert scheduler.turn(0.0)
    scheduler.leave("a")
    assert scheduler.turn(0.1) == computes
    assert scheduler.turn(0.1 + RECENT_S)


def test_a_step_that_fills_a_gap_is_short_and_all_take_turns_in_it() -> None:
    scheduler: Scheduler[int] = Scheduler(EngineLimits())
    for key in range(10):
        scheduler.submit(key, 1, 1, ALICE if key else BOB)
    scheduler.admit()
    while (chunk := scheduler.next_chunk()) is not None:
        scheduler.prefilled(chunk)
    assert scheduler.turn()
    assert len(scheduler.decoding()) == 10
    scheduler.spend([ALICE], 2 * SLACK_S)
    scheduler.leave(0)
    assert not scheduler.turn()
    steps = [scheduler.decoding() for _ in range(5)]
    assert {len(step) for step in steps} == {4}
    assert {key for step in steps[:3] for key in step} == set(range(1, 10))
    assert scheduler.turn(RECENT_S)
    assert len(scheduler.decoding()) == 9


def test_waste_costs_nothing_where_nobody_else_computes() -> None:
    shares = ComputingTime()
    shares.owe(ALICE, 1.0)
    assert shares.held_back({ALICE}) == frozenset()
