"""What nodes report about themselves over gRPC (interface 4.3: GetShardInfo, GetSwarmStatus,
UpdatePeerCapacity; decisions 0017, 0018, 0046).

Invariant: a report is accepted only from a known peer, about itself, and from the address at which
this node knows it; facts that GetShardInfo gives are never taken from a report.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.peers import check_capacity, check_node_id
from meshnode.rpc.caller import caller
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.services.peers import (
    PeerBook,
    capacity_in,
    capacity_message,
    shard_info_message,
)
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.supervise import Drain


SHARED_S = 0.01
"""How old the answer to GetShardInfo may be. To make it takes an eighth of the time of a call."""


class PeersServicer(NodeServiceServicer):
    """GetShardInfo, GetSwarmStatus and UpdatePeerCapacity."""

    def __init__(
        self,
        *,
        book: PeerBook,
        drain: Drain,
        training: Callable[[], pb.TrainingStatus | None] = lambda: None,
    ) -> None:
        """Answer from ``book``, and from this node's ``training``."""
        self._training = training
        self._book = book
        self._drain = drain
        self._own = pb.GetShardInfoResponse()
        self._own_until = -math.inf

    async def GetShardInfo(  # noqa: N802 - the document's name
        self, input_message: pb.GetShardInfoRequest
    ) -> pb.GetShardInfoResponse:
        """What this node is and holds; many callers at a time share an answer."""
        now = trio.current_time()
        if now >= self._own_until:
            self._own = shard_info_message(self._book.own)
            self._own_until = now + SHARED_S
        return self._own

    async def GetSwarmStatus(  # noqa: N802 - the document's name
        self, input_message: pb.SwarmStatusRequest
    ) -> pb.SwarmStatusResponse:
        """This node and the peers it knows, or this node's training only."""
        own = self._book.own
        if input_message.only_training:
            return pb.SwarmStatusResponse(node_id=own.node_id, training=self._training())
        return pb.SwarmStatusResponse(
            node_id=own.node_id,
            status="draining" if self._drain.draining else "running",
            role=own.role,
            model_hash=own.model_hash,
            total_layers=own.total_layers,
            layers=own.layers,
            capacity=capacity_message(own.capacity),
            peers=map(_swarm_peer, self._book.peers()),
            training=self._training(),
        )

    async def UpdatePeerCapacity(  # noqa: N802 - the document's name
        self, input_message: pb.UpdatePeerCapacityRequest
    ) -> pb.UpdatePeerCapacityResponse:
        """Take a node's report of itself."""
        check_node_id("node_id", input_message.node_id)
        capacity = capacity_in(input_message.capacity)
        check_capacity(capacity)
        timestamp = input_message.timestamp
        if not math.isfinite(timestamp) or timestamp < 0:
            raise InvalidRequest("timestamp", "is in seconds since 1970")
        port = _port_in(input_message.address)
        # The host is that of the socket, so that no node can report another address.
        refusal = self._book.take_report(
            input_message.node_id, caller().ip, port, capacity, timestamp
        )
        return pb.UpdatePeerCapacityResponse(accepted=not refusal, reason=refusal)


def _port_in(address: str) -> int:
    text = address.rpartition(":")[2]
    # The HTTP port, as in GET /peers, so that gRPC can be 1000 above it (interface 1).
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 64535):
        raise InvalidRequest("address", "is HOST:PORT, with a port of 1 to 64535")
    return int(text)


def _swarm_peer(peer: Peer) -> pb.SwarmPeer:
    return pb.SwarmPeer(
        node_id=peer.node_id,
        address=peer.address,
        role=peer.role,
        layers=peer.layers,
        latency_ms=peer.latency_ms,
        capacity=capacity_message(peer.capacity) if peer.capacity else None,
    )
