"""Steps that wait until the event loop is quiet (decision 0208).

A step for a customer who has used more than others competes with the event loop for processors and
for the interpreter. While the loop works on what those others have sent, it goes first.

Invariant: a step waits for at most ``FACTOR`` times as long as the latest one took.
"""

from __future__ import annotations

import trio
import trio.testing

FACTOR = 15.0
"""Beside an event loop that is never quiet, such steps keep a sixteenth of the time."""
MOST_S = 0.05
QUIET_S = 0.001
"""The event loop is quiet if nothing happens for so long."""


class Patience:
    """How long the next step may still wait."""

    def __init__(self) -> None:
        self._step_s = 0.0
        self._until: float | None = None

    def stepped(self, seconds: float) -> None:
        """Note how long a step took; the next one may wait anew."""
        self._step_s, self._until = seconds, None

    async def has_news(self, news: trio.Event) -> bool:
        """Wait until the event loop is quiet, or for as long as the step may wait.

        True if ``news`` was set meanwhile and there is still time: who computes is to be decided
        again.
        """
        if self._until is None:
            self._until = trio.current_time() + min(FACTOR * self._step_s, MOST_S)
        with trio.move_on_at(self._until):
            await trio.testing.wait_all_tasks_blocked(QUIET_S)
        return news.is_set() and trio.current_time() < self._until
