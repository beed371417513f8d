"""The last holder's side of short cuts: its answer goes straight to the driver (decision 0219).

Invariants: only a peer is called, at the address at which this node knows it, never at one that a
message names; a driver that did not take an answer is not called again for a while, and gets its
answers along the calls.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import trio

from meshnode.rpc.errors import CallFailed
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.peers import Peer
    from meshnode.services.peers import PeerBook
    from meshnode.services.stub_pool import StubPool

DELIVERY_S = 1.0
"""Time for a driver to take an answer; the same answer then goes along the calls."""
AGAIN_S = 60.0
"""A driver that did not take an answer is not called for so long."""
MAX_KNOWN = 256
"""As many as there can be peers."""
ACK_BYTES = 4096


class Deliveries:
    """Sends answers to drivers."""

    def __init__(self, pool: StubPool, peers: PeerBook) -> None:
        self._pool = pool
        self._peers = peers
        self._failed_at: OrderedDict[str, float] = OrderedDict()

    async def deliver(
        self, driver: str, message: pb.SwarmForwardRequest, answer: pb.SwarmForwardResponse
    ) -> bool:
        """Send the ``answer`` to a ``message``. Whether the driver, a node id, has taken it."""
        peer = self._peers.get(driver)
        if peer is None or trio.current_time() < self._failed_at.get(driver, 0.0) + AGAIN_S:
            return False
        sent = pb.SwarmForwardRequest(
            session_id=message.session_id, request_id=message.request_id, answer=answer
        )
        taken = await self._sent(peer, sent)
        if taken is None:
            self._failed_at[driver] = trio.current_time()
            if len(self._failed_at) > MAX_KNOWN:
                self._failed_at.popitem(last=False)
        return taken or False

    async def _sent(self, peer: Peer, message: pb.SwarmForwardRequest) -> bool | None:
        """Whether the driver took it, which may have left the path; None if it cannot be had."""
        left_s = trio.current_effective_deadline() - trio.current_time()
        with trio.move_on_after(min(DELIVERY_S, left_s / 2)):
            try:
                stub = await self._pool.stub(peer.host, peer.grpc_port)
                taken = await stub.SwarmForward(message, most_bytes=ACK_BYTES, line=True)
            except CallFailed:
                return None
            return taken.success
        return None
