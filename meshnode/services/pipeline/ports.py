"""What the pipeline asks of its neighbours: peers, channels to them, the local layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from meshnode.rpc.node_grpc import NodeServiceStub


class Capacity(Protocol):
    """How busy a peer says that it is."""

    @property
    def queue_depth(self) -> int:
        """Sessions that wait there."""

    @property
    def active_sessions(self) -> int:
        """Sessions that compute there."""


class Peer(Protocol):
    """A node that holds layers of our model."""

    @property
    def node_id(self) -> str:
        """40 hexadecimal digits."""

    @property
    def host(self) -> str:
        """Where it is reached."""

    @property
    def grpc_port(self) -> int:
        """Port of its gRPC interface."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Indices held there, ascending."""

    @property
    def latency_ms(self) -> float:
        """Of a small call, there and back."""

    @property
    def capacity(self) -> Capacity | None:
        """Its latest report, if there was one."""


class Book(Protocol):
    """The peers that are known to live."""

    def holders(self, layer: int) -> Sequence[Peer]:
        """Those that hold ``layer`` of the model that we serve."""

    def suspect(self, node_id: str) -> None:
        """A call to this peer failed: find out whether it lives."""


class Pool(Protocol):
    """Connections to peers."""

    async def stub(self, host: str, grpc_port: int) -> NodeServiceStub:
        """A connected stub. Raises CallFailed."""

    def distrust(self, host: str, grpc_port: int) -> None:
        """A call there got no answer in time: the next one gets a connection of its own."""
