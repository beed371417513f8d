"""Paths over the peers that hold the layers which this node lacks (decisions/0036)."""

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
    from meshnode.services.pipeline.ports import Book, Peer


@dataclass(frozen=True, slots=True)
class Stop:
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
    """Chooses paths, and knows how many of this node's own sessions each peer has.

    Reports of peers are seconds old. A driver that goes by them alone would send all of a burst
    to the same holder.
    """

    def __init__(self, book: Book, first: int, total: int) -> None:
        """Paths over layers ``first`` to ``total - 1``."""
        self.first = first
        self.total = total
        self._book = book
        self._own: Counter[str] = Counter()

    def choose(self, excluded: Collection[str] = ()) -> tuple[Stop, ...] | None:
        """The cheapest path that meets none of the ``excluded`` nodes."""
        peers = self._peers()
        path = choose_path(self._holders(peers), self.first, self.total, excluded)
        if path is None:
            return None
        return tuple(
            Stop(
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

    def enter(self, path: Sequence[Stop]) -> None:
        """A session begins on ``path``."""
        self._own.update(stop.node_id for stop in path)

    def leave(self, path: Sequence[Stop]) -> None:
        """A session on ``path`` has ended."""
        self._own.subtract(stop.node_id for stop in path)
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
        told = peer.capacity
        reported = told.queue_depth + told.active_sessions if told is not None else 0
        return max(reported, self._own[peer.node_id])
