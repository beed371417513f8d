"""How large each kind of message may be (interface 8; decision 0130).

Each operation has request and response messages of its own kinds, so a limit for each kind is one
for each operation. The size is checked when a message's length is known, before its bytes arrive;
entries and overhead are counted in the encoded bytes, before anything is parsed.

Invariant: every message of an operation that this node serves or calls is in the table; a message
that is not takes the limits of :data:`SMALL`.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from meshnode.rpc.limits import MAX_MESSAGE_BYTES
from meshnode.wire import health_pb2, line_pb2, node_pb2, reflection_pb2, reflection_v1alpha_pb2
from meshnode.wire.scan import MessageLimits

KIB = 1024
MIB = 1024 * 1024

NAMED = MessageLimits(4 * KIB, 256, 4 * KIB)
"""A few names or numbers, with room for fields of later versions."""
SMALL = MessageLimits(64 * KIB, 4096, 64 * KIB)
"""Facts about one node with 1024 layers, 20 contacts, or 64 values of the DHT."""
STATEMENT = MessageLimits(16 * KIB, 256, 16 * KIB)
"""Signed statements are 4 KiB at most."""
TRANSACTION = MessageLimits(2 * MIB, 256, 64 * KIB)
"""A block of 1 MiB holds the transaction; the ledger knows its exact limit."""
GENERATION = MessageLimits(2 * MIB, 1024, 2 * MIB)
"""A prompt of 1 MiB and 16 stop strings; the rules of inference refuse what is a little larger."""
TENSORS = MessageLimits(MAX_MESSAGE_BYTES, 4096, 256 * KIB)
"""A few tensors or one for each layer, and a route of 256 hops."""
GRADIENTS = MessageLimits(MAX_MESSAGE_BYTES, 8192, MIB)
"""2700 tensors with names of 300 characters."""
PEERS = MessageLimits(MIB, 65_536, MIB)
"""256 peers that hold 200 layers each, and the contributions of as many nodes."""

LINE = MessageLimits(MIB + 64 * KIB, 4096, 64 * KIB)
"""A message of another kind, which has limits of its own, with its metadata."""

_NODE_LIMITS: Mapping[type[Message], MessageLimits] = {
    node_pb2.InferenceRequest: GENERATION,
    node_pb2.InferenceResponse: GENERATION,
    node_pb2.WeightRequest: NAMED,
    node_pb2.WeightResponse: TENSORS,
    node_pb2.GossipGradientRequest: GRADIENTS,
    node_pb2.GossipGradientResponse: SMALL,
    node_pb2.LayerCommand: GRADIENTS,
    node_pb2.LayerAnswer: GRADIENTS,
    node_pb2.GetCheckpointRequest: NAMED,
    node_pb2.GetCheckpointResponse: TENSORS,
    node_pb2.GetCheckpointInfoRequest: NAMED,
    node_pb2.GetCheckpointInfoResponse: SMALL,
    node_pb2.GossipProofRequest: STATEMENT,
    node_pb2.GossipProofResponse: SMALL,
    node_pb2.GossipTransactionRequest: TRANSACTION,
    node_pb2.GossipTransactionResponse: SMALL,
    node_pb2.GossipStakeRequest: TRANSACTION,
    node_pb2.GossipStakeResponse: SMALL,
    node_pb2.ProofValidationRequest: STATEMENT,
    node_pb2.ProofValidationResponse: TENSORS,
    node_pb2.ValidationVoteRequest: STATEMENT,
    node_pb2.ValidationVoteResponse: SMALL,
    node_pb2.PipelineForwardRequest: TENSORS,
    node_pb2.PipelineForwardResponse: TENSORS,
    node_pb2.PipelineBackwardRequest: TENSORS,
    node_pb2.PipelineBackwardResponse: SMALL,
    node_pb2.GetShardInfoRequest: NAMED,
    node_pb2.GetShardInfoResponse: SMALL,
    node_pb2.DHTPingRequest: NAMED,
    node_pb2.DHTPingResponse: SMALL,
    node_pb2.DHTStoreRequest: NAMED,
    node_pb2.DHTStoreResponse: SMALL,
    node_pb2.DHTFindNodeRequest: NAMED,
    node_pb2.DHTFindNodeResponse: SMALL,
    node_pb2.DHTFindValueRequest: NAMED,
    node_pb2.DHTFindValueResponse: SMALL,
    node_pb2.SwarmForwardRequest: TENSORS,
    node_pb2.SwarmForwardResponse: TENSORS,
    node_pb2.SwarmStatusRequest: NAMED,
    node_pb2.SwarmStatusResponse: PEERS,
    node_pb2.UpdatePeerCapacityRequest: SMALL,
    node_pb2.UpdatePeerCapacityResponse: SMALL,
}
_OTHER_LIMITS: Mapping[type[Message], MessageLimits] = {
    line_pb2.LineCall: LINE,
    line_pb2.LineAnswer: LINE,
    health_pb2.HealthCheckRequest: NAMED,
    health_pb2.HealthCheckResponse: NAMED,
    reflection_pb2.ServerReflectionRequest: NAMED,
    reflection_pb2.ServerReflectionResponse: SMALL,
    reflection_v1alpha_pb2.ServerReflectionRequest: NAMED,
    reflection_v1alpha_pb2.ServerReflectionResponse: SMALL,
}
LIMITS: Mapping[type[Message], MessageLimits] = {**_NODE_LIMITS, **_OTHER_LIMITS}


def limits_of(kind: type[Message]) -> MessageLimits:
    """The limits of a kind of message."""
    return LIMITS.get(kind, SMALL)
