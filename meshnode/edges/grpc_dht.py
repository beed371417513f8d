"""The DHT operations over gRPC (interface 2.3 and 4.3: DHTPing, DHTStore, DHTFindNode,
DHTFindValue).

The sender of a request is the node with the id and port in the request, at the address of its
socket (decision 0051). Answers carry that address back as ``observed-address``, so that a node can
learn its own (decision 0045).

Invariant: a malformed request is INVALID_ARGUMENT, one above a limit RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.value import join_values
from meshnode.rpc.caller import Caller, answer_metadata, caller
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.services.dht.messages import AGE, OBSERVED
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.dht.handle import Dht

_AGE = re.compile(r"[0-9]{1,9}")


class DhtServicer(NodeServiceServicer):
    """The four operations."""

    def __init__(self, dht: Dht) -> None:
        """Answer for ``dht``."""
        self._dht = dht

    async def DHTPing(  # noqa: N802 - the document's name
        self, input_message: pb.DHTPingRequest
    ) -> pb.DHTPingResponse:
        """Answer with this node's id."""
        self._dht.meet(input_message.sender, _observe().ip)
        return pb.DHTPingResponse(responder=self._responder())

    async def DHTFindNode(  # noqa: N802 - the document's name
        self, input_message: pb.DHTFindNodeRequest
    ) -> pb.DHTFindNodeResponse:
        """The K closest nodes to an id."""
        nodes = self._dht.find_node(input_message.sender, _observe().ip, input_message.target_id)
        return pb.DHTFindNodeResponse(responder=self._responder(), nodes=map(_info, nodes))

    async def DHTFindValue(  # noqa: N802 - the document's name
        self, input_message: pb.DHTFindValueRequest
    ) -> pb.DHTFindValueResponse:
        """The values under a key, one a line; or the K closest nodes."""
        values, nodes = self._dht.find_value(input_message.sender, _observe().ip, input_message.key)
        return pb.DHTFindValueResponse(
            responder=self._responder(),
            value=join_values(values),
            nodes=map(_info, nodes),
            found=bool(values),
        )

    async def DHTStore(  # noqa: N802 - the document's name
        self, input_message: pb.DHTStoreRequest
    ) -> pb.DHTStoreResponse:
        """Hold a value under a key."""
        who = _observe()
        stored = await self._dht.store(
            input_message.sender,
            who.ip,
            input_message.key,
            input_message.value,
            age_s=_age_in(who),
        )
        return pb.DHTStoreResponse(responder=self._responder(), success=stored)

    def _responder(self) -> pb.DHTNodeInfo:
        # The caller reached this node at this address, so it is the right one for this caller.
        return self._dht.messenger.own_info(caller().here)


def _observe() -> Caller:
    who = caller()
    answer_metadata(OBSERVED, who.ip)
    return who


def _age_in(who: Caller) -> float:
    text = who.metadata.get(AGE, "0")
    if not _AGE.fullmatch(text):
        raise InvalidRequest(AGE, "is a whole number of seconds")
    return float(text)


def _info(contact: Contact) -> pb.DHTNodeInfo:
    return pb.DHTNodeInfo(node_id=contact.node_id, ip=contact.ip, port=contact.port)
