"""Connections wait for their turn while the node computes for others (decision 0141)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio
import trio.testing

from meshnode.domain.processor_time import BURST_S, PARTS
from meshnode.domain.shares import Requester, Standing
from meshnode.turns import KEPT_S, LOOK_EVERY_S, Turns, count_no_more

STRANGER, OTHER = "192.0.2.1", "192.0.2.2"
CUSTOMER = Requester(Standing.PAYING, "an account")
PART = PARTS[Standing.PAYING]
STEP_S = 0.01
"""How long each step of a task takes, by the clock of these tests."""


class Steps:
    """A clock that tells two times for each step, ``STEP_S`` apart."""

    now = 0.0

    def __call__(self) -> float:
        self.now += STEP_S
        return self.now


def run(scenario: Callable[[Turns], Awaitable[None]], rivals: set[Requester]) -> None:
    """Run a scenario in virtual time, while the node computes for ``rivals``."""

    async def main() -> None:
        turns = Turns(Steps())
        async with trio.open_nursery() as nursery:
            await nursery.start(turns.watch, lambda: rivals)
            await trio.sleep(2 * LOOK_EVERY_S)
            await scenario(turns)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def read(turns: Turns, ip: str, times: int) -> float:
    """Let a connection read ``times`` times; returns how long that took."""
    connection = turns.of(ip)
    connection.enter()
    begun = trio.current_time()
    for _ in range(times):
        await connection.wait()
        await trio.lowlevel.checkpoint()
    return trio.current_time() - begun


def test_an_address_waits_for_what_it_has_used() -> None:
    async def scenario(turns: Turns) -> None:
        took = await read(turns, STRANGER, 100)
        # Two steps a turn at least: one in the queue, one to read.
        assert took >= (2 * 100 * STEP_S - BURST_S) / PART * 0.9

    run(scenario, {CUSTOMER})


def test_nobody_waits_on_a_node_that_computes_for_nobody() -> None:
    async def scenario(turns: Turns) -> None:
        assert await read(turns, STRANGER, 1000) == 0.0

    run(scenario, set())


def test_addresses_of_this_machine_never_wait() -> None:
    async def scenario(turns: Turns) -> None:
        assert await read(turns, "127.0.0.1", 1000) == 0.0
        assert await read(turns, "::1", 1000) == 0.0

    run(scenario, {CUSTOMER})


def test_another_address_does_not_wait_for_it() -> None:
    async def scenario(turns: Turns) -> None:
        await read(turns, STRANGER, 100)
        assert await read(turns, OTHER, 2) == 0.0

    run(scenario, {CUSTOMER})


def test_connections_of_an_address_share_its_time() -> None:
    async def scenario(turns: Turns) -> None:
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(read, turns, STRANGER, 5)
        assert trio.current_time() - begun >= (2 * 100 * STEP_S - BURST_S) / PART * 0.9

    run(scenario, {CUSTOMER})


def test_connections_that_have_left_keep_nobody_waiting() -> None:
    async def one(turns: Turns, *, left: bool) -> None:
        assert await turns.of(STRANGER).wait(lambda: left) is not left

    async def scenario(turns: Turns) -> None:
        await read(turns, STRANGER, 20)
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(partial(one, turns, left=True))
        assert trio.current_time() == begun
        await one(turns, left=False)
        assert trio.current_time() > begun

    run(scenario, {CUSTOMER})


def test_who_leaves_while_it_waits_is_noticed() -> None:
    async def scenario(turns: Turns) -> None:
        await read(turns, STRANGER, 20)
        looks = iter((False, True))
        assert not await turns.of(STRANGER).wait(lambda: next(looks))

    run(scenario, {CUSTOMER})


def test_tasks_that_a_connection_starts_are_counted() -> None:
    async def work(steps: int) -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()

    async def scenario(turns: Turns) -> None:
        connection = turns.of(STRANGER)
        connection.enter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, 30)
        begun = trio.current_time()
        await connection.wait()
        assert trio.current_time() - begun >= (30 * STEP_S - BURST_S) / PART * 0.9

    run(scenario, {CUSTOMER})


def test_what_is_shared_out_otherwise_is_not_counted() -> None:
    async def scenario(turns: Turns) -> None:
        connection = turns.of(STRANGER)
        connection.enter()
        count_no_more()
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        begun = trio.current_time()
        await connection.wait()
        assert trio.current_time() == begun

    run(scenario, {CUSTOMER})


def test_what_was_used_before_the_rivals_came_is_forgiven() -> None:
    async def scenario(turns: Turns, rivals: set[Requester]) -> None:
        await read(turns, STRANGER, 100)
        rivals.clear()
        await trio.sleep(2 * KEPT_S)
        assert not turns.rivals
        assert await read(turns, STRANGER, 1000) == 0.0
        rivals.add(CUSTOMER)
        await trio.sleep(2 * LOOK_EVERY_S)
        assert await read(turns, STRANGER, 1) <= 4.0

    rivals = {CUSTOMER}
    run(partial(scenario, rivals=rivals), rivals)


def test_a_connection_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    async def scenario(turns: Turns) -> None:
        await read(turns, STRANGER, 100)
        with trio.move_on_after(0.01) as waiting:
            await read(turns, STRANGER, 100)
        assert waiting.cancelled_caught
        with trio.fail_after(10.0):
            await read(turns, STRANGER, 1)

    run(scenario, {CUSTOMER})
