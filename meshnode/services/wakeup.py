"""Waiting for changes of a state that is not a queue, without polling and without missing one."""

from __future__ import annotations

import math

import trio


class Wakeup:
    """An event that can happen many times.

    To miss no change, take ``next`` before you look at the state, then wait for that event: it is
    set by every change since then.
    """

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = trio.Event()
        """Is set, and replaced by another event, at the next change."""

    def set(self) -> None:
        """Wake everybody who waits."""
        event, self.next = self.next, trio.Event()
        event.set()


async def wait_any(*events: trio.Event, deadline: float = math.inf) -> None:
    """Wait until one of the events is set, or until ``deadline`` on Trio's clock."""
    with trio.move_on_at(deadline):
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            for event in events:
                nursery.start_soon(wait, event)
