"""Counters behind the metrics of the node API (interface 2.1) and of Prometheus (decision 0170).

Terms: a request is *admitted* when the executor takes it in, and *finished* when it ends, however
it ended; its latency is the whole time between the two. Rates look back over the last minute.
Averages and percentiles cover the time since the node started.

Invariants: memory is bounded whatever the traffic; totals never decrease; a percentile is within
``RELATIVE_ERROR`` of the exact one. Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
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


class Buckets:
    """Counts of values in buckets with fixed upper bounds, as Prometheus takes histograms."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` are ascending and inclusive; a last bucket takes all that is above them."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        """The sum of the values."""

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


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


REQUEST_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0, 10.0)
"""Upper bounds in seconds: whole requests; queue and first token; from one token to the next."""


class SpeedMeter:
    """Positions a second that one session gets: the mean of its latest turns of the engine."""

    _TURNS = 32
    """How many turns the mean remembers, with weights that halve every 22."""

    def __init__(self) -> None:
        self._turn_s = 0.0

    def turn(self, seconds: float) -> None:
        """Count a turn in which every session got one position."""
        weight = 1 / self._TURNS if self._turn_s else 1.0
        self._turn_s += weight * (seconds - self._turn_s)

    @property
    def turn_s(self) -> float:
        """Seconds of a turn; 0.0 before the first."""
        return self._turn_s

    @property
    def per_second(self) -> float:
        """0.0 before the first turn."""
        return 1 / self._turn_s if self._turn_s else 0.0


class InferenceMeter:
    """Counts generations; a node has one, owned by the executor."""

    def __init__(self) -> None:
        self.requests = 0
        """Generations taken into the queue."""
        self.tokens = 0
        """Tokens generated."""
        self._window = RateWindow()
        self._latency_ms = Histogram()
        self.prompt_tokens = 0
        """Tokens of the prompts of generations that got a place."""
        self.outcomes: Counter[str] = Counter()
        """Generations that have ended, by outcome."""
        self.request_s = Buckets(REQUEST_S)
        """From the request to the end of the generation."""
        self.queue_s = Buckets(FIRST_TOKEN_S)
        """From the request to a place in the batch."""
        self.first_token_s = Buckets(FIRST_TOKEN_S)
        """From the request to the first token."""
        self.next_token_s = Buckets(TOKEN_S)
        """From each token to the next one of its generation."""

    def admitted(self, now: float) -> None:
        """Count a request that the executor has admitted."""
        self.requests += 1
        self._window.add(now)

    def token(self) -> None:
        """Count one generated token."""
        self.tokens += 1

    def finished(self, now: float, latency_ms: float) -> None:
        """Count a request that ended after ``latency_ms`` milliseconds, queue included."""
        self._latency_ms.add(latency_ms)

    def snapshot(self, now: float) -> InferenceFigures:
        """The figures at ``now``."""
        return InferenceFigures(
            requests_total=self.requests,
            requests_per_minute=self._window.per_minute(now),
            avg_latency_ms=self._latency_ms.mean,
            p99_latency_ms=self._latency_ms.percentile(99),
            tokens_generated=self.tokens,
        )


class ChargeMeter:
    """What accounts were charged for generations."""

    def __init__(self) -> None:
        self.charges = 0
        self.atoms = 0

    def add(self, atoms: int) -> None:
        """Count one charge."""
        self.charges += 1
        self.atoms += atoms


class HttpMeter:
    """Requests to the HTTP port that have ended."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """By method, route and status; the status is 0 if the client left without one."""


class TrafficMeter:
    """Traffic of the node-to-node interface: socket bytes, as server and as client."""

    def __init__(self) -> None:
        self.served: Counter[tuple[str, str]] = Counter()
        """Calls served to their end, by operation and name of the status."""
        self.message_bytes: Counter[tuple[str, bool]] = Counter()
        """Bytes of messages by operation, and whether they were sent."""
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
    held_out_loss: float = 0.0
    """The loss of the kept weights on text that is not trained on; 0 if it was not measured."""
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
