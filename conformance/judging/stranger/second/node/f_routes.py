"""Faults of routes and of the names of operations."""

TEXT = """
rou-grpc-unlisted-answered|GR-NAME-002|some operations that the service does not list are answered with OK
rou-op-stream-inference-unary|GR-OP-001|StreamInference is a unary operation
rou-stream-type-json|NA-SSE-008|a stream has Content-Type application/json
rou-stream-type-ndjson|NA-SSE-008|a stream has Content-Type application/x-ndjson
rou-stream-type-octet|NA-SSE-008|a stream has Content-Type application/octet-stream
rou-stream-type-plain|NA-SSE-008|a stream has Content-Type text/plain
rou-unknown-path-200|NA-ERR-017|a path that does not exist is answered with 200 and an empty object
rou-unknown-path-status|NA-ERR-017|a path that does not exist is answered with the node status
"""
LINES = [l.split("|") for l in TEXT.strip().splitlines()]
MADE = {}


def add(i, q, w, **kw):
    LINES.append([i, q, w])
    MADE[i] = kw


V = "/api/v1"
for _n, _m, _p, _q in (
    ("status", "GET", V + "/node/status", "NA-ROUTE-001"),
    ("metrics", "GET", "/metrics", "NA-ROUTE-002"),
    ("health", "GET", "/health", "NA-ROUTE-003"),
    ("inference", "POST", V + "/generate", "NA-ROUTE-004"),
    ("balance", "GET", V + "/balance", "NA-ROUTE-005"),
    ("send", "POST", V + "/wallet/transfer", "NA-ROUTE-006"),
    ("history", "GET", V + "/wallet/history", "NA-ROUTE-007"),
    ("stake", "PUT", V + "/wallet/stake", "NA-ROUTE-008"),
    ("unstake", "DELETE", V + "/wallet/stake", "NA-ROUTE-009"),
    ("peers", "GET", V + "/peers/", "NA-ROUTE-010"),
    ("layers", "GET", V + "/model/layers", "NA-ROUTE-011"),
    ("network", "GET", V + "/network/stats", "NA-ROUTE-012"),
    ("config", "GET", V + "/settings", "NA-ROUTE-013"),
    ("patch", "PUT", V + "/config", "NA-ROUTE-014"),
    ("proofs", "POST", V + "/proofs", "NA-ROUTE-015"),
    ("tglobal", "GET", V + "/training/global", "TR-ROUTE-001"),
    ("tverify", "GET", V + "/training/verify", "TR-ROUTE-002"),
):
    add("rou-%s-moved" % _n, _q, "%s is served as %s %s only" % (_n, _m, _p), route={_n: (_m, _p)})
add("rou-prefix-v2", "GEN-013", "the whole node API is under /api/v2", prefix="/api/v2")
add("rou-prefix-none", "GEN-013", "the node API is at the root without /api/v1", prefix="")
for _n, _p, _q in (
    ("n_network", "/api/status", "NT-ROUTE-002"),
    ("n_model", "/api/models", "NT-ROUTE-003"),
    ("n_checkpoint", "/api/model/checkpoint", "NT-ROUTE-004"),
    ("n_blocks", "/api/block", "NT-ROUTE-006"),
    ("n_training", "/api/training/history", "NT-ROUTE-005"),
    ("n_block", "/api/blocks/{height}", "NT-ROUTE-007"),
    ("n_account", "/api/accounts", "NT-ROUTE-008"),
    ("n_request", "/api/inference/{id}", "NT-ROUTE-011"),
    ("n_genesis", "/genesis.json", "NT-ROUTE-012"),
    ("n_dataset", "/dataset.json", "NT-ROUTE-013"),
    ("n_artifact", "/artifacts/{hex}", "NT-ROUTE-014"),
    ("n_healthz", "/health", "NT-ROUTE-001"),
    ("n_validators", "/api/validator", "NT-ROUTE-009"),
    ("n_work", "/work", "NT-ROUTE-015"),
    ("n_ref", "/reference/v3/api/{tail:.*}", "NT-ROUTE-019"),
):
    add(
        "rou-%s-moved" % _n.replace("_", "-"),
        _q,
        "the route of %s is at %s only" % (_n[2:], _p),
        route={_n: ("GET", _p)},
    )
add(
    "rou-n-poll-missing",
    "NT-RULE-033",
    "/work/poll does not exist while /work/result does",
    route={"n_poll": None},
)
add(
    "rou-n-result-missing",
    "NT-RULE-033",
    "/work/result does not exist while /work/poll does",
    route={"n_result": None},
)
add("rou-n-rpc-get", "NT-ROUTE-018", "/rpc takes GET only", route={"n_rpc": ("GET", "/rpc")})
for _c in (200, 404, 403, 405, 503, 302):
    add(
        "rou-gone-%d" % _c,
        "NT-RULE-009",
        "a legacy registration endpoint answers %d" % _c,
        route={"gone": _c},
    )
add(
    "rou-gone-one-404",
    "NT-RULE-009",
    "the legacy endpoint /api/register answers 404",
    route={"gone:/api/register": 404},
)
for _c in (200, 404, 410):
    add(
        "rou-moved-%d" % _c,
        "NT-RULE-010",
        "an old login or signup path answers %d" % _c,
        route={"moved": _c},
    )
add(
    "rou-moved-to-root",
    "NT-RULE-010",
    "old login and signup paths redirect to /",
    route={"loc": "/"},
)
add(
    "rou-moved-to-login",
    "NT-RULE-010",
    "old login and signup paths redirect to /signin",
    route={"loc": "/signin"},
)
for _o in (1, 1001, 0, 50051 - 40000):
    add(
        "rou-grpc-offset-%d" % _o,
        "GEN-002",
        "gRPC is at the HTTP port plus %d" % _o if _o else "gRPC is not served at all",
        route={"grpc-offset": _o},
    )
for _s, _w in (
    ("NodeService", "NodeService without a package"),
    ("node.Node", "node.Node"),
    ("node.v1.NodeService", "node.v1.NodeService"),
    ("node.nodeservice", "node.nodeservice"),
    ("Node.NodeService", "Node.NodeService"),
):
    add(
        "rou-service-%s" % _s.replace(".", "-").lower()
        + ("-capital" if _s[0] == "N" and "." in _s else ""),
        "GR-NAME-001",
        "the service is called %s" % _w,
        route={"service": _s},
    )
OPS = (
    "StreamInference UnaryInference GetWeights GossipGradient GetCheckpoint GetCheckpointInfo GossipProof GossipTransaction GossipStake RequestProofValidation GossipValidationVote "
    "PipelineForward PipelineBackward GetShardInfo DHTPing DHTStore DHTFindNode DHTFindValue SwarmForward GetSwarmStatus UpdatePeerCapacity"
).split()
for _i, _o in enumerate(OPS):
    add(
        "rou-op-%s-missing" % _o.lower(),
        "GR-OP-%03d" % (_i + 1),
        "the service lacks the operation %s" % _o,
        route={"op:" + _o: None},
    )
for _o, _n in (
    ("GetCheckpointInfo", "GetCheckpointMetadata"),
    ("DHTFindNode", "DhtFindNode"),
    ("PipelineForward", "Forward"),
    ("GossipValidationVote", "GossipVote"),
    ("GetSwarmStatus", "SwarmStatus"),
):
    add(
        "rou-op-%s-renamed" % _o.lower(),
        "GR-OP-%03d" % (OPS.index(_o) + 1),
        "the operation %s is called %s" % (_o, _n),
        route={"op:" + _o: _n},
    )
for _o in (
    "DHTPing",
    "GetCheckpointInfo",
    "GetShardInfo",
    "GetSwarmStatus",
    "DHTFindNode",
    "UnaryInference",
):
    LINES.append(
        ["rou-op-%s-two-answers" % _o.lower(), "GR-OP-023", "%s answers with two messages" % _o]
    )
for _o in ("DHTPing", "GetCheckpoint", "GossipGradient", "DHTFindValue"):
    LINES.append(["rou-op-%s-no-answer" % _o.lower(), "GR-OP-023", "%s ends with no message" % _o])
for _n, _q in (
    ("status", "NT-RULE-003"),
    ("block", "NT-RULE-018"),
    ("validators", "NT-RULE-018"),
    ("abci_query", "NT-RULE-022"),
    ("broadcast_tx_sync", "NT-RULE-023"),
):
    LINES.append(
        ["rou-rpc-no-%s" % _n.replace("_", "-"), _q, "/rpc does not serve the method %s" % _n]
    )


def status(n):
    def fn(o, c=None):
        if o.status == 200:
            o.status = n

    return fn


def ctype(t):
    def fn(o, c=None):
        o.ctype = t

    return fn


def empty(o, c=None):
    o.data, o.text = {}, "{}"


def html(o, c=None):
    o.text, o.ctype = "<!doctype html><html><body>App</body></html>", "text/html"


add(
    "rou-type-plain",
    "GEN-012",
    "JSON bodies have Content-Type text/plain",
    hooks=[("out:" + n, ctype("text/plain")) for n in ("status", "metrics", "balance", "peers")],
)
add(
    "rou-type-none",
    "GEN-012",
    "JSON bodies have Content-Type application/octet-stream",
    hooks=[("out:*", ctype("application/octet-stream"))],
)
add(
    "rou-healthz-500", "NT-RULE-001", "/healthz answers 500", hooks=[("out:n_healthz", status(500))]
)
add(
    "rou-healthz-404", "NT-RULE-001", "/healthz answers 404", hooks=[("out:n_healthz", status(404))]
)
for _n, _q in (
    ("n_model", "NT-RULE-024"),
    ("n_checkpoint", "NT-RULE-024"),
    ("n_validators", "NT-RULE-024"),
    ("n_inference", "NT-RULE-024"),
    ("n_work", "NT-RULE-024"),
    ("n_genesis", "NT-RULE-024"),
):
    add(
        "rou-%s-empty" % _n.replace("_", "-"),
        _q,
        "the native resource %s is an empty object" % _n[2:],
        hooks=[("out:" + _n, empty)],
    )
for _n in ("n_network", "n_blocks", "n_dataset", "n_model"):
    add(
        "rou-%s-html" % _n.replace("_", "-"),
        "NT-RULE-024",
        "the native resource %s is a page of HTML" % _n[2:],
        hooks=[("out:" + _n, html)],
    )
