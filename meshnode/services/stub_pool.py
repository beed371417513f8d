"""Connections to peers, as the services use them (interface 4.3).

``rpc.pool.ChannelPool`` is one such pool; ``proofs.orders.OrderingPool`` is another, which adds a
signed order to some calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from meshnode.rpc.node_grpc import NodeServiceStub


class StubPool(Protocol):
    """Hands out connected stubs."""

    async def stub(self, host: str, grpc_port: int) -> NodeServiceStub:
        """The operations of the node at an address. Raises CallFailed if it cannot be reached."""

    def distrust(self, host: str, grpc_port: int) -> None:
        """Drop the connection to an address, where a call got no answer in time."""
