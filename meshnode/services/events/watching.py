"""Notices changes of the node's state and publishes them (decision 0166).

Terms: a *section* is a part of the state that is shown as a whole, such as ``health``. The watcher
compares each with what it has told last.

Invariants: while nobody reads, nothing is compared; a snapshot shows what the events before it
have told, since both come from the same values.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from meshnode.domain.errors import Unavailable
from meshnode.services.events.feed import Audience, EventFeed, Visitor
from meshnode.services.events.generations import GenerationEvents

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
CHAIN_EVERY_S = 1.0
"""Pause before looking again for a chain that has not come up, or after its ledger failed."""
MAX_PEERS = 256
"""Peers in a snapshot, and watched. More are counted."""
BLOCKS_KEPT = 12
BLOCKS_TOLD = 4
"""Blocks told at once. A node that catches up tells the latest; the others can be fetched."""
BLOCK_PAUSE_S = 0.2

Fields = dict[str, Any]
Section = Callable[[], Mapping[str, Any]]


class Blocks(Protocol):
    """The part of a ledger that is watched."""

    @property
    def height(self) -> int:
        """The height of the latest block."""

    async def wait_beyond(self, height: int) -> int:
        """Wait until the chain is higher than ``height``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Where the state is read. Each is asked some times a second and must be quick."""

    node: Section
    health: Section
    figures: Section
    training: Section
    peers: Callable[[], Iterable[Fields]]
    """Entries with a unique ``id``."""
    ledger: Callable[[], Blocks]
    """Raises Unavailable while there is no chain."""
    block: Callable[[int], Any]
    """An awaitable with the fields of the block at a height, or None."""


class Watcher:
    """Compares the sections with what was told last."""

    def __init__(self, feed: EventFeed, sections: Sections, generations: GenerationEvents) -> None:
        self._feed = feed
        self._sections = sections
        self._generations = generations
        self._told: dict[str, Mapping[str, Any]] = {}
        self._peers: dict[str, Fields] = {}
        self._blocks: deque[Fields] = deque(maxlen=BLOCKS_KEPT)

    def look(self) -> None:
        """Publish what has changed since the last look."""
        for name in ("node", "health", "training", "figures"):
            section: Section = getattr(self._sections, name)
            value = section()
            if value != self._told.get(name):
                self._told[name] = value
                self._feed.publish(name, value)
        self._look_at_peers()
        self._generations.progress()

    def snapshot(self, visitor: Visitor) -> Fields:
        """The state now, as far as ``visitor`` may see it."""
        self.look()
        state: Fields = {**self._told, "blocks": list(self._blocks)}
        if visitor.reads:
            state["peers"] = list(self._peers.values())
            state["generations"] = self._generations.open()
            state["ended"] = self._generations.latest()
        return state

    def add_block(self, block: Fields) -> None:
        """Tell of a block."""
        self._blocks.append(block)
        self._feed.publish("block", block)

    @property
    def height(self) -> int:
        """The height of the latest block that was told; 0 before the first."""
        return int(self._blocks[-1]["height"]) if self._blocks else 0

    def _look_at_peers(self) -> None:
        seen: dict[str, Fields] = {}
        for peer in self._sections.peers():
            if len(seen) == MAX_PEERS:
                break
            seen[peer["id"]] = peer
        for identifier, peer in seen.items():
            known = self._peers.get(identifier)
            if known != peer:
                kind = "peer.joined" if known is None else "peer.changed"
                self._feed.publish(kind, peer, Audience.READERS)
        for identifier in self._peers.keys() - seen.keys():
            self._feed.publish("peer.left", {"id": identifier}, Audience.READERS)
        self._peers = seen


async def serve_events(
    feed: EventFeed,
    watcher: Watcher,
    sections: Sections,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Publish changes until cancelled."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch_blocks, watcher, sections)
        task_status.started()
        while True:
            await trio.sleep(LOOK_EVERY_S)
            if feed.readers:
                watcher.look()


async def _watch_blocks(watcher: Watcher, sections: Sections) -> None:
    while True:
        try:
            height = await sections.ledger().wait_beyond(watcher.height)
            for number in range(max(watcher.height + 1, height - BLOCKS_TOLD + 1), height + 1):
                block = await sections.block(number)
                if block is not None:
                    watcher.add_block(block)
            await trio.sleep(BLOCK_PAUSE_S)
        except Unavailable:
            await trio.sleep(CHAIN_EVERY_S)
