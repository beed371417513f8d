"""The gRPC server: one generic handler that reads and writes the messages itself."""

from concurrent import futures

import grpc

import core
import counters
import dht
import node_pb2 as pb
import ops
import pipeline
import sync_ops
import wire
from core import fault
from fail import Fail

MIB = 1024 * 1024
# operation: request, response, function
TABLE = {
    "UnaryInference": ("InferenceRequest", ops.inference),
    "GetWeights": ("WeightRequest", sync_ops.weights),
    "GossipGradient": ("GossipGradientRequest", sync_ops.gradient),
    "GetCheckpoint": ("GetCheckpointRequest", sync_ops.checkpoint),
    "GetCheckpointInfo": ("GetCheckpointInfoRequest", sync_ops.info),
    "GossipProof": ("GossipProofRequest", ops.proof),
    "GossipTransaction": ("GossipTransactionRequest", ops.transaction),
    "GossipStake": ("GossipStakeRequest", ops.stake),
    "RequestProofValidation": ("ProofValidationRequest", ops.validation),
    "GossipValidationVote": ("ValidationVoteRequest", ops.vote),
    "PipelineForward": ("PipelineForwardRequest", pipeline.forward),
    "PipelineBackward": ("PipelineBackwardRequest", pipeline.backward),
    "GetShardInfo": ("GetShardInfoRequest", ops.shard_info),
    "DHTPing": ("DHTPingRequest", dht.ping),
    "DHTStore": ("DHTStoreRequest", dht.store),
    "DHTFindNode": ("DHTFindNodeRequest", dht.find_node),
    "DHTFindValue": ("DHTFindValueRequest", dht.find_value),
    "SwarmForward": ("SwarmForwardRequest", ops.swarm_forward),
    "GetSwarmStatus": ("SwarmStatusRequest", ops.swarm_status),
    "UpdatePeerCapacity": ("UpdatePeerCapacityRequest", ops.capacity),
}
MISSING = {
    "rou-op-shard-info-gone": "GetShardInfo",
    "rou-op-vote-gone": "GossipValidationVote",
    "rou-op-info-gone": "GetCheckpointInfo",
    "rou-op-gossip-stake-gone": "GossipStake",
    "rou2-op-weights-gone": "GetWeights",
    "rou2-op-transaction-gone": "GossipTransaction",
    "rou2-op-capacity-gone": "UpdatePeerCapacity",
    "rou2-op-backward-gone": "PipelineBackward",
    "rou2-op-gossip-proof-gone": "GossipProof",
}
RENAMED = {
    "rou-op-proof-renamed": ("RequestProofValidation", "ProofValidation"),
    "rou2-op-swarm-renamed": ("GetSwarmStatus", "SwarmStatus"),
    "rou2-op-dht-camel": ("DHTFindNode", "DhtFindNode"),
    "rou2-op-infer-renamed": ("UnaryInference", "Inference"),
}


def parsed(name, data):
    message = getattr(pb, name)()
    try:
        message.ParseFromString(wire.bend(name, data, True))
    except Exception:
        if fault("ref2-garbage-as-empty"):
            return getattr(pb, name)()
        if fault("ref2-garbage-internal"):
            raise
        if fault("ref-grpc-garbage-internal"):
            raise Fail(grpc.StatusCode.UNKNOWN, "cannot parse") from None
        raise Fail(grpc.StatusCode.INVALID_ARGUMENT, "the message cannot be read") from None
    return message


def written(message):
    return wire.bend(type(message).__name__, message.SerializeToString(), False)


def guard(operation, context):
    counters.rpc()


def unary(operation, request_name, function):
    def run(data, context):
        try:
            guard(operation, context)
            return written(function(parsed(request_name, data)))
        except Fail as error:
            context.abort(error.code, error.text)
        except Exception as error:
            if fault("ref-dht-length-unknown"):
                raise
            context.abort(grpc.StatusCode.INTERNAL, "the node failed: %s" % type(error).__name__)

    return run


def stream(messages, context):
    counters.rpc()
    if fault("rou2-op-stream-at-end"):
        messages = list(messages)
    for number, data in enumerate(messages):
        if fault("lim-stream-one-message") and number:
            return
        try:
            yield written(ops.inference_soft(parsed("InferenceRequest", data)))
        except Fail as error:
            context.abort(error.code, error.text)


def lasting_twice(run):
    def two(data, context):
        out = run(data, context)
        yield out
        yield out

    return two


class Handler(grpc.GenericRpcHandler):
    def __init__(self):
        self.known = {}
        package = "nodes" if fault("rou-service-package") else "node"
        service = "Node" if fault("rou-service-name") else "NodeService"
        prefix = "/%s.%s/" % (package, service)
        for operation, (request_name, function) in TABLE.items():
            if MISSING.get(core.FLAGS["fault"]) == operation:
                continue
            old, new = RENAMED.get(core.FLAGS["fault"], (None, None))
            shown = new if operation == old else operation
            run = unary(operation, request_name, function)
            self.known[prefix + shown] = grpc.unary_unary_rpc_method_handler(run)
            if fault("rou2-op-forward-twice") and operation == "PipelineForward":
                self.known[prefix + shown] = grpc.unary_stream_rpc_method_handler(lasting_twice(run))
        if not fault("rou-op-stream-gone"):
            self.known[prefix + "StreamInference"] = grpc.stream_stream_rpc_method_handler(stream)
        if fault("rou-unlisted-ok"):
            self.known["*"] = grpc.unary_unary_rpc_method_handler(lambda data, context: b"")

    def service(self, details):
        return self.known.get(details.method) or self.known.get("*")


def serve(port):
    most = 100 * MIB
    if fault("lim-message-four-mib"):
        most = 4 * MIB
    if fault("lim-message-64-mib"):
        most = 64 * MIB
    if fault("lim2-message-decimal-mb"):
        most = 100 * 1000 * 1000
    back = 100 * MIB
    if fault("lim2-send-four-mib"):
        back = 4 * MIB
    options = [
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", back),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ]
    if fault("lim-pings-strike"):
        options = options[:3] + [
            ("grpc.http2.max_ping_strikes", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 300000),
        ]
    server = grpc.server(
        futures.ThreadPoolExecutor(32),
        handlers=(Handler(),),
        options=options,
        maximum_concurrent_rpcs=2 if fault("lim-two-calls") else None,
    )
    shift = 1001 if fault("rou-grpc-port-plus-1001") else 1000
    address = "127.0.0.1:%d" % (port + shift)
    if fault("gua-grpc-tls"):
        key, cert = ops.certificate()
        bound = server.add_secure_port(address, grpc.ssl_server_credentials([(key, cert)]))
    else:
        bound = server.add_insecure_port(address)
    if not bound:
        raise SystemExit("the gRPC port is taken")
    server.start()
    return server
