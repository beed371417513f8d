"""Interface 2.1, Metrics: counters count, and percentiles are measured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.metering import (
    RELATIVE_ERROR,
    WINDOW_S,
    Histogram,
    InferenceMeter,
    RateWindow,
    SpeedMeter,
)

latencies = st.lists(st.floats(min_value=0.001, max_value=1e7), min_size=1, max_size=300)


def exact_percentile(values: list[float], percent: float) -> float:
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


@given(latencies, st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_within_the_stated_error(values: list[float], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = exact_percentile(values, percent)
    # Slightly more than the stated error, since logarithms are rounded at a bucket's bound.
    assert histogram.percentile(percent) == pytest.approx(exact, rel=RELATIVE_ERROR * 1.000001)
    assert histogram.mean == pytest.approx(sum(values) / len(values))


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_any_value_is_counted_in_bounded_memory(values: list[float]) -> None:
    histogram = Histogram()
    size = len(histogram._buckets)
    for value in values:
        histogram.add(value)
    assert histogram.count == len(values) == sum(histogram._buckets)
    assert len(histogram._buckets) == size < 1300


def test_nothing_yet_is_zero() -> None:
    figures = InferenceMeter().snapshot(0.0)
    assert figures.requests_total == figures.tokens_generated == 0
    assert figures.requests_per_minute == figures.avg_latency_ms == figures.p99_latency_ms == 0.0


def test_one_slow_request_in_a_hundred_is_not_the_p99_but_two_are() -> None:
    histogram = Histogram()
    for latency in [10.0] * 99 + [5000.0]:
        histogram.add(latency)
    assert histogram.percentile(99) == pytest.approx(10.0, rel=RELATIVE_ERROR)
    histogram.add(5000.0)
    assert histogram.percentile(99) == pytest.approx(5000.0, rel=RELATIVE_ERROR)


@given(st.lists(st.floats(min_value=0, max_value=300), max_size=200), st.floats(0, 400))
def test_the_window_counts_the_last_minute_to_a_second(times: list[float], later: float) -> None:
    window = RateWindow()
    now = max([*times, later])
    for at in sorted(times):
        window.add(at)
    exact = sum(now - WINDOW_S < at <= now for at in times)
    surely = sum(now - WINDOW_S + 1 < at <= now for at in times)
    assert surely <= window.per_minute(now) <= exact


def test_the_window_forgets_after_a_long_silence() -> None:
    window = RateWindow()
    for _ in range(5):
        window.add(10.0)
    assert window.per_minute(10.0) == 5
    assert window.per_minute(10.0 + 10 * WINDOW_S) == 0
    window.add(10.0 + 10 * WINDOW_S)
    assert window.per_minute(10.0 + 10 * WINDOW_S) == 1


def test_the_meter_adds_up() -> None:
    meter = InferenceMeter()
    for second in range(4):
        meter.admitted(float(second))
        meter.token()
        meter.token()
        meter.finished(second + 0.5, 500.0)
    figures = meter.snapshot(4.0)
    assert (figures.requests_total, figures.tokens_generated) == (4, 8)
    assert figures.requests_per_minute == 4.0
    assert figures.avg_latency_ms == 500.0
    assert figures.p99_latency_ms == 500.0


def test_speed_is_that_of_the_latest_turns() -> None:
    meter = SpeedMeter()
    assert meter.per_second == 0.0
    meter.turn(0.1)
    assert meter.per_second == pytest.approx(10)
    for _ in range(400):
        meter.turn(0.02)
    assert meter.per_second == pytest.approx(50, rel=0.01)
