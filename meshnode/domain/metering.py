"""Counters behind ``GET /metrics`` (interface 2.1, "Metrics").

Terms: a request is *admitted* when the executor takes it in, and *finished* when it ends, however
it ended; its latency is the whole time between the two. Rates look back over the last minute.
Averages and percentiles cover the time since the node started.

Invariants: memory is bounded whatever the traffic; totals never decrease; a percentile is within
``RELATIVE_ERROR`` of the exact one. Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

WINDOW_S = 60
RELATIVE_ERROR = 0.01
"""Bound on the relative error of a percentile, for values inside the histogram's range."""
MIN_VALUE = 1e-3
"""Smallest latency that is distinguished from zero, in milliseconds: one microsecond."""
MAX_VALUE = 1e8
"""Largest latency, in milliseconds: a bit over a day."""


@dataclass(frozen=True, slots=True)
class InferenceFigures:
    """The ``inference`` object of the metrics, with the document's names and types."""

    requests_total: int
    requests_per_minute: float
    avg_latency_ms: float
    p99_latency_ms: float
    tokens_generated: int


class Histogram:
    """Counts of values in buckets whose bounds grow by a constant factor.

    Bucket ``i`` holds the values in ``(MIN_VALUE * g**(i-1), MIN_VALUE * g**i]``. The answer is the
    upper bound times ``2 / (g + 1)``, at most ``(g - 1) / (g + 1)`` off from either end.
    """

    _GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
    _LOG_GROWTH = math.log(_GROWTH)
    _BUCKETS = math.ceil(math.log(MAX_VALUE / MIN_VALUE) / _LOG_GROWTH) + 1

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._low = math.inf
        self._high = 0.0
        self._buckets = [0] * self._BUCKETS

    def add(self, value: float) -> None:
        """Count one value; one outside of 0 to ``MAX_VALUE`` counts as the nearer end."""
        value = min(max(0.0, value), MAX_VALUE)
        self.count += 1
        self.total += value
        self._low = min(self._low, value)
        self._high = max(self._high, value)
        index = 0
        if value > MIN_VALUE:
            index = math.ceil(math.log(value / MIN_VALUE) / self._LOG_GROWTH)
        self._buckets[min(index, self._BUCKETS - 1)] += 1

    @property
    def mean(self) -> float:
        """Exact mean; 0.0 without values."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """Nearest-rank percentile; 0.0 without values. ``percent`` is above 0 and at most 100."""
        if not self.count:
            return 0.0
        rank = math.ceil(self.count * percent / 100)
        seen = itertools.accumulate(self._buckets)
        index = next(index for index, count in enumerate(seen) if count >= rank)
        middle = MIN_VALUE * self._GROWTH**index * 2 / (self._GROWTH + 1)
        # Smallest and largest value are known exactly, so the answer is kept between them.
        return min(max(middle, self._low), self._high)


class RateWindow:
    """Events of the last minute, in buckets of one second: of the last 59 to 60 seconds."""

    def __init__(self) -> None:
        self._counts = [0] * WINDOW_S
        self._seconds = [-1] * WINDOW_S

    def add(self, now: float) -> None:
        """Count one event."""
        second = math.floor(now)
        slot = second % WINDOW_S
        if self._seconds[slot] != second:
            self._seconds[slot] = second
            self._counts[slot] = 0
        self._counts[slot] += 1

    def per_minute(self, now: float) -> float:
        """Events in the minute before ``now``."""
        oldest = math.floor(now) - WINDOW_S
        pairs = zip(self._seconds, self._counts, strict=True)
        return float(sum(count for second, count in pairs if second > oldest))


class InferenceMeter:
    """Counts generations; a node has one, owned by the executor."""

    def __init__(self) -> None:
        self._requests = 0
        self._tokens = 0
        self._window = RateWindow()
        self._latency_ms = Histogram()

    def admitted(self, now: float) -> None:
        """Count a request that the executor has admitted."""
        self._requests += 1
        self._window.add(now)

    def token(self) -> None:
        """Count one generated token."""
        self._tokens += 1

    def finished(self, now: float, latency_ms: float) -> None:
        """Count a request that ended after ``latency_ms`` milliseconds, queue included."""
        self._latency_ms.add(latency_ms)

    def snapshot(self, now: float) -> InferenceFigures:
        """The figures at ``now``."""
        return InferenceFigures(
            requests_total=self._requests,
            requests_per_minute=self._window.per_minute(now),
            avg_latency_ms=self._latency_ms.mean,
            p99_latency_ms=self._latency_ms.percentile(99),
            tokens_generated=self._tokens,
        )


class TrafficMeter:
    """Traffic of the node-to-node interface: socket bytes, as server and as client."""

    def __init__(self) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self.active_connections = 0
        """Connections open now."""
        self.rpc_calls = 0
        """Calls begun since the start, served and made."""


@dataclass(frozen=True, slots=True)
class TrainingFigures:
    """The training figures of status and metrics. All zero on a node that has not trained."""

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    steps_total: int = 0
    steps_per_hour: int = 0
    gradients_submitted: int = 0
    gradients_accepted: int = 0


@dataclass(frozen=True, slots=True)
class RewardFigures:
    """The ``rewards`` object of the metrics, in whole currency units."""

    earned_today: float = 0.0
    earned_total: float = 0.0
    pending: float = 0.0
