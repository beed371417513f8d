"""The peers and the network over HTTP (interface 2.1 and 4.1: /peers, /network; decision 0046).

Figures of the network are sums over this node and the peers that it knows now. They are measured,
not taken from others' claims about the network. A peer that reports no memory adds none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, cast

from meshnode.domain.metering import TrainingFigures
from meshnode.domain.peers import parameters_text
from meshnode.domain.tokens import Scope
from meshnode.domain.units import GIBIBYTE, SECOND_NS
from meshnode.http.app import Response, json_response
from meshnode.http.fields import Amount, Count, NodeId, Role, Timestamp
from meshnode.http.routes import Route
from meshnode.http.values import timestamp

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.services.peers import PeerBook

BASE = "/api/v1"


class PeerEntry(TypedDict):
    """Peer entry (interface 2.1)."""

    id: NodeId
    address: str
    role: Role
    layers: list[Count]
    latency_ms: Amount
    connected_since: Timestamp


class Peers(TypedDict):
    """The peers that this node knows."""

    peers: list[PeerEntry]
    total: Count


class NodeCounts(TypedDict):
    """Nodes by role."""

    total: Count
    drivers: Count
    workers: Count
    validators: Count


class Architecture(TypedDict):
    """The shape of the model."""

    layers: Count
    hidden_dim: Count
    parameters: str


class Capacity(TypedDict):
    """Memory of all nodes, in GiB."""

    total_memory_gb: Amount
    used_memory_gb: Amount


class NetworkTraining(TypedDict):
    """The progress of training."""

    epoch: Count
    global_step: Count
    loss: float


class Network(TypedDict):
    """Network statistics (interface 2.1)."""

    nodes: NodeCounts
    architecture: Architecture
    capacity: Capacity
    training: NetworkTraining


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersApi:
    """The owners that the routes ask, and the routes."""

    book: PeerBook
    parameters: int
    """The number of parameters of the whole model."""
    training: Callable[[], TrainingFigures] = TrainingFigures

    async def get_peers(self) -> Response:
        """The peers (interface 2.1)."""
        peers = [_peer(peer) for peer in self.book.peers()]
        answer: Peers = {"peers": peers, "total": len(peers)}
        return json_response(answer)

    async def get_network(self) -> Response:
        """Network statistics (interface 2.1)."""
        own, peers, training = self.book.own, self.book.peers(), self.training()
        roles = Counter([own.role, *(peer.role for peer in peers)])
        capacities = [own.capacity, *(peer.capacity for peer in peers if peer.capacity)]
        answer: Network = {
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
        return json_response(answer)


ROUTES = (
    Route(
        "GET",
        BASE + "/peers",
        PeersApi.get_peers,
        "Other nodes that this one knows",
        Peers,
        name="getPeers",
        scope=Scope.READ,
    ),
    Route(
        "GET",
        BASE + "/network",
        PeersApi.get_network,
        "Network statistics",
        Network,
        name="getNetwork",
        prompt=True,
    ),
)


def _peer(peer: Peer) -> PeerEntry:
    return {
        "id": peer.node_id,
        "address": peer.address,
        "role": cast("Role", peer.role),
        "layers": list(peer.layers),
        "latency_ms": round(peer.latency_ms, 3),
        "connected_since": timestamp(int(peer.connected_since * SECOND_NS)),
    }


def _gb(size: int) -> float:
    return round(size / GIBIBYTE, 3)
