"""How the peer answers: as the document has it, or as a node behind it does.

The document shows enough for the DHT, gradients and passes through layers. Alone, the peer is a
layer that changes nothing. What the document does not show is answered by a node of the tested
one's own kind, if there is one behind the peer. That node must not hear of the tested one, or both
would talk without the peer; so calls that are about other nodes are never passed on.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance import messages
from conformance.compiled import grpc
from conformance.grpcwire import CHANNEL_OPTIONS
from conformance.messages import SERVICE
from conformance.peer.watch import DHT, Call

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Refusal:
    """A status other than OK, by its name."""

    code: str
    details: str = "the conformance peer answers so"


@dataclass(frozen=True)
class Reply:
    """A message, as bytes, with the metadata of the answer."""

    body: bytes
    metadata: Metadata = ()


Answer = Reply | Refusal
Conduct = Callable[[Call], Answer | None]

# They tell a node of other nodes.
OWN = (*DHT, "UpdatePeerCapacity")
UNIMPLEMENTED = Refusal("UNIMPLEMENTED", "the conformance peer has no such operation")
_RESERVED = (":", "grpc-", "te", "content-type", "user-agent")


def node_id(name: str) -> bytes:
    """Return an ID: the SHA-1 digest of what stands for a public key."""
    return hashlib.sha1(name.encode()).digest()  # noqa: S324 - the document's digest


def info(ident: bytes, ip: str, port: int) -> Any:
    """Make a DHTNodeInfo."""
    return messages.make("DHTNodeInfo", node_id=ident, ip=ip, port=port)


class Behind:
    """A node behind the peer, which answers what the document does not show."""

    def __init__(self, address: str) -> None:
        """`address` is host:port of its gRPC server."""
        self.address = address
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def node_id(self, timeout_s: float) -> bytes:
        """Return its ID in the DHT. Raises `grpc.RpcError`."""
        me = info(node_id("a client of the suite"), "127.0.0.1", 1)
        asked = messages.make("DHTPingRequest", sender=me).SerializeToString()
        try:
            answer = self._channel.unary_unary(f"/{SERVICE}/DHTPing")(asked, timeout=timeout_s)
        except grpc.RpcError:
            self.close()
            raise
        return bytes(messages.parse("DHTPingResponse", answer).responder.node_id)

    def ask(self, call: Call) -> Answer:
        """Pass a call on."""
        path = f"/{SERVICE}/{call.operation}"
        kept = tuple(item for item in call.metadata if not item[0].startswith(_RESERVED))
        made = self._channel.unary_unary(path)
        try:
            body, done = made.with_call(call.body, timeout=call.deadline_s or 60, metadata=kept)
        except grpc.RpcError as error:
            return Refusal(error.code().name, error.details() or "")
        trailing = ((key, value) for key, value in done.trailing_metadata() or ())
        return Reply(body, tuple(pair for pair in trailing if not pair[0].startswith(_RESERVED)))


class Table:
    """The peer's part of the DHT: what it has been given, and the nodes that it names."""

    def __init__(self, me: Any, others: list[Any]) -> None:
        """`others` is every node that it names."""
        self.me = me
        self._others = others
        self._stored: dict[bytes, str] = {}

    def answer(self, call: Call) -> Answer:
        """Answer one of the four operations."""
        request: Any = call.message
        if request is None:
            return Refusal("INVALID_ARGUMENT", "not a message")
        fields: dict[str, Any] = {"responder": self.me}
        if call.operation == "DHTStore":
            self._stored[request.key] = request.value
            fields["success"] = True
        elif call.operation == "DHTFindNode":
            fields["nodes"] = self._others
        elif call.operation == "DHTFindValue":
            value = self._stored.get(request.key)
            found = {"value": value, "found": True}
            fields.update({"nodes": self._others} if value is None else found)
        return reply(call, **fields)


def reply(call: Call, **fields: Any) -> Reply:
    """Make the answer to a call from the fields of its message."""
    made = messages.make(messages.OPERATIONS[call.operation][1], **fields)
    return Reply(made.SerializeToString())


def alone(call: Call, checkpoint: bytes = b"") -> Answer:
    """Answer what is not about the DHT, without a node behind."""
    request: Any = call.message
    if call.operation == "PipelineForward" and request is not None:
        return reply(
            call,
            request_id=request.request_id,
            success=True,
            hidden_states=request.hidden_states,
            hidden_shape=list(request.hidden_shape),
        )
    if call.operation == "PipelineBackward":
        return reply(call, success=True)
    if call.operation == "GossipGradient" and request is not None:
        reason = "the conformance peer takes no gradients"
        return reply(call, accepted=False, reason=reason, current_round=request.round_id)
    if call.operation == "GetCheckpoint" and checkpoint:
        return reply(call, success=True, checkpoint_data=checkpoint, total_size=len(checkpoint))
    if call.operation == "GetCheckpoint":
        return reply(call, success=False, error_message="the conformance peer has no checkpoint")
    return UNIMPLEMENTED
