"""What a node measures of its own training (interface 2.1: the /api/training routes)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

log = logging.getLogger(__name__)

MAX_LOSSES = 100
"""How many losses are kept to find the trend."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a node has done in all its rounds, over restarts."""

    steps: int = 0
    tokens: int = 0
    rounds: int = 0
    successful_syncs: int = 0
    failed_syncs: int = 0
    adopted: int = 0
    loss: float = 0.0
    """Of the last inner step."""
    shards: tuple[int, ...] = ()
    """Shards of the data that were read."""


@dataclass(slots=True)
class Progress:
    """Counts, and the latest loss. ``begun_at`` and ``begun_with`` are of this start."""

    begun_at: float
    begun_with: int = 0
    """Steps that were taken before."""
    steps: int = 0
    tokens: int = 0
    sequences: int = 0
    """Of this start."""
    inner_step: int = 0
    loss: float = 0.0
    accepted: int = 0


NEWEST = 0.1
"""How much the newest step counts in the mean: one that was quick by chance shortens no round."""
SHOWN_EVERY_S = 30.0
"""How often a round says in the log how far it is."""


class RoundProgress:
    """Says in the log what a round does, and when it will be over."""

    def __init__(self, round_id: int, version: int, steps: int, batch_size: int) -> None:
        """A round of so many steps of ``batch_size`` sequences, from this version."""
        self._round = round_id
        self._version = version
        self._steps = steps
        self._batch = batch_size
        self._begun = self._shown = trio.current_time()

    def begin(self, held_out: float) -> None:
        """Say what the round begins with. ``held_out`` is 0.0 if it was not measured."""
        known = f", held-out loss {held_out:.4f}" if held_out else ""
        log.info(
            "round %d: %d steps of %d sequences from version %d%s",
            *(self._round, self._steps, self._batch, self._version, known),
        )

    def step(self, done: int, loss: float) -> None:
        """Say how far it is, after the first step and then now and again."""
        now = trio.current_time()
        if done > 1 and done < self._steps and now - self._shown < SHOWN_EVERY_S:
            return
        self._shown = now
        left = (self._steps - done) * (now - self._begun) / done
        log.info(
            "round %d: step %d of %d, loss %.4f, steps over in about %s",
            *(self._round, done, self._steps, loss, spelled(left)),
        )


class Speed:
    """How long the inner steps of a node take, and how many are left."""

    def __init__(self) -> None:
        """Nothing is known before the first step."""
        self.step_s = math.nan
        """Of a step, a mean in which the latest count most."""
        self._begun = 0.0
        self._left: int | None = None
        """None while the node takes no steps."""

    def begin(self, now: float, left: int) -> None:
        """Note that a step begins, the first of so many."""
        self._begun, self._left = now, left

    def end(self, now: float) -> None:
        """Note that the step is done."""
        took = now - self._begun
        known = not math.isnan(self.step_s)
        self.step_s = (1 - NEWEST) * self.step_s + NEWEST * took if known else took
        self._begun, self._left = now, (self._left or 1) - 1

    def done(self) -> None:
        """Note that the round takes no more steps, however many were left."""
        self._left = 0

    def rest(self) -> None:
        """Note that the round is over."""
        self._left = None

    def left_s(self, now: float) -> float:
        """Seconds until the steps are done; ``inf`` if that is not known."""
        if self._left == 0:
            return 0.0
        if self._left is None or math.isnan(self.step_s):
            return math.inf
        return max(0.0, self._begun + self._left * self.step_s - now)


class Recurring:
    """How long something takes that is done again and again, as long as it took the last time."""

    def __init__(self) -> None:
        """Nothing is known before it is done for the first time."""
        self._took_s = math.inf
        self._begun: float | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note when it begins and ends."""
        self._begun = trio.current_time()
        try:
            yield
        finally:
            self._took_s = trio.current_time() - self._begun
            self._begun = None

    def left_s(self, now: float) -> float:
        """Seconds that it will still take; ``inf`` if that is not known, or it does not run."""
        if self._begun is None:
            return math.inf
        return max(0.0, self._begun + self._took_s - now)


def spelled(seconds: float) -> str:
    """A duration for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
