"""One line of the benchmark table: ours beside a peer, measured in the same run.

The machine that runs a benchmark is shared and noisy. The result is therefore a ratio of medians,
whose samples are taken in turn: ours, the peer, ours, the peer.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A measurement. ``ratio`` is above 1 if ours is better; ``target`` is its minimum."""

    name: str
    ours: float
    peer: float | None
    ratio: float | None
    target: float | None
    unit: str
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is no target."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio >= self.target


def throughput_row(
    name: str,
    ours: Sequence[float],
    peer: Sequence[float],
    target: float | None,
    unit: str,
    note: str = "",
) -> BenchRow:
    """Make a row of rates, where higher is better: the medians and their ratio."""
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return BenchRow(name, mine, theirs, mine / theirs, target, unit)


def latency_row(name: str, samples: Sequence[float], limit: float, unit: str) -> BenchRow:
    """Make a row of durations against a limit, where lower is better: the median."""
    mine = statistics.median(samples)
    return BenchRow(name, mine, limit, limit / mine, 1.0, unit)


def in_turn(count: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Take ``count`` samples of each measure in turn, after one warm-up call of each."""
    for measure in measures:
        measure()
    rounds = [[measure() for measure in measures] for _ in range(count)]
    return [list(samples) for samples in zip(*rounds, strict=True)]


def seconds(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, by the nearest-rank method."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]
