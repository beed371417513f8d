"""Connections cost little until their clients have said something (decision 0255)."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from meshnode.domain.connections import ConnectionTable
from meshnode.newcomers import Newcomer
from meshnode.turns import Turns

HERE = "127.0.0.1"
WITHIN_S = 5.0


class Arrival:
    """A newcomer, its client's end, and what became of it."""

    def __init__(self) -> None:
        client, served = socket.socketpair()
        self.client = trio.socket.from_stdlib_socket(client)
        self.served = trio.socket.from_stdlib_socket(served)
        self.newcomer = Newcomer(self.served, HERE, Turns().of(HERE))
        self.spoke: bool | None = None

    async def wait(self) -> None:
        self.spoke = await self.newcomer.speaks(WITHIN_S)


async def _speaks(arrival: Arrival) -> None:
    await arrival.client.send(b"GET")


async def _leaves(arrival: Arrival) -> None:
    arrival.client.close()


async def _speaks_and_leaves(arrival: Arrival) -> None:
    await arrival.client.send(b"GET")
    await trio.testing.wait_all_tasks_blocked()
    arrival.client.close()


async def _says_nothing(arrival: Arrival) -> None:
    await trio.sleep(WITHIN_S)


async def _gives_way(arrival: Arrival) -> None:
    arrival.newcomer.evict()


async def _is_drained(arrival: Arrival) -> None:
    arrival.newcomer.drain()


@pytest.mark.parametrize(
    ("happens", "spoke"),
    [
        (_speaks, True),
        (_speaks_and_leaves, True),
        (_leaves, False),
        (_says_nothing, False),
        (_gives_way, False),
        (_is_drained, False),
    ],
)
async def test_a_newcomer_is_served_once_it_has_spoken(
    autojump_clock: trio.testing.MockClock,
    happens: Callable[[Arrival], Awaitable[None]],
    spoke: bool,
) -> None:
    arrival = Arrival()
    with trio.fail_after(2 * WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(arrival.wait)
            await trio.testing.wait_all_tasks_blocked()
            assert arrival.spoke is None
            await happens(arrival)
    assert arrival.spoke is spoke
    if spoke:
        # Nothing was read.
        assert await arrival.served.recv(10) == b"GET"
    arrival.client.close()
    arrival.served.close()


async def test_a_crowd_of_silent_clients_replaces_its_own_oldest() -> None:
    table: ConnectionTable[Newcomer] = ConnectionTable(10, lambda ip: 3)
    crowd = [Arrival() for _ in range(4)]
    replaced = [table.admit(each.newcomer)[1] for each in crowd]
    assert replaced == [None, None, None, crowd[0].newcomer]
    # The one that is served keeps its place.
    served = Arrival()
    table.exchange(crowd[1].newcomer, served.newcomer)
    assert len(table) == 3
    assert served.newcomer in table.of(HERE)
    assert crowd[1].newcomer not in table.of(HERE)
    for each in (*crowd, served):
        each.client.close()
        each.served.close()
