"""How many positions of which prompts are computed in one step (decision 0151).

Terms: a *chunk* is what one step computes of one prompt; the *budget* is the positions of all
chunks of a step; the *pace* is what a position costs, in seconds.

These rules are for engines whose bits do not depend on where chunks end, nor on the prompts beside
them. Invariants: the oldest prompt gets at least three quarters of a budget, so prompts end in the
order of arrival unless a later one is much shorter; a budget never takes longer than its share of
the longest gap that a stream may have, as far as the pace tells.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Name = TypeVar("Name")

STREAMING_S = 0.2
"""Seconds that the prompts of a step may take while somebody waits for a next token."""
QUIET_S = 0.6
"""The same while nobody does. A request that arrives meanwhile waits for the step's end."""
FEWEST, STREAMING, MOST = 16, 128, 512
"""Positions of a budget: at least, at first while somebody streams, and at most."""
LATER_SHARE = 4
"""One in this many positions of a budget is for later prompts, the shortest first."""
_MEMORY = 0.7
"""The weight of what was known of the pace before the latest step."""


@dataclass(frozen=True, slots=True)
class Chunk(Generic[Name]):
    """Positions ``start`` to ``stop`` of a session; ``last`` if it ends the session's prefill."""

    key: Name
    start: int
    stop: int
    last: bool


class Pace:
    """What a position of a prompt costs on this machine."""

    def __init__(self) -> None:
        self._position_s: float | None = None

    def measured(self, positions: int, seconds: float) -> None:
        """Note what a step with so many positions of prompts has taken."""
        # Short chunks cost as much as reading the weights does, whatever their length.
        cost = seconds / max(positions, FEWEST)
        known = cost if self._position_s is None else self._position_s
        self._position_s = _MEMORY * known + (1 - _MEMORY) * cost

    def budget(self, *, streaming: bool) -> int:
        """The positions of prompts that the next step may compute."""
        allowed = STREAMING_S if streaming else QUIET_S
        if self._position_s is None:
            return STREAMING
        if self._position_s * MOST <= allowed:
            return MOST
        return max(FEWEST, int(allowed / self._position_s))


def shared(remaining: Sequence[tuple[Key, int]], budget: int) -> list[tuple[Key, int]]:
    """Divide a budget among prompts, given in the order of arrival with what is left of each."""
    if not remaining:
        return []
    (oldest, left), *later = remaining
    counts = {oldest: min(left, budget - (budget // LATER_SHARE if later else 0))}
    rest = budget - counts[oldest]
    # The sort keeps the order of arrival among equals.
    for key, wanted in sorted(later, key=lambda entry: entry[1]):
        count = min(wanted, rest)
        if count:
            counts[key] = count
            rest -= count
    counts[oldest] += min(rest, left - counts[oldest])
    return [(key, counts[key]) for key, _ in remaining if key in counts]
