"""The DHT's operations as messages to other nodes, each with a deadline (interface 2.3).

Every call reports its outcome to the core, so that no caller can forget to. A peer that refuses a
request is alive, so a refusal does not count as a failed ping.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.kademlia.bucket import K
from meshnode.domain.kademlia.contact import Contact, NodeInfo
from meshnode.domain.kademlia.lookup import Lookup
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.query import Query
from meshnode.domain.kademlia.refusals import DhtRefusal
from meshnode.domain.kademlia.value import split_values
from meshnode.rpc.errors import CallFailed, Code
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.domain.kademlia.local_node import LocalNode
    from meshnode.domain.kademlia.own_address import OwnAddress
    from meshnode.rpc.node_grpc import NodeServiceStub
    from meshnode.rpc.pool import ChannelPool
    from meshnode.rpc.stubs import Answer

ANSWER_BYTES = 64 * 1024
"""The largest honest answer: 64 values of 512 bytes, or 20 contacts."""
AGE = "dht-record-age"
"""Request metadata of DHTStore: seconds since the record was published (decision 0053)."""
OBSERVED = "observed-address"
"""Answer metadata: the caller's address, as the answering node sees it (decision 0045)."""
ALIVE = {Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED, Code.NOT_FOUND, Code.INTERNAL}
"""Codes that only a node that is alive can send."""

Found = pb.DHTFindNodeResponse | pb.DHTFindValueResponse
Gives = TypeVar(
    "Gives",
    pb.DHTPingResponse,
    pb.DHTFindNodeResponse,
    pb.DHTFindValueResponse,
    pb.DHTStoreResponse,
)


class Messenger:
    """Sends the operations of one node."""

    def __init__(
        self,
        local: LocalNode,
        pool: ChannelPool,
        own_address: OwnAddress,
        port: int,
        call_s: float,
        ping_soon: Callable[[Contact], None],
    ) -> None:
        """``port`` is this node's HTTP port; ``ping_soon`` queues a contact to be pinged."""
        self._local = local
        self._pool = pool
        self._own_address = own_address
        self._port = port
        self._call_s = call_s
        self._ping_soon = ping_soon
        self._pings: dict[Contact, trio.Event] = {}
        """Pings in flight."""

    def own_info(self, ip: str = "") -> pb.DHTNodeInfo:
        """This node in a message. Receivers ignore the address; they see it from the call."""
        ip = ip or self._own_address.best() or ""
        return pb.DHTNodeInfo(node_id=self._local.own_id, ip=ip, port=self._port)

    async def ping(self, contact: Contact) -> bool:
        """Ping a contact. Returns whether it answered with its own id.

        If a ping to it is in flight already, this waits for its outcome.
        """
        under_way = self._pings.get(contact)
        if under_way is not None:
            await under_way.wait()
            return self._local.is_verified(contact, trio.current_time())
        self._pings[contact] = done = trio.Event()
        try:
            return await self._ping(contact)
        finally:
            del self._pings[contact]
            done.set()

    async def _ping(self, contact: Contact) -> bool:
        request = pb.DHTPingRequest(sender=self.own_info())
        answer = await self._call(
            contact, lambda stub: stub.DHTPing.ask(request, most_bytes=ANSWER_BYTES)
        )
        return answer is not None

    async def greet(self, ip: str, grpc_port: int) -> Contact | None:
        """Ping an address whose node id is unknown. Returns the contact that it claims to be.

        For addresses that this node's operator gave. Returns None if nobody answers.
        """
        request = pb.DHTPingRequest(sender=self.own_info())
        with trio.move_on_after(self._call_s):
            try:
                stub = await self._pool.stub(ip, grpc_port)
                answer = await stub.DHTPing(request, most_bytes=ANSWER_BYTES)
                node_id = NodeId(answer.responder.node_id)
                claim = Contact(node_id, ip, grpc_port - GRPC_PORT_OFFSET)
                contact = self._local.policy.admit(claim, self._local.own_id)
                self.note_answer(contact, contact.node_id)
            except (CallFailed, DhtRefusal):
                return None
            return contact
        self._pool.distrust(ip, grpc_port)
        return None

    async def ask(self, lookup: Lookup, query: Query) -> None:
        """Send a lookup's query, and report the outcome to the lookup."""
        ask = self._ask_value if lookup.for_value else self._ask_node
        found = await ask(query.contact, lookup.target)
        if found is None:
            lookup.on_failure(query)
            return
        nodes: list[NodeInfo] = list(found.nodes[: 2 * K])
        held: tuple[str, ...] = ()
        if isinstance(found, pb.DHTFindValueResponse) and found.found:
            held = split_values(found.value)
        lookup.on_response(query, found.responder.node_id, nodes, held)

    async def _ask_node(self, contact: Contact, target: NodeId) -> Found | None:
        request = pb.DHTFindNodeRequest(sender=self.own_info(), target_id=target)
        return await self._call(
            contact, lambda stub: stub.DHTFindNode.ask(request, most_bytes=ANSWER_BYTES)
        )

    async def _ask_value(self, contact: Contact, key: NodeId) -> Found | None:
        request = pb.DHTFindValueRequest(sender=self.own_info(), key=key)
        return await self._call(
            contact, lambda stub: stub.DHTFindValue.ask(request, most_bytes=ANSWER_BYTES)
        )

    async def store(self, contact: Contact, key: NodeId, value: str, age_s: float) -> bool:
        """Store a record, which is ``age_s`` seconds old. Returns whether the contact took it."""
        request = pb.DHTStoreRequest(sender=self.own_info(), key=key, value=value)
        metadata = {AGE: str(int(age_s))}
        answer = await self._call(
            contact,
            lambda stub: stub.DHTStore.ask(request, metadata=metadata, most_bytes=ANSWER_BYTES),
        )
        return answer is not None and answer.success

    def note_answer(self, contact: Contact, responder_id: bytes) -> None:
        """Note that a call of any kind was answered. Raises WrongResponder."""
        candidate = self._local.answered(contact, responder_id, trio.current_time())
        if candidate is not None:
            self._ping_soon(candidate)

    def note_failure(self, contact: Contact) -> None:
        """Note that a call of any kind was not answered."""
        self._local.failed(contact, trio.current_time())

    async def _call(
        self,
        contact: Contact,
        operation: Callable[[NodeServiceStub], Awaitable[Answer[Gives]]],
    ) -> Gives | None:
        """The contact's answer, or None after a failure; either is reported to the core."""
        with trio.move_on_after(self._call_s):
            try:
                stub = await self._pool.stub(contact.ip, contact.grpc_port)
                answer = await operation(stub)
                self.note_answer(contact, answer.message.responder.node_id)
            except CallFailed as error:
                if error.code not in ALIVE:
                    self.note_failure(contact)
                return None
            except DhtRefusal:
                # Another node answers at this address; the core has noted that.
                return None
            if OBSERVED in answer.metadata:
                self._own_address.add_vote(contact, answer.metadata[OBSERVED])
            return answer.message
        # Only an expired deadline gets here; a cancelled call proves nothing about the peer.
        self._pool.distrust(contact.ip, contact.grpc_port)
        self.note_failure(contact)
        return None
