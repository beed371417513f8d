"""The feed of events: no gap, no queue of a reader, bounds (decision 0166)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack

import pytest
import trio
import trio.testing

from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.services.events.feed import (
    ANYBODY,
    HEARTBEAT_S,
    LIFETIME_S,
    MAX_READERS_OF_ADDRESS,
    SNAPSHOT,
    Audience,
    EventFeed,
    EventReader,
    Numbered,
    Visitor,
)

STRANGER = "192.0.2.1"
CUSTOMER = Visitor("t1", reads=True, wallet=True)
OPERATOR = Visitor("operator", reads=True, wallet=True, operator=True)


def made(room: int = 8, **more: int) -> EventFeed:
    feed = EventFeed("run", room=room, **more)
    feed.snapshot = lambda visitor: {"reads": visitor.reads}
    return feed


def kinds(events: list[Numbered]) -> list[str]:
    return [event.kind for event in events]


async def taken(reader: EventReader) -> list[Numbered]:
    return await anext(reader)


async def test_a_reader_begins_with_the_state_and_goes_on_with_its_changes() -> None:
    feed = made()
    feed.publish("before", {})
    with feed.reader(ANYBODY, STRANGER) as reader:
        assert [(e.id, e.kind, json.loads(e.data)) for e in await taken(reader)] == [
            ("run-1", SNAPSHOT, {"reads": False})
        ]
        feed.publish("a", {"n": 1})
        feed.publish("b", {})
        assert [(e.id, e.kind) for e in await taken(reader)] == [("run-2", "a"), ("run-3", "b")]


async def test_a_reader_that_comes_back_misses_nothing() -> None:
    feed = made()
    for kind in "abc":
        feed.publish(kind, {})
    with feed.reader(ANYBODY, STRANGER, "run-1") as reader:
        assert kinds(await taken(reader)) == ["b", "c"]


@pytest.mark.parametrize(
    "after", ["other-1", "run-9", "run--1", "run-x", "run-", "x", "run-٣", "run-" + "9" * 30]
)
async def test_an_id_that_says_nothing_gets_a_snapshot(after: str) -> None:
    feed = made()
    feed.publish("a", {})
    with feed.reader(ANYBODY, STRANGER, after) as reader:
        assert kinds(await taken(reader)) == [SNAPSHOT]


async def test_a_reader_that_is_too_slow_gets_a_snapshot_and_costs_nothing() -> None:
    feed = made(room=4)
    with feed.reader(ANYBODY, STRANGER) as slow, feed.reader(ANYBODY, STRANGER) as quick:
        await taken(slow)
        await taken(quick)
        for number in range(100):
            feed.publish("n", {"n": number})
            assert kinds(await taken(quick)) == ["n"]
        assert kinds(await taken(slow)) == [SNAPSHOT]
        feed.publish("after", {})
        assert kinds(await taken(slow)) == ["after"]


async def test_what_the_snapshot_publishes_is_not_sent_twice() -> None:
    feed = made()

    def snapshot(visitor: Visitor) -> Mapping[str, object]:
        feed.publish("noticed", {})
        return {}

    feed.snapshot = snapshot
    with feed.reader(ANYBODY, STRANGER) as reader:
        assert kinds(await taken(reader)) == [SNAPSHOT]
        feed.publish("later", {})
        assert kinds(await taken(reader)) == ["later"]


async def test_who_sees_what() -> None:
    feed = made()
    seen = {}
    feed.publish("health", {})
    feed.publish("peer.joined", {}, Audience.READERS)
    feed.publish("charge", {"of": "t1"}, Audience.ACCOUNT, "t1")
    feed.publish("charge", {"of": "t2"}, Audience.ACCOUNT, "t2")
    for visitor in (ANYBODY, CUSTOMER, OPERATOR, Visitor("t1", reads=False, wallet=True)):
        with feed.reader(visitor, STRANGER, "run-0") as reader:
            seen[visitor] = [event.id for event in await taken(reader)]
    assert list(seen.values()) == [
        ["run-1"],
        ["run-1", "run-2", "run-3"],
        ["run-1", "run-2", "run-3", "run-4"],
        ["run-1", "run-3"],
    ]


async def test_silence_is_broken_and_a_stream_ends_after_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    feed = made()
    with feed.reader(ANYBODY, STRANGER) as reader:
        await taken(reader)
        assert await taken(reader) == []
        assert trio.current_time() == HEARTBEAT_S
        assert {len(events) async for events in reader} == {0}
        assert trio.current_time() == LIFETIME_S


async def test_events_that_a_visitor_may_not_see_are_no_sign_of_life(
    autojump_clock: trio.testing.MockClock,
) -> None:
    feed = made()
    with feed.reader(ANYBODY, STRANGER) as reader:
        await taken(reader)
        async with trio.open_nursery() as nursery:

            async def publish() -> None:
                while True:
                    await trio.sleep(1)
                    feed.publish("peer.joined", {}, Audience.READERS)

            nursery.start_soon(publish)
            assert await taken(reader) == []
            assert trio.current_time() == HEARTBEAT_S
            nursery.cancel_scope.cancel()


async def test_readers_are_bounded_in_all_and_by_address() -> None:
    feed = made(max_readers=MAX_READERS_OF_ADDRESS + 2)
    with ExitStack() as held:
        for _ in range(MAX_READERS_OF_ADDRESS):
            held.enter_context(feed.reader(ANYBODY, STRANGER))
        with pytest.raises(RateLimited), feed.reader(ANYBODY, STRANGER):
            pass
        # Programs on this machine share one address, and only the bound of all.
        held.enter_context(feed.reader(ANYBODY, "127.0.0.1"))
        held.enter_context(feed.reader(ANYBODY, "127.0.0.1"))
        with pytest.raises(RateLimited), feed.reader(ANYBODY, "127.0.0.1"):
            pass
    assert feed.readers == 0
    with feed.reader(ANYBODY, STRANGER):
        assert feed.readers == 1


async def test_a_node_that_stops_ends_all_streams() -> None:
    feed = made()
    with feed.reader(ANYBODY, STRANGER) as reader:
        await taken(reader)
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                assert [events async for events in reader] == []

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            feed.close()
    with pytest.raises(Unavailable), feed.reader(ANYBODY, STRANGER):
        pass


async def test_a_cancelled_reader_leaves_its_place() -> None:
    feed = made()
    with trio.CancelScope() as scope, feed.reader(ANYBODY, STRANGER) as reader:
        await taken(reader)
        scope.cancel()
        await taken(reader)
    assert scope.cancelled_caught
    assert feed.readers == 0


def test_the_ring_is_bounded_whatever_is_published() -> None:
    feed = made(room=4)
    for number in range(1000):
        feed.publish("n", {"n": number})
    assert feed.take(996, ANYBODY)[0] == 1000
    assert kinds(feed.take(995, ANYBODY)[1]) == [SNAPSHOT]
