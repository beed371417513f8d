"""When convoys depart, and with whom (decision 0213)."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshnode.domain.convoys import BUSY, MAX_WAIT_S, STRAGGLE, Convoy, Station

STAGE_S, TRAVEL_S = 0.02, 0.042


def station(stages: int = 2, members: int = 8) -> Station[int]:
    """A station at which all have arrived, one by one, and departed."""
    made: Station[int] = Station(stages)
    made.measured([STAGE_S] * stages, stages * STAGE_S)
    for member in range(members):
        made.arrive(member, 0.0)
        go(made, 0.0)
    return made


def go(where: Station[int], now: float) -> list[list[int]]:
    """Let all depart that may."""
    gone = []
    while where.departs_at(now) <= now:
        gone.append(where.depart("x", now)[1])
    return gone


def test_a_session_by_itself_waits_for_nobody() -> None:
    alone: Station[int] = Station(3)
    for now in range(5):
        alone.arrive(1, now)
        assert alone.departs_at(now) == now
        assert alone.depart("x", now)[1] == [1]


def test_as_many_convoys_as_keep_the_slowest_stage_busy() -> None:
    where = station(2, 12)
    assert (where.convoys, where.quota) == (2, 6)
    for slowest_s, travel_s, convoys in ((0.02, 0.02, 1), (0.02, 0.047, 2), (0.02, 0.2, 9)):
        for _ in range(200):
            where.measured([slowest_s, 0.001], travel_s)
        assert where.convoys == convoys
        assert where.convoys >= BUSY * travel_s / slowest_s
    where.measured([math.inf], math.inf)
    where.measured([0.0], 0.0)
    where.measured([2.0], 1.0)
    assert where.convoys == 9


def test_single_sessions_come_together() -> None:
    where = station()
    # The first ones depart at once, while stages have nothing to do.
    assert go(where, 0.0) == []
    found = []
    for step in range(40):
        member, now = step % 8, 0.1 + step * 0.001
        if member not in where.waiting:
            where.arrive(member, now)
        found += go(where, now)
    assert [len(each) for each in found[-4:]] == [4, 4, 4, 4]


def test_the_rest_of_a_convoy_is_waited_for_but_not_for_ever() -> None:
    where: Station[int] = Station(1)
    where.measured([STAGE_S], STAGE_S)
    for member in range(3):
        where.arrive(member, 0.0)
    assert go(where, 0.0) == [[0, 1, 2]]
    where.arrive(0, 1.0)
    assert where.departs_at(1.0) == pytest.approx(1.0 + STRAGGLE * STAGE_S)
    where.arrive(1, 1.001)
    where.leave(2, 1.002)
    assert go(where, 1.002) == [[0, 1]]


def test_a_session_that_does_not_come_back_is_waited_for_once() -> None:
    where: Station[int] = Station(1)
    where.measured([STAGE_S], STAGE_S)
    for member in range(3):
        where.arrive(member, 0.0)
    go(where, 0.0)
    where.arrive(0, 1.0)
    where.arrive(1, 1.0)
    late = where.departs_at(1.0)
    assert late > 1.0
    assert go(where, late) == [[0, 1]]
    where.arrive(0, 2.0)
    where.arrive(1, 2.0)
    assert where.departs_at(2.0) == 2.0


class Travel(RuleBasedStateMachine):
    """Sessions arrive, depart, come back and leave in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.where: Station[int] = Station(2)
        self.where.measured([STAGE_S], TRAVEL_S)
        self.away: dict[int, Convoy] = {}
        self.since: dict[int, float] = {}

    @rule(member=st.integers(0, 9), after=st.floats(0.0, 0.1))
    def arrive(self, member: int, after: float) -> None:
        if member in self.since:
            return
        self.pass_time(after)
        self.away.pop(member, None)
        self.where.arrive(member, self.now)
        self.since[member] = self.now
        self.look()

    @precondition(lambda self: self.away or self.since)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted({*self.away, *self.since})))
        self.away.pop(member, None)
        self.since.pop(member, None)
        self.where.leave(member, self.now)
        self.look()

    @rule(after=st.floats(0.0, 0.2))
    def pass_time(self, after: float) -> None:
        until = self.now + after
        while (at := self.where.departs_at(self.now)) <= until:
            self.now = max(self.now, at)
            self.look()
        self.now = until

    def look(self) -> None:
        while self.where.departs_at(self.now) <= self.now:
            convoy, members = self.where.depart("x", self.now)
            assert 1 <= convoy.size == len(members) <= self.where.quota
            for member in members:
                waited = self.now - self.since.pop(member)
                assert waited <= min(MAX_WAIT_S, 2 * TRAVEL_S + STRAGGLE * STAGE_S) + 1e-9
                self.away[member] = convoy

    @invariant()
    def nobody_is_forgotten(self) -> None:
        assert set(self.where.waiting) == set(self.since)
        assert len(self.where) == len(self.away) + len(self.since)
        if self.since and not self.away:
            assert self.where.departs_at(self.now) <= self.now


Travel.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestTravel = Travel.TestCase
