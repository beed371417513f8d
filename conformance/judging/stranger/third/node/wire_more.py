"""More faults on the wire."""

import struct

from wire import as_fixed, as_text, fields, joined, move, packed, retype, varint, zigzag


def unzigzag(item):
    """A plain int32 that is read as a sint32."""
    return item[0], 0, (item[2] >> 1) ^ -(item[2] & 1)


def as_double(item):
    return item[0], 1, struct.pack("<d", item[2])


def as_fixed32(item):
    return item[0], 5, struct.pack("<I", item[2])


def numbers(data):
    at, out = 0, []
    while at < len(data):
        value, at = varint(data, at)
        out.append(value)
    return out


def packed_fixed(item):
    return item[0], 2, b"".join(struct.pack("<q", value) for value in numbers(item[2]))


def packed_zigzag(item):
    return item[0], 2, b"".join(packed(value << 1) for value in numbers(item[2]))


def swapped_map(item):
    """An entry of a map whose value comes first."""
    return item[0], 2, joined(move({1: 2, 2: 1})(part) for part in fields(item[2]))


FORWARD, BACKWARD = "PipelineForwardRequest", "PipelineBackwardRequest"
INFO, CHECKPOINT = "GetCheckpointInfoResponse", "GetCheckpointResponse"
TABLE = {
    # requests
    "num2-forward-request-ids": (FORWARD, True, move({1: 2, 2: 1})),
    "num2-forward-request-shape-five": (FORWARD, True, move({5: 4, 4: 5})),
    "num2-forward-request-cache-ten": (FORWARD, True, move({8: 7, 7: 8})),
    "num2-forward-request-labels-twelve": (FORWARD, True, move({11: 12, 12: 11})),
    "num2-forward-request-target-sint": (FORWARD, True, retype(10, unzigzag)),
    "num2-backward-request-ids": (BACKWARD, True, move({1: 2, 2: 1})),
    "num2-backward-request-grad-four": (BACKWARD, True, move({3: 4, 4: 3})),
    "num2-backward-request-target-six": (BACKWARD, True, move({5: 6, 6: 5})),
    "num2-gossip-request-round-three": ("GossipGradientRequest", True, move({2: 3, 3: 2})),
    "num2-gossip-request-gradients-eight": ("GossipGradientRequest", True, move({7: 8, 8: 7})),
    "num2-gossip-request-batch-sint": ("GossipGradientRequest", True, retype(5, unzigzag)),
    "num2-gossip-request-map-swapped": ("GossipGradientRequest", True, retype(7, swapped_map)),
    "num2-checkpoint-request-version-three": ("GetCheckpointRequest", True, move({2: 3, 3: 2})),
    "num2-value-request-key-three": ("DHTFindValueRequest", True, move({2: 3, 3: 2})),
    "num2-store-request-swapped": ("DHTStoreRequest", True, move({2: 3, 3: 2})),
    # answers
    "num2-forward-success-one": ("PipelineForwardResponse", False, move({1: 2, 2: 1})),
    "num2-forward-logits-four": ("PipelineForwardResponse", False, move({8: 4, 4: 8})),
    "num2-forward-cache-five": ("PipelineForwardResponse", False, move({6: 5, 5: 6})),
    "num2-forward-loss-eleven": ("PipelineForwardResponse", False, move({10: 11})),
    "num2-forward-shape-fixed": ("PipelineForwardResponse", False, retype(9, packed_fixed)),
    "num2-forward-shape-zigzag": ("PipelineForwardResponse", False, retype(9, packed_zigzag)),
    "num2-backward-success-two": ("PipelineBackwardResponse", False, move({1: 2, 2: 1})),
    "num2-gossip-accepted-two": ("GossipGradientResponse", False, move({1: 2, 2: 1})),
    "num2-gossip-round-four": ("GossipGradientResponse", False, move({3: 4})),
    "num2-gossip-round-fixed": ("GossipGradientResponse", False, retype(3, as_fixed32)),
    "num2-weights-data-two": ("WeightResponse", False, move({1: 2})),
    "num2-checkpoint-success-two": (CHECKPOINT, False, move({1: 2, 2: 1})),
    "num2-checkpoint-hash-phase": (CHECKPOINT, False, move({4: 5, 5: 4})),
    "num2-checkpoint-size-text": (CHECKPOINT, False, retype(7, as_text)),
    "num2-info-hash-three": (INFO, False, move({2: 3, 3: 2})),
    "num2-info-version-fixed": (INFO, False, retype(1, as_fixed)),
    "num2-info-params-double": (INFO, False, retype(4, as_double)),
    "num2-info-version-zigzag": (INFO, False, retype(1, zigzag)),
    "num2-ping-responder-two": ("DHTPingResponse", False, move({1: 2})),
    "num2-find-responder-two": ("DHTFindNodeResponse", False, move({1: 2, 2: 1})),
    "num2-value-found-text": ("DHTFindValueResponse", False, retype(4, as_text)),
    "num2-store-success-three": ("DHTStoreResponse", False, move({2: 3})),
}
INNER = {
    "num2-node-info-ip-id": move({1: 2, 2: 1}),
    "num2-node-info-port-text": retype(3, as_text),
}
# what a peer gets from this node
SENT = {
    "num2-back-grad-five": ("PipelineBackwardRequest", move({3: 5, 5: 3})),
    "num2-back-shape-zigzag": ("PipelineBackwardRequest", retype(4, packed_zigzag)),
}


def sent(fault, message):
    data = message.SerializeToString()
    if fault in SENT and SENT[fault][0] == type(message).__name__:
        return joined(SENT[fault][1](item) for item in fields(data))
    return data
