"""A node as others know it (interface 2.3: DHTNodeInfo).

Terms: a *node info* is what a message claims: id, address and port, not checked. A *contact* is a
claim that a policy has admitted (``policy.ContactPolicy.admit``). It is *verified* once its address
has answered a ping with its id (``verification``). Only verified contacts are queried, passed on to
other nodes or kept.

``port`` is the node's HTTP port. Calls go to the gRPC port, which is always 1000 higher
(interface 1). So no message can make a node call a port below 1001.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.kademlia.node_id import NodeId

HIGHEST_PORT = 65535 - GRPC_PORT_OFFSET


class NodeInfo(Protocol):
    """The fields of the DHTNodeInfo message, as the generated class has them."""

    @property
    def node_id(self) -> bytes:
        """20 bytes in a well-formed message."""

    @property
    def ip(self) -> str:
        """An IP address in a well-formed message."""

    @property
    def port(self) -> int:
        """An HTTP port in a well-formed message."""


@dataclass(frozen=True, slots=True)
class Contact:
    """A well-formed node info. Two addresses of one id are two contacts."""

    node_id: NodeId
    ip: str
    port: int

    @property
    def address(self) -> str:
        """``host:port`` with the HTTP port, as in ``GET /peers``; IPv6 in brackets."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{self.port}"

    @property
    def grpc_port(self) -> int:
        """The port to call."""
        return self.port + GRPC_PORT_OFFSET
