"""One line of the benchmark table: ours beside a peer, measured in the same run.

The machine that runs a benchmark is shared and noisy, so what counts is a ratio of medians whose
samples were taken in turn: ours, the peer, ours, the peer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A measurement. ``ratio`` is above 1 where ours is better; ``target`` is its least value."""

    name: str
    ours: float
    peer: float | None
    ratio: float | None
    target: float | None
    unit: str
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio >= self.target


def throughput_row(
    name: str,
    ours: Sequence[float],
    peer: Sequence[float],
    target: float,
    unit: str,
    note: str = "",
) -> BenchRow:
    """A row of rates, more being better: the medians, and their ratio."""
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return BenchRow(name, mine, theirs, mine / theirs, target, unit)


def latency_row(name: str, samples: Sequence[float], limit: float, unit: str) -> BenchRow:
    """A row of durations against a limit, less being better: the median."""
    mine = statistics.median(samples)
    return BenchRow(name, mine, limit, limit / mine, 1.0, unit)


def in_turn(count: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Take ``count`` samples of each measure, in turn, after one of each to warm up."""
    for measure in measures:
        measure()
    rounds = [[measure() for measure in measures] for _ in range(count)]
    return [list(samples) for samples in zip(*rounds, strict=True)]


def seconds(function: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
