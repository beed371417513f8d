"""The live events of the node: who publishes them, and what they are made of (decision 0166)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.network import NetworkHandles
from meshnode.domain.peers import role_of
from meshnode.edges.http_node import NodeFacts
from meshnode.services.events import sections
from meshnode.services.events.feed import EventFeed
from meshnode.services.events.generations import GenerationEvents
from meshnode.services.events.watching import Sections, Watcher, serve_events
from meshnode.services.executor import Executor
from meshnode.services.health import Health
from meshnode.services.observing import PathHop
from meshnode.services.pipeline.records import HopRecorder
from meshnode.supervise import Drain, Restarts, Supervisor


@dataclass(frozen=True, slots=True)
class LiveEvents:
    """The feed, and those who are told of generations before the network starts."""

    feed: EventFeed
    generations: GenerationEvents
    hops: HopRecorder

    @classmethod
    def of(cls, node_id: str, held: range) -> LiveEvents:
        """For a node that holds these layers."""
        feed, hops = EventFeed(secrets.token_hex(4)), HopRecorder()
        own = PathHop(node_id, held.start, held.stop - 1)
        hops.observer = generations = GenerationEvents(feed, hops, own)
        return cls(feed, generations, hops)


async def start_events(
    nursery: trio.Nursery,
    run: Supervisor,
    live: LiveEvents,
    *,
    executor: Executor,
    network: NetworkHandles,
    health: Health,
    drain: Drain,
    slot: ChainSlot,
    facts: NodeFacts,
) -> None:
    """Start to watch the owners of the node's state."""
    card = executor.card

    def node() -> dict[str, Any]:
        return {
            "node_id": facts.node_id,
            "version": facts.version,
            "currency": facts.currency,
            "status": "draining" if drain.draining else "running",
            "role": role_of(card.layers, card.num_layers),
            "model": card.name,
            "layers": list(card.layers),
            "total_layers": card.num_layers,
        }

    def state_of_health() -> dict[str, Any]:
        report = health.report()
        return {"healthy": report.healthy, "checks": report.checks}

    async def block(height: int) -> dict[str, Any] | None:
        stored = await slot.ledger().block(height)
        return None if stored is None else sections.block_fields(stored)

    def figures() -> dict[str, Any]:
        return sections.figures(executor, network.hops, network.book, len(network.holder))

    read = Sections(
        node=node,
        health=state_of_health,
        figures=figures,
        training=partial(sections.training_fields, network.training),
        peers=partial(sections.peers_of, network.book),
        ledger=slot.ledger,
        block=block,
    )
    watcher = Watcher(live.feed, read, live.generations)
    live.feed.snapshot = watcher.snapshot
    serve = partial(serve_events, live.feed, watcher, read)
    await nursery.start(partial(run, restarts=Restarts()), "events", serve)
