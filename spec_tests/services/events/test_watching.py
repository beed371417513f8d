"""Changes of the node's state become events (decision 0166)."""

from __future__ import annotations

import json
from typing import Any

import trio
import trio.testing

from meshnode.domain.errors import Unavailable
from meshnode.domain.generation import GenerationRequest
from meshnode.services.events.feed import ANYBODY, EventFeed, Visitor
from meshnode.services.events.generations import GenerationEvents
from meshnode.services.events.watching import (
    BLOCKS_TOLD,
    MAX_PEERS,
    Sections,
    Watcher,
    serve_events,
)
from meshnode.services.generation import Generation
from meshnode.services.observing import PathHop
from meshnode.services.pipeline.records import HopRecorder

READER = Visitor("t", reads=True)
OWN = PathHop("a" * 40, 0, 3)


class Node:
    """The state of a node that a test changes."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"node": {"status": "running"}, "health": {"healthy": True}}
        self.peers: list[dict[str, Any]] = []
        self.asked = 0
        self.height = 0
        self.chain = True
        self.grown = trio.Event()
        self.feed = EventFeed("run")
        self.hops = HopRecorder()
        self.generations = GenerationEvents(self.feed, self.hops, OWN)
        self.sections = Sections(
            node=lambda: dict(self.state["node"]),
            health=lambda: dict(self.state["health"]),
            figures=self.figures,
            training=dict,
            peers=lambda: self.peers,
            ledger=self.ledger,
            block=self.block,
        )
        self.watcher = Watcher(self.feed, self.sections, self.generations)
        self.feed.snapshot = self.watcher.snapshot
        self.place = 0

    def figures(self) -> dict[str, Any]:
        self.asked += 1
        return {}

    def ledger(self) -> Node:
        if not self.chain:
            raise Unavailable("no chain")
        return self

    async def wait_beyond(self, height: int) -> int:
        while self.height <= height:
            await self.grown.wait()
        return self.height

    async def block(self, height: int) -> dict[str, Any] | None:
        await trio.lowlevel.checkpoint()
        return {"height": height}

    def grow(self, height: int) -> None:
        self.height = height
        grown, self.grown = self.grown, trio.Event()
        grown.set()

    def told(self, visitor: Visitor = READER) -> list[tuple[str, Any]]:
        """What was published since the last call."""
        self.place, sent = self.feed.take(self.place, visitor)
        return [(event.kind, json.loads(event.data)) for event in sent]


def generation(identifier: str = "gen-1", leave: Any = lambda generation: None) -> Generation:
    return Generation(
        GenerationRequest(prompt="a secret prompt", max_tokens=3),
        id=identifier,
        prompt=[1, 2],
        most_tokens=3,
        opened_at=0.0,
        leave=leave,
    )


def test_only_changes_are_told() -> None:
    node = Node()
    node.watcher.look()
    assert [kind for kind, _ in node.told()] == ["node", "health", "training", "figures"]
    node.watcher.look()
    assert node.told() == []
    node.state["health"] = {"healthy": False}
    node.watcher.look()
    assert node.told() == [("health", {"healthy": False})]


def test_peers_that_come_change_and_go() -> None:
    node = Node()
    node.watcher.look()
    node.told()
    node.peers = [{"id": "a"}, {"id": "b"}]
    node.watcher.look()
    node.peers = [{"id": "a", "role": "driver"}]
    node.watcher.look()
    assert node.told() == [
        ("peer.joined", {"id": "a"}),
        ("peer.joined", {"id": "b"}),
        ("peer.changed", {"id": "a", "role": "driver"}),
        ("peer.left", {"id": "b"}),
    ]
    assert "peers" not in node.watcher.snapshot(ANYBODY)
    assert node.watcher.snapshot(READER)["peers"] == [{"id": "a", "role": "driver"}]


def test_many_peers_are_bounded() -> None:
    node = Node()
    node.peers = [{"id": str(n)} for n in range(MAX_PEERS + 9)]
    assert len(node.watcher.snapshot(READER)["peers"]) == MAX_PEERS


async def test_a_generation_from_its_beginning_over_a_failover_to_its_end() -> None:
    node = Node()
    one = generation()
    observer = node.hops.observer = node.generations
    observer.began(one)
    trace = node.hops.begin(one.id)
    trace.took_path([PathHop("b" * 40, 4, 7)])
    trace.failed("b is gone")
    trace.took_path([PathHop("c" * 40, 4, 7)])
    one.admit(1.0)
    one.advance(b"x", end_of_text=False, now=1.5)
    observer.progress()
    observer.progress()
    assert node.watcher.snapshot(READER)["generations"][0]["completion_tokens"] == 1
    assert "generations" not in node.watcher.snapshot(ANYBODY)
    one.advance(b"y", end_of_text=True, now=2.0)
    observer.ended(one)
    observer.ended(one)
    told = [(kind, data) for kind, data in node.told() if kind.startswith("generation")]
    assert [kind.partition(".")[2] for kind, _ in told] == [
        "began",
        "routed",
        "failover",
        "routed",
        "progress",
        "ended",
    ]
    ended = told[-1][1]
    assert [hop["node_id"][0] for hop in ended["path"]] == ["a", "c"]
    assert (ended["state"], ended["completion_tokens"], ended["failovers"]) == ("finished", 2, 1)
    assert ended["failures"] == ["b is gone"]
    assert "secret" not in json.dumps(told)
    assert node.watcher.snapshot(READER)["generations"] == []
    assert node.watcher.snapshot(READER)["ended"][0]["id"] == one.id


async def test_while_nobody_reads_nothing_is_compared(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node = Node()
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_events, node.feed, node.watcher, node.sections)
        await trio.sleep(10.1)
        assert node.asked == 0
        with node.feed.reader(ANYBODY, "127.0.0.1") as reader:
            await anext(reader)
            assert node.asked == 1
            node.state["node"] = {"status": "draining"}
            [event] = await anext(reader)
            assert event.kind == "node"
        nursery.cancel_scope.cancel()


async def test_blocks_are_told_and_the_latest_of_many(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node = Node()
    node.chain = False
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_events, node.feed, node.watcher, node.sections)
        await trio.sleep(5)
        node.chain = True
        node.grow(1)
        await trio.sleep(2)
        node.grow(500)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    heights = [data["height"] for kind, data in node.told() if kind == "block"]
    assert heights == [1, *range(501 - BLOCKS_TOLD, 501)]
    assert node.watcher.snapshot(ANYBODY)["blocks"][-1] == {"height": 500}
