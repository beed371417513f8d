"""A flood of frames is told from ordinary use by what the frames bring (decision 0128)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.frames import (
    FINE,
    MAX_ADDRESSES,
    OWN_BURST,
    AddressFrames,
    FrameMeter,
    Passed,
    Verdict,
)
from meshnode.domain.ratelimit import LeakyBucket

BURST, PER_S = 2000, 500.0
IP = "192.0.2.1"


def addresses() -> AddressFrames:
    return AddressFrames(BURST, PER_S)


def a_call_of_grpcio(count: int = 1) -> Passed:
    """Measured: after a message each way and the status come two window updates."""
    return Passed(frames=2 * count, messages=3 * count, bytes=250 * count)


@pytest.mark.parametrize("at_once", [1, 8, 32, 128])
def test_calls_of_grpcio_at_any_speed_are_no_flood(at_once: int) -> None:
    shared = addresses()
    meters = [shared.meter(IP) for _ in range(128)]
    for number in range(100):
        passed = a_call_of_grpcio(at_once)
        # What pays may be counted in the read before.
        now = number * 1e-6
        for meter in meters:
            assert meter.judge(Passed(messages=passed.messages), now) == FINE
            assert meter.judge(Passed(frames=passed.frames), now) == FINE


def frames_until_cut(meters: list[FrameMeter], passed: Passed, every_s: float) -> int:
    """How many times ``passed`` can be sent on all of these connections in turn."""
    uncut = list(meters)
    for number in itertools.count():
        if not uncut or number > 10**6:
            return number
        meter = uncut[number % len(uncut)]
        if meter.judge(passed, number * every_s).flood:
            uncut.remove(meter)
    raise AssertionError


def test_frames_of_one_byte_are_a_flood() -> None:
    # 0.8 MB/s on the wire, in frames of ten bytes.
    piece = Passed(frames=1, bytes=10)
    assert frames_until_cut([addresses().meter(IP)], piece, 1 / 80_000) < 2 * BURST


def test_many_connections_of_an_address_have_one_burst() -> None:
    shared = addresses()
    meters = [shared.meter(IP) for _ in range(128)]
    piece = Passed(frames=1, bytes=10)
    assert frames_until_cut(meters, piece, 1 / 80_000) < 2 * BURST + 128 * 2 * OWN_BURST
    # A new one has only what lets it begin.
    assert frames_until_cut([shared.meter(IP)], piece, 1 / 80_000) < 2 * OWN_BURST


def test_who_shares_an_address_with_a_flood_is_not_cut() -> None:
    shared = addresses()
    flood, honest, other = shared.meter(IP), shared.meter(IP), shared.meter("192.0.2.2")
    cut = 0
    for number in range(10_000):
        now = number / 10_000
        if flood.judge(Passed(frames=10), now).flood:
            cut += 1
            flood = shared.meter(IP)
        assert honest.judge(a_call_of_grpcio(), now) == FINE
        assert other.judge(a_call_of_grpcio(), now) == FINE
        if number % 5000 == 0:
            assert honest.judge(Passed(frames=5, bytes=50), now) == FINE
    assert cut > 100


def test_messages_sent_ahead_are_read_more_slowly_and_never_cut() -> None:
    """A client that writes ten thousand small requests at once and waits for all answers."""
    meter, now, waiting = addresses().meter(IP), 0.0, 0
    for _ in range(50):
        verdict = meter.judge(Passed(ahead=200, bytes=10_000), now)
        assert not verdict.flood
        assert verdict.pause_s <= BURST / PER_S
        now += 0.001 + verdict.pause_s
        waiting += 200
    assert now >= (10_000 - 2 * BURST) / PER_S / 2
    for _ in range(waiting):
        assert meter.judge(Passed(messages=2), now) == FINE


def test_pieces_of_a_large_message_pay_for_themselves() -> None:
    meter = addresses().meter(IP)
    for number in range(10_000):
        assert meter.judge(Passed(frames=2, bytes=16_384), number * 1e-4) == FINE


def test_few_addresses_are_remembered_and_the_worst_first() -> None:
    shared = addresses()
    flood = shared.meter(IP)
    assert frames_until_cut([flood], Passed(frames=100), 0.0) > 0
    for number in range(MAX_ADDRESSES + 10):
        shared.meter(f"198.51.{number // 256}.{number % 256}").judge(Passed(frames=1), 0.0)
    assert len(shared._buckets) <= MAX_ADDRESSES
    assert frames_until_cut([shared.meter(IP)], Passed(frames=1), 0.0) < 2 * OWN_BURST


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 300)), max_size=50))
def test_unpaid_frames_of_an_uncut_address_are_bounded(steps: list[tuple[float, int]]) -> None:
    meter, now, sent = addresses().meter(IP), 0.0, 0
    for pause, frames in steps:
        now += pause
        if meter.judge(Passed(frames=frames), now) != FINE:
            return
        sent += frames
        assert sent <= BURST + now * PER_S + 1e-6


def test_a_pause_lasts_as_long_as_the_excess() -> None:
    meter = addresses().meter(IP)
    assert meter.judge(Passed(ahead=BURST), 0.0) == FINE
    assert meter.judge(Passed(ahead=500), 0.0) == Verdict(pause_s=1.0)
    assert meter.judge(Passed(ahead=500), 1.0) == Verdict(pause_s=1.0)


def test_resets_may_come_in_a_burst_and_then_steadily() -> None:
    bucket = LeakyBucket(burst=10, per_s=2.0)
    assert not any(bucket.overflows(100.0) for _ in range(10))
    assert bucket.overflows(100.0)
    assert not any(bucket.overflows(110.0 + second / 2) for second in range(100))
