"""What an address may use of the event loop's time beside those who pay (decision 0141)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.processor_time import (
    BURST_S,
    MAX_ADDRESSES,
    MAX_WAIT_S,
    PARTS,
    AddressTime,
    ProcessorTime,
    part_of,
)
from meshnode.domain.shares import Requester, Standing

CUSTOMER = Requester(Standing.PAYING, "an account")
PEER = Requester(Standing.PEER, "192.0.2.1")
FREE = Requester(Standing.FREE, "192.0.2.9")
PART = PARTS[Standing.PAYING]


def test_the_part_beside_rivals() -> None:
    assert part_of("192.0.2.7", []) is None
    assert part_of("192.0.2.7", [FREE]) is None
    assert part_of("192.0.2.7", [PEER]) == PARTS[Standing.PEER]
    assert part_of("192.0.2.7", [PEER, CUSTOMER]) == PART


def test_a_peer_is_not_its_own_rival() -> None:
    assert part_of("192.0.2.1", [PEER]) is None
    assert part_of("192.0.2.1", [PEER, CUSTOMER]) == PART


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 0.05)), max_size=200))
def test_no_address_uses_more_than_its_part(steps: list[tuple[float, float]]) -> None:
    address, now, used = AddressTime("x"), 10.0, 0.0
    for pause, step in steps:
        now += pause
        waits = address.wait_s(PART, now)
        assert waits <= MAX_WAIT_S
        now += waits
        assert address.wait_s(PART, now) < 1e-9
        address.used_s += step
        used += step
        # The step that begins within the limit may end beyond it.
        assert used <= BURST_S + 0.05 + (now - 10.0) * PART + 1e-6


def test_what_is_owed_is_bounded() -> None:
    address = AddressTime("x")
    address.used_s = 100.0
    assert address.wait_s(PART, 0.0) == pytest.approx(MAX_WAIT_S)
    assert address.wait_s(PART, MAX_WAIT_S) == 0.0


def test_an_ipv6_network_counts_as_one() -> None:
    times = ProcessorTime()
    assert times.of("2001:db8::1", 0.0) is times.of("2001:db8::2", 0.0)
    assert times.of("192.0.2.1", 0.0) is not times.of("192.0.2.2", 0.0)


def test_addresses_that_owe_nothing_are_forgotten_first() -> None:
    times = ProcessorTime()
    debtor = times.of("198.51.100.1", 0.0)
    debtor.used_s = 1.0
    debtor.wait_s(PART, 0.0)
    first = times.of("192.0.2.1", 0.0)
    for number in range(MAX_ADDRESSES):
        times.of(f"10.0.{number // 256}.{number % 256}", 0.0)
    assert times.of("198.51.100.1", 0.0) is debtor
    assert times.of("192.0.2.1", 0.0) is not first
