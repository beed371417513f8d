"""Faults of the numbers and types of gRPC fields."""

LINES, MADE = [], {}
PFX = {
    "PipelineForwardRequest": "GR-PIPELINE-FORWARD-REQUEST",
    "PipelineForwardResponse": "GR-PIPELINE-FORWARD-RESPONSE",
    "PipelineBackwardRequest": "GR-PIPELINE-BACKWARD-REQUEST",
    "PipelineBackwardResponse": "GR-PIPELINE-BACKWARD-RESPONSE",
    "GossipGradientRequest": "GR-GOSSIP-GRADIENT-REQUEST",
    "GossipGradientResponse": "GR-GOSSIP-GRADIENT-RESPONSE",
    "WeightRequest": "GR-WEIGHT-REQUEST",
    "WeightResponse": "GR-WEIGHT-RESPONSE",
    "GetCheckpointRequest": "GR-GET-CHECKPOINT-REQUEST",
    "GetCheckpointResponse": "GR-GET-CHECKPOINT-RESPONSE",
    "GetCheckpointInfoResponse": "GR-GET-CHECKPOINT-INFO-RESPONSE",
    "DHTNodeInfo": "GR-DHT-NODE-INFO",
    "DHTPingRequest": "GR-DHT-PING-REQUEST",
    "DHTPingResponse": "GR-DHT-PING-RESPONSE",
    "DHTFindNodeRequest": "GR-DHT-FIND-NODE-REQUEST",
    "DHTFindNodeResponse": "GR-DHT-FIND-NODE-RESPONSE",
    "DHTFindValueRequest": "GR-DHT-FIND-VALUE-REQUEST",
    "DHTFindValueResponse": "GR-DHT-FIND-VALUE-RESPONSE",
    "DHTStoreRequest": "GR-DHT-STORE-REQUEST",
    "DHTStoreResponse": "GR-DHT-STORE-RESPONSE",
}
# message field number
NUMBER = """
PipelineForwardResponse request_id 11
PipelineForwardResponse success 12
PipelineForwardResponse is_final 17
PipelineForwardResponse logits 18
PipelineForwardResponse loss 11
PipelineForwardRequest hidden_shape 14
PipelineForwardRequest target_shard 19
PipelineForwardRequest training_labels 13
PipelineForwardRequest request_id 20
PipelineBackwardRequest grad_output 6
PipelineBackwardRequest session_id 12
PipelineBackwardResponse success 3
GossipGradientResponse reason 4
GossipGradientResponse current_round 13
GossipGradientRequest model_hash 10
GossipGradientRequest layer_gradients 17
WeightResponse weights_data 2
WeightRequest shard_range 2
GetCheckpointResponse version 13
GetCheckpointResponse checkpoint_data 8
GetCheckpointResponse total_size 9
GetCheckpointResponse phase 15
GetCheckpointRequest model_hash 3
GetCheckpointRequest min_version 12
GetCheckpointInfoResponse version 6
GetCheckpointInfoResponse params 14
GetCheckpointInfoResponse model_hash 12
DHTPingResponse responder 2
DHTFindNodeResponse nodes 3
DHTFindNodeResponse responder 11
DHTFindNodeRequest target_id 3
DHTFindValueResponse value 12
DHTFindValueResponse nodes 13
DHTFindValueResponse found 14
DHTFindValueRequest key 12
DHTStoreRequest value 13
DHTStoreRequest key 12
DHTStoreResponse success 3
DHTStoreResponse responder 4
DHTNodeInfo port 4
DHTNodeInfo ip 12
"""
SWAP = """
PipelineForwardResponse request_id error_message
PipelineForwardResponse hidden_states logits
PipelineForwardResponse logits_shape hidden_shape
PipelineForwardRequest session_id request_id
PipelineForwardRequest source_shard target_shard
GetCheckpointResponse model_hash phase
GetCheckpointInfoResponse model_hash phase
GetCheckpointInfoResponse version params
DHTFindNodeResponse responder nodes
DHTFindValueResponse responder nodes
DHTStoreRequest key value
GossipGradientResponse accepted current_round
"""
TYPE = """
PipelineForwardResponse success string
PipelineForwardResponse is_final string
PipelineForwardResponse logits textbytes
PipelineForwardResponse logits_shape fixed64
PipelineForwardResponse logits_shape sint64
PipelineForwardResponse logits_shape double
PipelineForwardResponse loss float
PipelineForwardRequest hidden_shape fixed64
PipelineForwardRequest target_shard sint32
PipelineForwardRequest target_shard string
PipelineBackwardRequest grad_shape fixed64
PipelineBackwardResponse success string
GossipGradientResponse current_round sint32
GossipGradientResponse current_round string
GossipGradientRequest loss float
GossipGradientRequest round_id sint32
WeightResponse weights_data textbytes
GetCheckpointResponse version sint32
GetCheckpointResponse version string
GetCheckpointResponse total_size fixed64
GetCheckpointResponse total_size double
GetCheckpointResponse checkpoint_data textbytes
GetCheckpointResponse success string
GetCheckpointRequest min_version sint32
GetCheckpointRequest min_version string
GetCheckpointInfoResponse loss float
GetCheckpointInfoResponse loss string
GetCheckpointInfoResponse params double
GetCheckpointInfoResponse params string
GetCheckpointInfoResponse version sint32
DHTNodeInfo port string
DHTNodeInfo port sint32
DHTNodeInfo port fixed32
DHTFindValueResponse found string
DHTStoreResponse success string
"""


def num(s, m, f):
    return [x for x in s[m] if x[1] == f][0]


def req(m, n):
    return "%s-%02d" % (PFX[m], n)


def add(i, q, w, fn):
    LINES.append([i, q, w])
    MADE[i] = {"schema": fn}


def install(SCHEMA):
    for l in NUMBER.strip().splitlines():
        m, f, n = l.split()
        add(
            "num-%s-%s-at-%s" % (m.lower(), f.replace("_", "-"), n),
            req(m, num(SCHEMA, m, f)[0]),
            "%s of %s has the number %s" % (f, m, n),
            lambda s, m=m, f=f, n=int(n): num(s, m, f).__setitem__(0, n),
        )
    for l in SWAP.strip().splitlines():
        m, a, b = l.split()

        def swap(s, m=m, a=a, b=b):
            x, y = num(s, m, a), num(s, m, b)
            x[0], y[0] = y[0], x[0]

        add(
            "num-%s-swap-%s-%s" % (m.lower(), a.replace("_", "-"), b.replace("_", "-")),
            req(m, num(SCHEMA, m, a)[0]),
            "%s and %s of %s have exchanged numbers" % (a, b, m),
            swap,
        )
    for l in TYPE.strip().splitlines():
        m, f, t = l.split()
        w = "hexadecimal text" if t == "textbytes" else "of type " + t
        add(
            "num-%s-%s-%s" % (m.lower(), f.replace("_", "-"), t),
            req(m, num(SCHEMA, m, f)[0]),
            "%s of %s is %s instead of %s" % (f, m, w, num(SCHEMA, m, f)[2]),
            lambda s, m=m, f=f, t=t: num(s, m, f).__setitem__(2, t),
        )
    for m, f in (
        ("PipelineForwardResponse", "logits_shape"),
        ("DHTFindNodeResponse", "nodes"),
        ("DHTFindValueResponse", "nodes"),
    ):
        add(
            "num-%s-%s-single" % (m.lower(), f.replace("_", "-")),
            req(m, num(SCHEMA, m, f)[0]),
            "%s of %s has only one value" % (f, m),
            lambda s, m=m, f=f: num(s, m, f).__setitem__(3, False),
        )
