"""The order of messages that are sent ahead (decision 0230)."""

from __future__ import annotations

import pytest
import trio

from meshnode.domain.errors import InvalidRequest, RateLimited
from meshnode.services.shards.flights import (
    BEGIN_S,
    SESSION_MESSAGES,
    Flight,
    FlightOrder,
    MessageSuperseded,
)
from meshnode.services.shards.messages import SessionBehind

FIRST = Flight(0, 0)


class Computer:
    """Computes messages in the order in which they pass, a second each."""

    def __init__(self) -> None:
        self.order = FlightOrder()
        self.computed: list[tuple[int, int]] = []
        self.failures: list[Exception] = []

    async def message(self, flight: Flight, start: int, stop: int, after_s: float = 0.0) -> None:
        await trio.sleep(after_s)
        try:
            await self.order.wait_turn(flight, start, begun=True)
        except (SessionBehind, RateLimited) as error:
            self.failures.append(error)
            return
        await trio.sleep(1)
        self.computed.append((start, stop))
        self.order.computed(flight, stop)


async def test_messages_are_computed_by_their_positions(autojump_clock: object) -> None:
    computer = Computer()
    async with trio.open_nursery() as nursery:
        for start, after_s in ((8, 0.0), (4, 0.1), (0, 0.2)):
            nursery.start_soon(computer.message, FIRST, start, start + 4, after_s)
    assert computer.computed == [(0, 4), (4, 8), (8, 12)]


async def test_a_later_epoch_cuts_off_what_waits(autojump_clock: object) -> None:
    computer = Computer()
    async with trio.open_nursery() as nursery:
        for start in (0, 4, 8, 12):
            nursery.start_soon(computer.message, FIRST, start, start + 4)
        # The guess at position 6 was wrong. The second message overtakes the first one.
        nursery.start_soon(computer.message, Flight(1, 6), 8, 12, 2.5)
        nursery.start_soon(computer.message, Flight(1, 6), 6, 8, 2.6)
    assert [type(each) for each in computer.failures] == [MessageSuperseded]
    # The message of positions 8 to 12 was being computed when the epoch began.
    assert computer.computed == [(0, 4), (4, 8), (8, 12), (6, 8), (8, 12)]


async def test_no_more_messages_wait_than_were_promised(autojump_clock: object) -> None:
    computer = Computer()
    async with trio.open_nursery() as nursery:
        for place in range(SESSION_MESSAGES + 1):
            nursery.start_soon(computer.message, FIRST, 4 + place, 5 + place)
        await trio.testing.wait_all_tasks_blocked()
        assert [type(each) for each in computer.failures] == [RateLimited]
        computer.order.end()
    assert computer.order.waiting == 0


async def test_a_session_that_never_begins_is_not_waited_for(autojump_clock: object) -> None:
    began = trio.current_time()
    with pytest.raises(SessionBehind):
        await FlightOrder().wait_turn(FIRST, 4, begun=False)
    assert trio.current_time() - began == pytest.approx(BEGIN_S)


def test_the_metadata_is_read_back_or_refused() -> None:
    assert Flight.read(str(Flight(3, 77)), "flight") == Flight(3, 77)
    for text in ("", "1", "1:", ":1", "-1:2", "1:2:3", "9999999999999:1", "a:b"):
        with pytest.raises(InvalidRequest):
            Flight.read(text, "flight")
