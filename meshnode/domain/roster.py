"""The list of peers, and when one enters or leaves it (interface 2.1: Peer; decision 0046).

Terms: a *beat* is one call to a peer, repeated every BEAT_S; a beat is *missed* when it is not
answered under the peer's own id. A peer is *suspected* when another call to it failed. A
*candidate* is a node that was reported at an address and has not answered this node there.

=========  ==========================================  =========  ================================
node       event                                       next       other effect
=========  ==========================================  =========  ================================
(none)     answers, and there is room                  known
known      answers                                     known      misses forgotten
known      misses MAX_MISSES beats in a row            (none)     not tried there for a while
known      misses one while suspected                  (none)     the same
known      suspected                                   known      its beat is due at once
known      said to be at another address               known      its beat is due at once
=========  ==========================================  =========  ================================

Invariants: a node id is in the roster once, at one address, and keeps it while that address
answers; the roster has at most MAX_PEERS peers, and a peer that answers is never replaced by a
newcomer; no address that failed is tried again within RETRY_BEATS beats, unless it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from meshnode.domain.peers import Capacity, Peer, ShardInfo

MAX_PEERS = 256
"""As many as the connections that a server accepts. Their beats are 50 small calls a second."""
BEAT_S = 5.0
MAX_MISSES = 2
RETRY_BEATS = 3
CHECK_AGAIN_S = 1.0
"""Reports of another address make a peer's beat due no sooner than this after the last one."""
CLOCK_FRESH_S = 60.0
"""A report tells a peer's clock for this long, which is four reports."""
MAX_FAILED = 1024
NEWEST = 0.25
"""Weight of the newest measurement in the average latency."""


@dataclass(slots=True)
class Entry:
    """A known peer. Times are seconds of a monotonic clock."""

    peer: Peer
    due_at: float
    misses: int = 0
    suspected: bool = False
    beaten_at: float = field(default=float("-inf"))
    """When its last beat began."""
    reported_at: float = 0.0
    """The time of its newest report, by the peer's own clock."""
    heard_at: float = field(default=float("-inf"))
    """When that report came."""


class Roster:
    """The known peers."""

    def __init__(self, own_id: str, *, most: int = MAX_PEERS, beat_s: float = BEAT_S) -> None:
        self._own_id = own_id
        self._most = most
        self._beat_s = beat_s
        self._entries: dict[str, Entry] = {}
        self._failed: dict[tuple[str, str, int], float] = {}
        """Until when each node and address must not be tried again; the oldest first."""

    def __len__(self) -> int:
        """How many peers are known."""
        return len(self._entries)

    def peers(self) -> list[Peer]:
        """All known peers, those known longest first."""
        return [entry.peer for entry in self._entries.values()]

    def get(self, node_id: str) -> Peer | None:
        """The peer with this id."""
        entry = self._entries.get(node_id)
        return entry.peer if entry else None

    def holders(self, layer: int, model_hash: str) -> list[Peer]:
        """Peers with this layer of this model, the nearest first; suspected ones come last.

        Those that are about to free the model's weights are among them.
        """
        return self._nearest(lambda peer: layer in peer.layers and peer.computes(model_hash))

    def kin(self, layer: int, lineage: str) -> list[Peer]:
        """Peers with this layer of weights that were trained from a model, in the same order."""
        return self._nearest(lambda peer: layer in peer.layers and peer.lineage == lineage)

    def _nearest(self, wanted: Callable[[Peer], bool]) -> list[Peer]:
        entries = [entry for entry in self._entries.values() if wanted(entry.peer)]
        entries.sort(key=lambda entry: (entry.suspected, entry.peer.latency_ms))
        return [entry.peer for entry in entries]

    def due(self, now: float) -> list[Peer]:
        """Peers to call now. Report each to :meth:`answered` or :meth:`missed`."""
        due = [entry for entry in self._entries.values() if entry.due_at <= now]
        for entry in due:
            entry.due_at, entry.beaten_at = now + self._beat_s, now
        return [entry.peer for entry in due]

    def worth_trying(self, node_id: str, host: str, port: int, now: float) -> bool:
        """Whether to call a candidate. Report the call to :meth:`answered` or :meth:`missed`."""
        # This node is not its own peer.
        if node_id == self._own_id:
            return False
        entry = self._entries.get(node_id)
        if entry is not None:
            # An id keeps its address while that answers, so the next beat checks the old address.
            if (entry.peer.host, entry.peer.port) != (host, port):
                self._check(entry, now)
            return False
        if len(self._entries) >= self._most:
            return False
        return self._failed.get((node_id, host, port), now) <= now

    def answered(
        self, info: ShardInfo, host: str, port: int, latency_ms: float, now: float, wall: float
    ) -> bool:
        """Record an answer under the id that was called. Returns whether something changed.

        ``wall`` is in seconds since 1970. Latency and capacity do not count as a change.
        """
        entry = self._entries.get(info.node_id)
        if entry is None:
            return self._take_in(info, host, port, latency_ms, now, wall)
        if (entry.peer.host, entry.peer.port) != (host, port):
            return False
        entry.misses, entry.suspected = 0, False
        before = entry.peer
        entry.peer = replace(
            _peer(info, host, port, before.connected_since),
            latency_ms=before.latency_ms + NEWEST * (latency_ms - before.latency_ms),
        )
        return _shape(before) != _shape(entry.peer)

    def missed(self, node_id: str, host: str, port: int, now: float) -> bool:
        """Record a call without a proper answer. Returns whether the peer was removed."""
        entry = self._entries.get(node_id)
        if entry is None or (entry.peer.host, entry.peer.port) != (host, port):
            self._note_failed((node_id, host, port), now)
            return False
        entry.misses += 1
        if entry.misses < MAX_MISSES and not entry.suspected:
            return False
        del self._entries[node_id]
        self._note_failed((node_id, host, port), now)
        return True

    def look_again(self, node_id: str, now: float) -> None:
        """Let the peer's beat be due."""
        entry = self._entries.get(node_id)
        if entry is not None:
            entry.due_at = now

    def suspect(self, node_id: str, now: float) -> None:
        """Record a failed call: the peer's beat is due, and one miss now removes the peer."""
        entry = self._entries.get(node_id)
        if entry is not None:
            entry.suspected = True
            entry.due_at = now

    def heard_from(self, node_id: str, host: str, port: int, now: float) -> None:
        """Note that this address claims the id: it may be tried, unless a peer has the id.

        If that peer is known at another address, its beat is due.
        """
        self._failed.pop((node_id, host, port), None)
        self.worth_trying(node_id, host, port, now)

    def reported(
        self, node_id: str, host: str, port: int, capacity: Capacity, timestamp: float, now: float
    ) -> str:
        """Accept a peer's report about itself, or return why not; ``timestamp`` is its own time."""
        entry = self._entries.get(node_id)
        if entry is None:
            return "not a known peer"
        # A report counts only if it comes from the address where the node is known.
        if (entry.peer.host, entry.peer.port) != (host, port):
            return "the peer is known at another address"
        # An older report never replaces a newer one, unless there was none for a while: a peer
        # whose clock has been set back has nothing newer to report.
        if timestamp <= entry.reported_at and now - entry.heard_at <= CLOCK_FRESH_S:
            return "a newer report is known"
        entry.reported_at, entry.heard_at = timestamp, now
        entry.peer = replace(entry.peer, capacity=capacity)
        return ""

    def clocks(self, now: float) -> list[float]:
        """What the clocks of peers show now, in seconds since 1970, by their latest reports."""
        return [
            entry.reported_at + now - entry.heard_at
            for entry in self._entries.values()
            if now - entry.heard_at <= CLOCK_FRESH_S
        ]

    def _take_in(
        self, info: ShardInfo, host: str, port: int, latency_ms: float, now: float, wall: float
    ) -> bool:
        # A peer that answers is never replaced by a newcomer.
        if info.node_id == self._own_id or len(self._entries) >= self._most:
            return False
        self._failed.pop((info.node_id, host, port), None)
        # First beats are spread by id, so that peers found together are not all called together.
        first = now + self._beat_s * (0.5 + int(info.node_id[:2], 16) / 510)
        peer = replace(_peer(info, host, port, wall), latency_ms=latency_ms)
        self._entries[info.node_id] = Entry(peer, first, beaten_at=now)
        return True

    def _check(self, entry: Entry, now: float) -> None:
        entry.due_at = min(entry.due_at, max(now, entry.beaten_at + CHECK_AGAIN_S))

    def _note_failed(self, where: tuple[str, str, int], now: float) -> None:
        self._failed.pop(where, None)
        if len(self._failed) >= MAX_FAILED:
            del self._failed[next(iter(self._failed))]
        self._failed[where] = now + RETRY_BEATS * self._beat_s


def _peer(info: ShardInfo, host: str, port: int, since: float) -> Peer:
    return Peer(
        node_id=info.node_id,
        host=host,
        port=port,
        role=info.role,
        layers=info.layers,
        total_layers=info.total_layers,
        model_hash=info.model_hash,
        latency_ms=0.0,
        connected_since=since,
        capacity=info.capacity,
        numeric_class=info.numeric_class,
        origin_hash=info.origin_hash,
        weights_version=info.weights_version,
        model_hashes=info.model_hashes,
        layer_ms=info.layer_ms,
        move=info.move,
        leaving=info.leaving,
    )


def _shape(peer: Peer) -> tuple[object, ...]:
    held = peer.layers, peer.total_layers, peer.model_hash, peer.numeric_class
    return *held, peer.model_hashes, peer.origin_hash, peer.weights_version
