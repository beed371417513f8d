"""Who gives way when the memory of calls is full (decision 0129)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshnode.domain.connections import share_of
from meshnode.domain.held_bytes import MAX_AHEAD_S, HeldBytes, Pace

CAPACITY, SHARE = 100, 0.75
HERE, ONE, TWO, NEW = "127.0.0.1", "192.0.2.1", "192.0.2.2", "198.51.100.7"


@dataclass(eq=False)
class Call:
    ip: str
    idle_since: float = math.inf

    @property
    def idle(self) -> bool:
        return self.idle_since < math.inf


def held_bytes() -> HeldBytes[Call]:
    return HeldBytes(CAPACITY, lambda ip: share_of(CAPACITY, SHARE, ip))


def test_half_sent_messages_of_one_address_leave_room_for_others() -> None:
    held = held_bytes()
    half_sent = [Call(ONE, idle_since=float(n)) for n in (3, 1, 2)]
    for call in half_sent:
        assert held.take(call, 25, 5.0) == (True, [])
    assert held.take(Call(NEW), 25, 5.0) == (True, [])
    # The address has its share, so its next message takes the place of its own oldest.
    assert held.take(Call(ONE), 25, 5.0) == (True, [half_sent[1]])
    # A third caller takes what is idle for longest.
    assert held.take(Call(TWO), 20, 5.0) == (True, [half_sent[2]])
    assert held.held == 95


def test_the_address_whose_idle_calls_hold_most_gives_way_first() -> None:
    held = held_bytes()
    honest = Call(TWO, idle_since=0.0)
    many = [Call(ONE, idle_since=1.0), Call(ONE, idle_since=2.0)]
    for call, size in ((honest, 30), (many[0], 35), (many[1], 35)):
        assert held.take(call, size, 5.0) == (True, [])
    assert held.take(Call(NEW), 60, 5.0) == (True, many)


def test_a_call_that_works_keeps_its_bytes_and_nobody_is_dropped_in_vain() -> None:
    held = held_bytes()
    busy, idle = Call(HERE), Call(TWO, idle_since=1.0)
    assert held.take(busy, 80, 5.0) == (True, [])
    assert held.take(idle, 10, 5.0) == (True, [])
    assert held.take(Call(NEW), 30, 5.0) == (False, [])
    assert held.take(busy, 20, 5.0) == (True, [idle])
    assert held.held == CAPACITY


def test_an_address_never_has_more_than_its_share() -> None:
    held = held_bytes()
    assert held.take(Call(ONE), 75, 0.0) == (True, [])
    assert held.take(Call(ONE), 1, 0.0) == (False, [])
    assert held.take(Call(HERE), 25, 0.0) == (True, [])


def test_a_pace_that_is_kept_is_not_behind() -> None:
    pace = Pace(1000.0)
    pace.wait(0.0)
    for second in range(60):
        pace.move(1000, float(second))
        assert pace.behind_since >= second


def test_neither_a_stop_after_a_fast_start_nor_a_trickle_keeps_the_pace() -> None:
    fast, trickle = Pace(1000.0), Pace(1000.0)
    for pace in (fast, trickle):
        pace.wait(10.0)
    fast.move(10**8, 11.0)
    assert fast.behind_since == 11.0 + MAX_AHEAD_S
    for second in range(50):
        trickle.move(1, 10.0 + second)
    assert trickle.behind_since < 10.1


def test_a_call_that_works_is_not_behind_whatever_arrives() -> None:
    pace = Pace(1000.0)
    pace.move(10, 5.0)
    assert pace.behind_since == math.inf
    pace.wait(6.0)
    pace.wait(7.0)
    assert pace.behind_since == 6.0
    pace.work()
    assert pace.behind_since == math.inf


class AnyOrder(RuleBasedStateMachine):
    """Calls hold and return bytes, wait and work, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = held_bytes()
        self.sizes: dict[Call, int] = {}
        self.now = 0.0

    @rule(ip=st.sampled_from([HERE, ONE, TWO]), size=st.integers(0, 90), idle=st.booleans())
    def begin(self, ip: str, size: int, idle: bool) -> None:
        self.now += 1
        self.hold(Call(ip, self.now if idle else math.inf), size)

    @precondition(lambda self: self.sizes)
    @rule(data=st.data(), size=st.integers(0, 50))
    def go_on(self, data: st.DataObject, size: int) -> None:
        self.now += 1
        self.hold(data.draw(st.sampled_from(list(self.sizes))), size)

    def hold(self, call: Call, size: int) -> None:
        taken, dropped = self.table.take(call, size, self.now)
        assert all(each.idle and each is not call for each in dropped)
        assert taken or not dropped
        for each in dropped:
            # It returns what it held when it ends, which must not count twice.
            self.table.give(each, self.sizes.pop(each))
        if taken:
            self.sizes[call] = self.sizes.get(call, 0) + size

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(list(self.sizes)))
        self.table.give(call, self.sizes.pop(call))

    @invariant()
    def bounded(self) -> None:
        assert self.table.held == sum(self.sizes.values()) <= CAPACITY
        for ip in (ONE, TWO):
            assert sum(n for c, n in self.sizes.items() if c.ip == ip) <= CAPACITY * SHARE


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=30, stateful_step_count=20)
