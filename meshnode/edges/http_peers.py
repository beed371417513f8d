"""The peers and the network over HTTP (document, 2.1 and 4.1: /peers, /network; decisions/0046).

Figures of the network are sums over this node and the peers that it knows now: what has been
measured, not what is said of the network elsewhere. A peer that reports no memory adds none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnode.domain.metering import TrainingFigures
from meshnode.domain.peers import parameters_text
from meshnode.http.app import Response, json_response
from meshnode.http.routes import Route
from meshnode.http.values import SECOND_NS, timestamp

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.services.peers import PeerBook

BASE = "/api/v1"
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersApi:
    """The owners that the routes ask, and the routes."""

    book: PeerBook
    parameters: int
    """Of the whole model."""
    training: Callable[[], TrainingFigures] = TrainingFigures

    async def get_peers(self) -> Response:
        """The peers (2.1)."""
        peers = [_peer(peer) for peer in self.book.peers()]
        return json_response({"peers": peers, "total": len(peers)})

    async def get_network(self) -> Response:
        """Network statistics (2.1)."""
        own, peers, training = self.book.own, self.book.peers(), self.training()
        roles = Counter([own.role, *(peer.role for peer in peers)])
        capacities = [own.capacity, *(peer.capacity for peer in peers if peer.capacity)]
        return json_response(
            {
                "nodes": {
                    "total": 1 + len(peers),
                    "drivers": roles["driver"],
                    "workers": roles["worker"],
                    "validators": roles["validator"],
                },
                "architecture": {
                    "layers": own.total_layers,
                    "hidden_dim": own.hidden_dim,
                    "parameters": parameters_text(self.parameters),
                },
                "capacity": {
                    "total_memory_gb": _gb(sum(each.memory_total for each in capacities)),
                    "used_memory_gb": _gb(sum(each.memory_used for each in capacities)),
                },
                "training": {
                    "epoch": training.epoch,
                    "global_step": training.step,
                    "loss": training.loss,
                },
            }
        )


ROUTES = (
    Route("GET", BASE + "/peers", PeersApi.get_peers, auth=True),
    Route("GET", BASE + "/network", PeersApi.get_network),
)


def _peer(peer: Peer) -> dict[str, object]:
    return {
        "id": peer.node_id,
        "address": peer.address,
        "role": peer.role,
        "layers": list(peer.layers),
        "latency_ms": round(peer.latency_ms, 3),
        "connected_since": timestamp(int(peer.connected_since * SECOND_NS)),
    }


def _gb(size: int) -> float:
    return round(size / GIB, 3)
