"""Messages that train and that nobody has signed have a part of the computing time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import trio
import trio.testing

from meshnode.domain.errors import InvalidRequest, RateLimited
from meshnode.domain.training.strangers import BURST_S, MAX_WAIT_S, PART
from meshnode.services.shards.strangers import MAX_WAITING, StrangersTurns

GRAPH_BYTES = 800


@dataclass
class Machine:
    """A torch thread that needs ``cost_s`` for each message, on the clock of trio."""

    cost_s: float
    busy: bool = True

    def turns(self) -> StrangersTurns:
        return StrangersTurns(lambda: self.busy, GRAPH_BYTES, trio.current_time)

    async def compute(self, function: Callable[[], int]) -> int:
        await trio.sleep(self.cost_s)
        return function()


def one_after(clock: trio.testing.MockClock, cost_s: float) -> Callable[[], int]:
    """A function that takes ``cost_s`` of the clock."""

    def run() -> int:
        clock.jump(cost_s)
        return 7

    return run


async def at_once(function: Callable[[], int]) -> int:
    await trio.lowlevel.checkpoint()
    return function()


COMPUTE: Callable[[Callable[[], int]], Awaitable[int]] = at_once


async def test_strangers_have_a_part_beside_others(autojump_clock: trio.testing.MockClock) -> None:
    cost_s = 0.01
    turns, machine = Machine(cost_s).turns(), one_after(autojump_clock, cost_s)
    begun, count = trio.current_time(), 500
    for _ in range(count):
        assert await turns.compute(COMPUTE, machine) == 7
    took_s = trio.current_time() - begun
    assert count * cost_s <= BURST_S + PART * took_s + cost_s
    assert count * cost_s >= PART * took_s


async def test_a_message_that_would_wait_for_long_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns, machine = Machine(1.0).turns(), one_after(autojump_clock, 1.0)
    assert await turns.compute(COMPUTE, machine) == 7
    with pytest.raises(RateLimited) as refused:
        await turns.compute(COMPUTE, machine)
    assert refused.value.retry_after > MAX_WAIT_S
    await trio.sleep(refused.value.retry_after)
    assert await turns.compute(COMPUTE, machine) == 7


async def test_without_others_nobody_waits(autojump_clock: trio.testing.MockClock) -> None:
    turns, machine = Machine(1.0, busy=False).turns(), one_after(autojump_clock, 1.0)
    begun = trio.current_time()
    for _ in range(5):
        await turns.compute(COMPUTE, machine)
    assert trio.current_time() - begun == pytest.approx(5.0)


async def test_few_messages_wait(autojump_clock: trio.testing.MockClock) -> None:
    machine = Machine(1.0, busy=False)
    turns, refused = machine.turns(), 0

    async def send() -> None:
        nonlocal refused
        try:
            await turns.compute(machine.compute, lambda: 7)
        except RateLimited:
            refused += 1

    async with trio.open_nursery() as nursery:
        for _ in range(MAX_WAITING + 3):
            nursery.start_soon(send)
    # One computes, and as many as may wait do so.
    assert refused == 2


def test_a_large_message_is_refused_beside_others_only() -> None:
    machine = Machine(1.0)
    turns = machine.turns()
    turns.validate_size(GRAPH_BYTES // 8)
    with pytest.raises(InvalidRequest):
        turns.validate_size(GRAPH_BYTES // 8 + 1)
    machine.busy = False
    turns.validate_size(GRAPH_BYTES)
