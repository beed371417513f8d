"""Waiting without polling: no change is missed, and waiting costs nothing."""

from __future__ import annotations

import trio

from meshnode.services.wakeup import Wakeup, wait_any


async def test_a_change_after_the_look_is_not_missed(autojump_clock: object) -> None:
    wakeup = Wakeup()
    event = wakeup.next
    wakeup.set()
    with trio.fail_after(1):
        await wait_any(event)
    assert not wakeup.next.is_set()


async def test_all_who_wait_are_woken_once_a_change(autojump_clock: object) -> None:
    wakeup, woken = Wakeup(), list[str]()

    async def wait(name: str) -> None:
        while True:
            await wakeup.next.wait()
            woken.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "a")
        nursery.start_soon(wait, "b")
        for changes in (1, 2):
            await trio.testing.wait_all_tasks_blocked()
            wakeup.set()
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(woken) == sorted("ab" * changes)
        nursery.cancel_scope.cancel()


async def test_any_of_the_events_or_the_deadline_ends_the_wait(autojump_clock: object) -> None:
    first, second = Wakeup(), Wakeup()
    begun = trio.current_time()
    await wait_any(first.next, second.next, deadline=begun + 5)
    assert trio.current_time() == begun + 5
    event = second.next
    second.set()
    await wait_any(first.next, event, deadline=begun + 500)
    assert trio.current_time() == begun + 5


async def test_a_wait_can_be_cancelled(autojump_clock: object) -> None:
    with trio.move_on_after(3) as scope:
        await wait_any(Wakeup().next)
    assert scope.cancelled_caught
