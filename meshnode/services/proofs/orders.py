"""Orders beside the messages that begin a session at a holder (decisions/0098).

A pool of channels like any other, whose stubs add a signed order to the first forward message of a
session: the holder can prove that it was asked, and what for. A message without one is worth as
much to the requester, so nothing here may fail a call.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from google.protobuf.message import Message

from meshnode.domain.errors import Unavailable
from meshnode.domain.proofs.statements import MOST_REQUEST_ID, Order, sign_order, tensor_hash
from meshnode.rpc.metadata import MOST_VALUE_CHARS, NONE
from meshnode.rpc.stubs import Answer, UnaryUnary
from meshnode.services.shards.messages import off_loop
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshnode.domain.identity import NodeKey
    from meshnode.rpc.node_grpc import NodeServiceStub

ORDER = "work-order"
"""Metadata of a forward call."""

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)


class Pool(Protocol):
    """Connections to peers."""

    async def stub(self, host: str, grpc_port: int) -> NodeServiceStub:
        """Connected operations. Raises CallFailed."""

    def distrust(self, host: str, grpc_port: int) -> None:
        """A call there got no answer in time."""


class Peer(Protocol):
    """A node that may be called."""

    @property
    def node_id(self) -> str:
        """40 hexadecimal digits."""

    @property
    def host(self) -> str:
        """Where it is reached."""

    @property
    def grpc_port(self) -> int:
        """Port of its gRPC interface."""


class OrderingPool:
    """The pool for those who have others compute."""

    def __init__(
        self,
        pool: Pool,
        *,
        key: NodeKey,
        model_hash: str,
        chain_id: Callable[[], str],
        peers: Callable[[], Sequence[Peer]],
    ) -> None:
        """``chain_id`` raises Unavailable while there is no chain; ``peers`` are all that live."""
        self._pool = pool
        self._key = key
        self._model_hash = model_hash
        self._chain_id = chain_id
        self._peers = peers

    async def stub(self, host: str, grpc_port: int) -> NodeServiceStub:
        """As of the pool; forward calls that begin a session carry an order."""
        stub = copy.copy(await self._pool.stub(host, grpc_port))

        async def of_swarm(message: pb.SwarmForwardRequest) -> str:
            if not message.route:
                return ""
            hop = message.route[0]
            return await self._order(message, hop.node_id, hop.first_layer)

        async def of_pipeline(message: pb.PipelineForwardRequest) -> str:
            at = (p.node_id for p in self._peers() if (p.host, p.grpc_port) == (host, grpc_port))
            return await self._order(message, next(at, ""), message.target_shard)

        stub.SwarmForward = _Ordering(stub.SwarmForward, of_swarm)
        stub.PipelineForward = _Ordering(stub.PipelineForward, of_pipeline)
        return stub

    def distrust(self, host: str, grpc_port: int) -> None:
        """As of the pool."""
        self._pool.distrust(host, grpc_port)

    async def _order(
        self,
        message: pb.SwarmForwardRequest | pb.PipelineForwardRequest,
        holder: str,
        first_layer: int,
    ) -> str:
        """The order for a message; empty for one that nobody could compute again by itself."""
        if not holder or not begins(message.position_ids) or not message.hidden_states:
            return ""
        if not 1 <= len(message.request_id) <= MOST_REQUEST_ID:
            return ""
        try:
            chain_id = self._chain_id()
        except Unavailable:
            return ""
        shape, data = list(message.hidden_shape), message.hidden_states
        order = Order(
            chain_id=chain_id,
            requester=self._key.public_key,
            holder=holder,
            request_id=message.request_id,
            model_hash=self._model_hash,
            first_layer=first_layer,
            input_hash=await off_loop(len(data), lambda: tensor_hash(shape, data)),
            time_ns=time.time_ns(),
        )
        text = sign_order(order, self._key)
        return text if len(text) <= MOST_VALUE_CHARS else ""


class _Ordering(UnaryUnary[Takes, Gives]):
    """An operation whose calls carry orders."""

    def __init__(
        self, inner: UnaryUnary[Takes, Gives], order_of: Callable[[Takes], Awaitable[str]]
    ) -> None:
        self._inner = inner
        self._order_of = order_of

    async def ask(
        self,
        request: Takes,
        *,
        metadata: Mapping[str, str] = NONE,
        most_bytes: int | None = None,
    ) -> Answer[Gives]:
        """As the operation, with the order beside the message."""
        order = await self._order_of(request)
        if order:
            metadata = {**metadata, ORDER: order}
        return await self._inner.ask(request, metadata=metadata, most_bytes=most_bytes)


def begins(position_ids: bytes) -> bool:
    """Whether a message starts at position 0: then its inputs alone say what comes out."""
    return len(position_ids) >= 8 and position_ids[:8] == bytes(8)
