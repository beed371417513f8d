"""Paths over the peers that hold the layers that this node lacks (decision 0036)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnode.domain.errors import LayersUnavailable
from meshnode.domain.routing import (
    Holder,
    choose_path,
    longest_run,
    missing_layers,
    spell_layers,
)

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.services.peers import PeerBook


@dataclass(frozen=True, slots=True)
class RemoteHop:
    """A hop of a path: layers ``first`` to ``last``, both included, at an address."""

    node_id: str
    host: str
    grpc_port: int
    first: int
    last: int

    @property
    def address(self) -> str:
        """``host:port`` of the gRPC interface, an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.grpc_port}"


class Routes:
    """Chooses paths, and counts this node's own sessions at each peer.

    The load that peers report is seconds old: a driver that relied on it alone would send a whole
    burst of sessions to the same holder.
    """

    def __init__(self, book: PeerBook, first: int, total: int) -> None:
        """Paths over layers ``first`` to ``total - 1``."""
        self.first = first
        self.total = total
        self._book = book
        self._own: Counter[str] = Counter()

    def choose(self, excluded: Collection[str] = ()) -> tuple[RemoteHop, ...] | None:
        """The cheapest path without the ``excluded`` nodes; None if there is no path."""
        peers = self._peers()
        path = choose_path(self._holders(peers), self.first, self.total, excluded)
        if path is None:
            return None
        return tuple(
            RemoteHop(
                hop.node_id,
                peers[hop.node_id].host,
                peers[hop.node_id].grpc_port,
                hop.first,
                hop.last,
            )
            for hop in path
        )

    def unavailable(self, excluded: Collection[str] = ()) -> LayersUnavailable:
        """The error that names the layers without a holder."""
        holders = self._holders(self._peers())
        missing = missing_layers(holders, self.first, self.total, excluded)
        return LayersUnavailable(
            f"no reachable node holds layers {spell_layers(missing)}"
            if missing
            else "no path through the layers' holders"
        )

    def enter(self, path: Sequence[RemoteHop]) -> None:
        """A session begins on ``path``."""
        self._own.update(hop.node_id for hop in path)

    def leave(self, path: Sequence[RemoteHop]) -> None:
        """A session on ``path`` has ended."""
        self._own.subtract(hop.node_id for hop in path)
        self._own += Counter()

    def _peers(self) -> dict[str, Peer]:
        layers = range(self.first, self.total)
        return {peer.node_id: peer for layer in layers for peer in self._book.holders(layer)}

    def _holders(self, peers: dict[str, Peer]) -> list[Holder]:
        holders = []
        for peer in peers.values():
            run = longest_run(peer.layers)
            if run:
                load = self._load(peer)
                holders.append(Holder(peer.node_id, run.start, run.stop - 1, peer.latency_ms, load))
        return holders

    def _load(self, peer: Peer) -> int:
        capacity = peer.capacity
        reported = capacity.queue_depth + capacity.active_sessions if capacity is not None else 0
        return max(reported, self._own[peer.node_id])
