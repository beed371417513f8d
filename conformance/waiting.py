"""Checks that wait while others run.

Invariants: no check runs while another one is between two pauses; only checks that read, or that
wait too, run while one waits, so that nobody changes what it waits for.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from conformance.context import Context
from conformance.registry import Check, Pauses


@dataclass
class Underway:
    """A check that has begun; `due_s` is when it goes on, by the monotonic clock."""

    check: Check
    context: Context
    steps: Pauses
    due_s: float = 0.0


@dataclass
class Waiting:
    """The checks that wait, and what makes the next step of one: it returns whether it goes on."""

    step: Callable[[Underway], bool]
    _all: list[Underway] = field(default_factory=list)

    def start(self, begun: Underway) -> None:
        """Run a check up to its first pause."""
        self._all.append(begun)
        self._advance(begun)

    def go_on(self) -> None:
        """Go on with those that have waited long enough."""
        for begun in [one for one in self._all if one.due_s <= time.monotonic()]:
            self._advance(begun)

    def finish(self) -> None:
        """Go on with all of them, up to their ends."""
        while self._all:
            begun = min(self._all, key=lambda one: one.due_s)
            time.sleep(max(0.0, begun.due_s - time.monotonic()))
            self._advance(begun)

    def close(self) -> None:
        """End all of them where they are; each undoes what it has changed."""
        for begun in self._all:
            with suppress(Exception):
                begun.steps.close()
        self._all.clear()

    def _advance(self, begun: Underway) -> None:
        if not self.step(begun):
            self._all.remove(begun)
