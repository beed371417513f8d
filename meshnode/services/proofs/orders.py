"""Orders beside the messages that begin a session at a holder (decision 0098).

The pool here gives stubs that add a signed order to the first forward message of a session, and to
each one a credential by which the holder knows this node (decision 0164). With it
the holder can prove who asked it for which work. The requester gets the same answer without an
order, so nothing here may fail a call.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from google.protobuf.message import Message

from meshnode.domain.errors import Unavailable
from meshnode.domain.peer_session import Credentials
from meshnode.domain.proofs.statements import MAX_REQUEST_ID, WorkOrder, sign_order, tensor_hash
from meshnode.rpc.metadata import MAX_VALUE_CHARS, NONE
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.stubs import Answer, UnaryUnary
from meshnode.services.shards.decoding import CREDENTIAL, MODEL, ORDER
from meshnode.services.shards.messages import off_loop
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshnode.domain.identity import NodeKey
    from meshnode.domain.peers import Peer
    from meshnode.services.stub_pool import StubPool

Takes = TypeVar("Takes", bound=Message)
Gives = TypeVar("Gives", bound=Message)


class OrderingPool:
    """The pool for services that ask other nodes to compute."""

    def __init__(
        self,
        pool: StubPool,
        *,
        key: NodeKey,
        served: Callable[[], str],
        chain_id: Callable[[], str],
        peers: Callable[[], Sequence[Peer]],
    ) -> None:
        """``served`` gives the hash of the model that a message without one is for.

        ``chain_id`` raises Unavailable while there is no chain; ``peers`` gives live peers.
        """
        self._pool = pool
        self._key = key
        self._served = served
        self._chain_id = chain_id
        self._peers = peers
        self._credentials = Credentials(key, time.time)
        self._ordering = WeakKeyDictionary[NodeServiceStub, NodeServiceStub]()

    async def stub(self, host: str, grpc_port: int) -> NodeServiceStub:
        """A stub of the pool; its forward calls that begin a session carry an order."""
        plain = await self._pool.stub(host, grpc_port)
        if plain not in self._ordering:
            self._ordering[plain] = self._with_orders(plain, host, grpc_port)
        return self._ordering[plain]

    def _with_orders(self, plain: NodeServiceStub, host: str, grpc_port: int) -> NodeServiceStub:
        stub = copy.copy(plain)

        def holder() -> str:
            at = (p.node_id for p in self._peers() if (p.host, p.grpc_port) == (host, grpc_port))
            return next(at, "")

        async def of_swarm(message: pb.SwarmForwardRequest, model: str) -> dict[str, str]:
            if not message.route:
                return self._known_by(holder())
            hop = message.route[0]
            order = await self._order(message, hop.node_id, hop.first_layer, model)
            return {**self._known_by(hop.node_id), **order}

        async def of_pipeline(message: pb.PipelineForwardRequest, model: str) -> dict[str, str]:
            there = holder()
            order = await self._order(message, there, message.target_shard, model)
            return {**self._known_by(there), **order}

        stub.SwarmForward = _Ordering(stub.SwarmForward, of_swarm)
        stub.PipelineForward = _Ordering(stub.PipelineForward, of_pipeline)
        return stub

    def distrust(self, host: str, grpc_port: int) -> None:
        """See :meth:`~meshnode.services.stub_pool.StubPool.distrust`."""
        self._pool.distrust(host, grpc_port)

    def _known_by(self, holder: str) -> dict[str, str]:
        """The metadata by which the holder knows this node (decision 0164)."""
        credential = self._credentials.for_node(holder)
        return {CREDENTIAL: credential} if credential else {}

    async def _order(
        self,
        message: pb.SwarmForwardRequest | pb.PipelineForwardRequest,
        holder: str,
        first_layer: int,
        model_hash: str,
    ) -> dict[str, str]:
        """The metadata with the order for a message; empty for a message that gets none.

        Only a message that determines its outputs by itself gets an order: others cannot be
        recomputed by a validator.
        """
        if not holder or not begins(message.position_ids) or not message.hidden_states:
            return {}
        if not 1 <= len(message.request_id) <= MAX_REQUEST_ID:
            return {}
        try:
            chain_id = self._chain_id()
        except Unavailable:
            return {}
        shape, data = list(message.hidden_shape), message.hidden_states
        order = WorkOrder(
            chain_id=chain_id,
            requester=self._key.public_key,
            holder=holder,
            request_id=message.request_id,
            model_hash=model_hash or self._served(),
            first_layer=first_layer,
            input_hash=await off_loop(len(data), lambda: tensor_hash(shape, data)),
            time_ns=time.time_ns(),
        )
        text = sign_order(order, self._key)
        return {ORDER: text} if len(text) <= MAX_VALUE_CHARS else {}


class _Ordering(UnaryUnary[Takes, Gives]):
    """An operation whose calls carry orders and credentials."""

    def __init__(
        self,
        inner: UnaryUnary[Takes, Gives],
        extra: Callable[[Takes, str], Awaitable[dict[str, str]]],
    ) -> None:
        """``extra`` gives the metadata for a message to the model of a hash, if it names one."""
        self._inner = inner
        self._extra = extra

    async def ask(
        self,
        request: Takes,
        *,
        metadata: Mapping[str, str] = NONE,
        most_bytes: int | None = None,
        line: bool = False,
    ) -> Answer[Gives]:
        """Call the operation, with the order and the credential beside the message."""
        metadata = {**metadata, **await self._extra(request, metadata.get(MODEL, ""))}
        return await self._inner.ask(request, metadata=metadata, most_bytes=most_bytes, line=line)


def begins(position_ids: bytes) -> bool:
    """Whether a message starts at position 0, so that its inputs alone determine the outputs."""
    return len(position_ids) >= 8 and position_ids[:8] == bytes(8)
