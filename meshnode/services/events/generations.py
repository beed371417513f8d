"""Events of generations: begun, routed, failed over, ended (decision 0166).

Invariant: what is told of a generation is how much and where, never a word of its prompt or text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from meshnode.services.events.feed import Audience, EventFeed
from meshnode.services.observing import PathHop

if TYPE_CHECKING:
    from meshnode.services.generation import Generation
    from meshnode.services.pipeline.records import HopRecorder

SHOWN = 64
"""Generations in one event or snapshot, the oldest first. More may be open, and are counted."""
SHOWN_FAILURES = 16
ENDED_KEPT = 16
"""Generations that have ended and are still in a snapshot."""

Fields = dict[str, Any]


@dataclass(slots=True, eq=False)
class _Open:
    generation: Generation
    began_ms: int
    path: list[Fields] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    failed_over: int = 0
    told_tokens: int = 0

    def fields(self) -> Fields:
        generation = self.generation
        usage = generation.usage
        return {
            "id": generation.id,
            "state": generation.state.value,
            "began_ms": self.began_ms,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "max_tokens": generation.most_tokens,
            "path": self.path,
            "failovers": self.failed_over,
            "failures": self.failures,
        }


class GenerationEvents:
    """A :class:`~meshnode.services.observing.GenerationObserver` that publishes what it is told."""

    def __init__(self, feed: EventFeed, hops: HopRecorder, own: PathHop) -> None:
        """``own`` is this node and its layers, the first hop of every path."""
        self._feed = feed
        self._hops = hops
        self._own = own
        # Bounded like the generations: by the places of the batch and those of the queue.
        self._open: dict[str, _Open] = {}
        self._ended: list[Fields] = []

    def began(self, generation: Generation) -> None:
        """A generation was taken into the queue."""
        now = _Open(generation, int(time.time() * 1000))
        now.path = [_hop(self._own)]
        self._open[generation.id] = now
        self._publish("generation.began", now.fields())

    def routed(self, generation_id: str, hops: Sequence[PathHop]) -> None:
        """A generation goes over these remote holders from now on."""
        found = self._open.get(generation_id)
        if found is not None:
            found.path = [_hop(self._own), *map(_hop, hops)]
            self._publish("generation.routed", {"id": generation_id, "path": found.path})

    def failed_over(self, generation_id: str, reason: str) -> None:
        """A generation leaves its path."""
        found = self._open.get(generation_id)
        if found is not None:
            found.failed_over += 1
            if len(found.failures) < SHOWN_FAILURES:
                found.failures.append(reason)
            data = {"id": generation_id, "reason": reason, "path": found.path}
            self._publish("generation.failover", data)

    def ended(self, generation: Generation) -> None:
        """A generation has ended, however it ended."""
        found = self._open.pop(generation.id, None)
        if found is None:
            return
        timing = generation.timing(trio.current_time())
        trace = self._hops.trace(generation.id)
        data = found.fields() | {
            "queue_ms": round(timing.queue_ms, 1),
            "inference_ms": round(timing.inference_ms, 1),
            "hops": trace.fields()["hops"] if trace is not None else [],
        }
        self._ended = [*self._ended, data][-ENDED_KEPT:]
        self._publish("generation.ended", data)

    def progress(self) -> None:
        """Tell how far the open generations are, if any has gone further since the last time."""
        moved: dict[str, int] = {}
        for identifier, found in self._open.items():
            tokens = found.generation.usage.completion_tokens
            if tokens != found.told_tokens and len(moved) < SHOWN:
                found.told_tokens = moved[identifier] = tokens
        if moved:
            self._publish("generation.progress", {"completion_tokens": moved})

    def open(self) -> list[Fields]:
        """The open generations, for a snapshot."""
        return [found.fields() for found in list(self._open.values())[:SHOWN]]

    def latest(self) -> list[Fields]:
        """The latest that have ended, for a snapshot."""
        return self._ended

    def _publish(self, kind: str, data: Fields) -> None:
        self._feed.publish(kind, data, Audience.READERS)


def _hop(hop: PathHop) -> Fields:
    return {"node_id": hop.node_id, "first": hop.first, "last": hop.last}
