"""What a holder keeps of messages that train: graphs, and sums of gradients (decision 0035).

Invariants: graphs and sums are bounded in number, bytes and time; a sum has the gradients of one
caller only; messages that no member has signed give way to those of members (decision 0137).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from meshnode.domain.errors import InvalidRequest, RateLimited
from meshnode.services.shards.graphs import Gradients, GradientSum, KeptGraph
from meshnode.services.shards.stepping import add_to, added

Key = tuple[str, str]
"""The ids of session and request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLimits:
    """Bounds on what training keeps. Times are in seconds."""

    graphs: int = 16
    graph_bytes: int = 512 * 1024 * 1024
    """Bytes of all graphs together, estimated before they are made."""
    gradient_sets: int = 2
    """Sessions whose gradients are kept: those of one session are as large as the weights."""
    idle_s: float = 60.0


class KeptGraphs:
    """The graphs and sums of one holder. Times are seconds of a monotonic clock."""

    def __init__(self, limits: TrainingLimits) -> None:
        self.limits = limits
        self._graphs: dict[Key, KeptGraph] = {}
        self._making: dict[Key, int] = {}
        """Estimated bytes of graphs that are being made."""
        self._used: set[KeptGraph] = set()
        """Graphs whose gradients are on their way back."""
        self._sums: dict[str, GradientSum] = {}

    @property
    def bytes_in_use(self) -> int:
        """Estimated memory of graphs."""
        kept = (*self._graphs.values(), *self._used)
        return sum(self._making.values()) + sum(each.size for each in kept)

    @property
    def busy(self) -> bool:
        """Whether a graph is being made or used now."""
        return bool(self._making or self._used)

    def get(self, key: Key) -> KeptGraph | None:
        """The graph of a message."""
        return self._graphs.get(key)

    def put(self, key: Key, kept: KeptGraph) -> None:
        """Keep a graph."""
        self._graphs[key] = kept

    def discard(self, key: Key) -> bool:
        """Drop a graph. Returns whether there was one."""
        return self._graphs.pop(key, None) is not None

    def clear(self) -> None:
        """Drop all graphs that wait for their gradients."""
        self._graphs.clear()

    @contextmanager
    def making(self, key: Key, size: int, member: str, now: float) -> Iterator[None]:
        """Take room for a graph of ``size`` bytes while it is made, and used at the last holder.

        Raises InvalidRequest or RateLimited if there is none.
        """
        if size > self.limits.graph_bytes:
            raise InvalidRequest("hidden_shape", "is too large to train with here")
        if key in self._graphs or key in self._making:
            raise InvalidRequest("request_id", "was used in this session before")
        total = self._sums.get(key[0])
        if total is not None and total.member != member:
            raise InvalidRequest("session_id", "is another caller's")
        self.expire(now)
        if member:
            self._make_room(key[0], size)
        if not self._has_room(size):
            raise RateLimited(1, "no more graphs here")
        if not self._has_room_for_sum(key[0]):
            raise RateLimited(1, "no more sessions train here")
        self._making[key] = size
        try:
            yield
        finally:
            del self._making[key]

    @contextmanager
    def using(self, key: Key) -> Iterator[None]:
        """Take a graph, which still counts until it has been used."""
        kept = self._graphs.pop(key)
        self._used.add(kept)
        try:
            yield
        finally:
            self._used.remove(kept)

    def expire(self, now: float) -> None:
        """Drop graphs and gradients that have not been used for ``idle_s``."""
        oldest = now - self.limits.idle_s
        for key, kept in list(self._graphs.items()):
            if kept.made_at <= oldest:
                del self._graphs[key]
        for name, total in list(self._sums.items()):
            if total.touched <= oldest:
                del self._sums[name]

    def sum_with(self, session_id: str, gradients: Gradients, member: str) -> Gradients:
        """The gradients, plus the session's so far if they are the same member's."""
        earlier = self._sums.get(session_id)
        if earlier is None or earlier.member != member:
            return gradients
        return added(earlier.gradients, gradients)

    def add(self, session_id: str, gradients: Gradients, member: str, now: float) -> None:
        """Add to the session's sum."""
        total = self._sums.get(session_id)
        if total is None:
            if len(self._sums) >= self.limits.gradient_sets:
                del self._sums[min(self._sums, key=lambda name: self._sums[name].touched)]
            self._sums[session_id] = GradientSum(dict(gradients), now, member)
        elif total.member == member:
            # Otherwise two callers have used one id at the same time: the first one keeps it.
            total.touched = now
            add_to(total.gradients, gradients)

    def pop_sum(self, session_id: str) -> Gradients | None:
        """Remove and return the sum of a session's gradients; None if there are none."""
        found = self._sums.pop(session_id, None)
        return None if found is None else found.gradients

    def forget(self) -> None:
        """Drop all graphs and sums that nobody uses now."""
        self._graphs.clear()
        self._sums.clear()

    def _make_room(self, session_id: str, size: int) -> None:
        """Drop what no member has signed, the oldest first, as far as it is in the way."""
        strangers = [key for key, kept in self._graphs.items() if not kept.member]
        while strangers and not self._has_room(size):
            del self._graphs[strangers.pop(0)]
        unsigned = [name for name, total in self._sums.items() if not total.member]
        while unsigned and not self._has_room_for_sum(session_id):
            del self._sums[unsigned.pop(0)]

    def _has_room(self, size: int) -> bool:
        graphs = len(self._graphs) + len(self._making) + len(self._used)
        return graphs < self.limits.graphs and self.bytes_in_use + size <= self.limits.graph_bytes

    def _has_room_for_sum(self, session_id: str) -> bool:
        return session_id in self._sums or len(self._sums) < self.limits.gradient_sets
