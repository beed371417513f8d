"""Decision 0136: how far the wall clock is believed when blocks are dated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain import clock as clocks
from meshnode.domain.chain.clock import (
    FOLLOWS,
    SLACK_NS,
    TRANSITIONS,
    BlockClock,
    ClockAnchor,
    State,
    difference_ns,
)
from meshnode.domain.units import DAY_NS, SECOND_NS
from spec_tests.domain.transition_tables import documented, draw, pairs

NOW = 1_900_000_000 * SECOND_NS


def state(clock: BlockClock) -> State:
    """Return the state now; mypy would take the one that was asserted before for it."""
    return clock.state


def test_the_table_is_the_one_in_the_module() -> None:
    wanted = {pair for pair in documented(clocks) if pair[0] != "(start)"}
    assert draw(wanted) == draw(pairs(TRANSITIONS))


def test_a_steady_clock_is_followed_to_the_nanosecond() -> None:
    clock = BlockClock(NOW, 5)
    assert clock.date_ns(NOW + SECOND_NS + 7, 5 + SECOND_NS) == NOW + SECOND_NS + 7
    # Corrections of some seconds, forward or back, do not count as a jump.
    for correction in (-3, 20, -20):
        wall = NOW + (2 + correction) * SECOND_NS
        assert clock.date_ns(wall, 5 + 2 * SECOND_NS) == wall
    assert state(clock) is State.STEADY


@pytest.mark.parametrize("jump", [400 * DAY_NS, -400 * DAY_NS, 120 * SECOND_NS])
def test_a_jump_dates_no_block(jump: int) -> None:
    clock = BlockClock(NOW, 0)
    later = 3600 * SECOND_NS
    date = clock.date_ns(NOW + later + jump, later)
    assert abs(date - NOW - later) <= later // FOLLOWS
    assert state(clock) is State.JUMPED
    assert abs(clock.shift_ns(NOW + later + jump) - jump) <= later // FOLLOWS
    # When the clock is right again, all is as before.
    assert clock.date_ns(NOW + 2 * later, 2 * later) == NOW + 2 * later
    assert state(clock) is State.STEADY


def test_a_pause_of_the_machine_is_made_up_for_in_days() -> None:
    """Ten minutes that the steady clock has not counted are followed at a thousandth."""
    clock, pause = BlockClock(NOW, 0), 600 * SECOND_NS
    for day in range(1, 8):
        clock.date_ns(NOW + pause + day * DAY_NS, day * DAY_NS)
    assert state(clock) is State.STEADY
    assert clock.shift_ns(NOW + pause + 7 * DAY_NS) == 0


def test_three_peers_that_agree_confirm_a_jump_and_two_do_not() -> None:
    clock, ahead = BlockClock(NOW, 0), NOW + DAY_NS
    for others in ([], [ahead] * 2, [ahead, NOW, NOW], [ahead + DAY_NS] * 9):
        assert clock.date_ns(ahead, 0, others) == NOW
    assert clock.date_ns(ahead, 0, [NOW, ahead - SECOND_NS, ahead + SECOND_NS]) == ahead
    assert state(clock) is State.STEADY
    # Peers never move the date of a clock that has not jumped.
    assert clock.date_ns(ahead, 0, [ahead + 9 * DAY_NS] * 9) == ahead
    # Nor does anybody take a date back: blocks cannot.
    assert clock.date_ns(NOW, 0, [NOW] * 9) == ahead


def test_a_restart_of_the_node_changes_nothing_while_the_machine_runs() -> None:
    before = BlockClock(NOW, 0)
    before.date_ns(NOW + SECOND_NS, SECOND_NS)
    again = BlockClock(NOW + DAY_NS, 60 * SECOND_NS, known=before.anchor)
    assert state(again) is State.JUMPED
    assert again.date_ns(NOW + DAY_NS, 60 * SECOND_NS) == NOW + 60 * SECOND_NS
    # An anchor in the steady clock's future is of another machine.
    other = BlockClock(NOW + DAY_NS, 0, known=ClockAnchor(NOW, 1))
    assert state(other) is State.STEADY


def test_without_an_anchor_a_clock_that_is_not_behind_is_believed() -> None:
    """The node may have been off for any time."""
    clock = BlockClock(NOW, 0, last_block_ns=NOW - 90 * DAY_NS)
    assert clock.date_ns(NOW, 0) == NOW


def test_a_clock_behind_the_last_block_goes_on_from_the_block() -> None:
    clock = BlockClock(0, 0, last_block_ns=NOW)
    assert state(clock) is State.BEHIND
    assert clock.anchor is None
    minute = 60 * SECOND_NS
    date = clock.date_ns(minute, minute)
    assert 0 <= NOW + minute - date <= minute // FOLLOWS
    # Once it has been set right, it counts from there, however long the node was off.
    right = NOW + 3 * DAY_NS
    assert clock.date_ns(right, 2 * minute) == right
    assert state(clock) is State.STEADY
    assert clock.anchor == ClockAnchor(right, 2 * minute)


@given(
    st.lists(
        st.tuples(
            st.integers(-400 * DAY_NS, 400 * DAY_NS),
            st.integers(0, 30 * DAY_NS),
            st.lists(st.integers(0, 2 * NOW), max_size=2),
        ),
        max_size=20,
    )
)
def test_dates_stay_within_the_bound(readings: list[tuple[int, int, list[int]]]) -> None:
    clock, steady = BlockClock(NOW, 0), 0
    for shift, elapsed, others in readings:
        steady += elapsed
        date = clock.date_ns(NOW + steady + shift, steady, others)
        assert abs(date - NOW - steady) <= SLACK_NS + steady // FOLLOWS


def test_a_difference_is_from_the_median_of_three_or_more() -> None:
    assert difference_ns(10, [4, 4]) == 0
    assert difference_ns(10, [4, 3, 1 << 60]) == 6
