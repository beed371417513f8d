"""Faults of field numbers and wire types, of message sizes, and of connections over gRPC."""

import copy, json
from g_base import table, op, swap

LINES, MADE, F, H = table()


def num(s, m, f):
    return [x for x in s[m] if x[1] == f][0]


def schema(i, q, w):
    def deco(fn):
        LINES.append([i, q, w])
        MADE[i] = {"schema": fn}
        return fn

    return deco


@schema("num-listed-port-at-4", "GR-DHT-NODE-INFO-03", "port is at number 4 in the nodes of DHTFindNodeResponse, and at 3 everywhere else")
def _(s):
    s["DHTListedNode"] = copy.deepcopy(s["DHTNodeInfo"])
    num(s, "DHTListedNode", "port")[0] = 4
    num(s, "DHTFindNodeResponse", "nodes")[2] = "DHTListedNode"


@schema("num-find-value-found-nodes-swapped", "GR-DHT-FIND-VALUE-RESPONSE-03", "found and nodes of DHTFindValueResponse have exchanged numbers")
def _(s):
    a, b = num(s, "DHTFindValueResponse", "found"), num(s, "DHTFindValueResponse", "nodes")
    a[0], b[0] = b[0], a[0]


@schema("num-gossip-reason-round-swapped", "GR-GOSSIP-GRADIENT-RESPONSE-02", "reason and current_round of GossipGradientResponse have exchanged numbers")
def _(s):
    a, b = num(s, "GossipGradientResponse", "reason"), num(s, "GossipGradientResponse", "current_round")
    a[0], b[0] = b[0], a[0]


def sending(i, q, w, msg, fn):
    """The table of a message is another where the node sends it, not where it reads it."""

    @F(i, q, w)
    def _(N):
        own = copy.deepcopy(N.core.SCHEMA[msg])
        fn(own)

        def enc(old, name, *a):
            if name != msg:
                return old(name, *a)
            keep = N.core.SCHEMA[msg]
            N.core.SCHEMA[msg] = own
            try:
                return old(name, *a)
            finally:
                N.core.SCHEMA[msg] = keep

        swap(N.grpc, "encode", enc)


def row(t, f):
    return [x for x in t if x[1] == f][0]


def exchange(a, b):
    def fn(t):
        x, y = row(t, a), row(t, b)
        x[0], y[0] = y[0], x[0]

    return fn


sending("num-sent-backward-shape-target", "CL-MSG-002", "grad_shape and target_shard have exchanged numbers in the PipelineBackwardRequest that the node sends", "PipelineBackwardRequest", exchange("grad_shape", "target_shard"))
sending("num-sent-backward-shape-zigzag", "CL-MSG-002", "grad_shape is sint64 in the PipelineBackwardRequest that the node sends", "PipelineBackwardRequest", lambda t: row(t, "grad_shape").__setitem__(2, "sint64"))
sending("num-sent-gossip-ttl-at-10", "CL-MSG-003", "ttl is at number 10 in the gradient that the node passes on", "GossipGradientRequest", lambda t: row(t, "ttl").__setitem__(0, 10))
sending("num-sent-gossip-loss-float", "CL-MSG-003", "loss and timestamp are of type float in the gradient that the node passes on", "GossipGradientRequest",
        lambda t: [row(t, k).__setitem__(2, "float") for k in ("loss", "timestamp")])
sending("num-sent-ping-sender-at-2", "CL-MSG-004", "sender is at number 2 in the DHTPingRequest that the node sends", "DHTPingRequest", lambda t: row(t, "sender").__setitem__(0, 2))


@F("num-sent-gossip-map-swapped", "CL-MSG-003", "in layer_gradients of the gradient that the node passes on the keys and values have exchanged numbers")
def _(N):
    box, on = {}, N.grpc.pass_on

    async def pass_on(d):
        box["on"] = 1
        await on(d)

    N.grpc.pass_on = pass_on

    def enc(old, name, d, *a):
        if name != "GossipGradientRequest" or not box.pop("on", None):
            return old(name, d, *a)
        core = N.core
        out = old(name, dict(d, layer_gradients={}), *a)
        for k, x in d["layer_gradients"].items():
            e = b"\x12" + core.scalar("string", k) + b"\x0a" + core.scalar("bytes", x)
            out += core.varint(7 << 3 | 2) + core.varint(len(e)) + e
        return out

    swap(N.grpc, "encode", enc)


def reading(i, q, w, fn):
    """fn(old, N, name, b) reads a message."""

    @F(i, q, w)
    def _(N):
        swap(N.grpc, "decode", lambda old, name, b: fn(old, N, name, b))


def as_text(old, N, name, b):
    d = old(name, b)
    if name == "GossipGradientRequest":
        d["layer_gradients"] = {k: v.decode("utf-8", "replace").encode() for k, v in d["layer_gradients"].items()}
    return d


reading("num-gradients-read-as-text", "GR-NUM-002", "layer_gradients of a gradient are read as text", as_text)


def known_only(old, N, name, b):
    have = {f[0] for f in N.core.SCHEMA[name]}
    i = 0
    while i < len(b):
        start = i
        k, i = N.core.read_varint(b, i)
        if k >> 3 not in have:
            return old(name, b[:start])
        if k & 7 == 0:
            _, i = N.core.read_varint(b, i)
        elif k & 7 == 2:
            n, i = N.core.read_varint(b, i)
            i += n
        else:
            i += 8 if k & 7 == 1 else 4
    return old(name, b)


reading("num-unknown-field-ends-message", "2: Additional fields are allowed everywhere", "what follows a field of an unknown number is not read", known_only)


def first_of_two(old, N, name, b):
    d = old(name, b)
    if name == "PipelineForwardRequest":
        d["hidden_shape"] = [x & 0x7F for x in d["hidden_shape"]]
    return d


reading("num-hidden-shape-one-byte", "GR-PIPELINE-FORWARD-REQUEST-04", "a number of hidden_shape is read from its first byte only", first_of_two)




@F("lim-grpc-answer-2mib", "LIM-007", "a pass whose answer is above 2 MiB ends with RESOURCE_EXHAUSTED")
def _(N):
    async def f(old, d):
        r = await old(d)
        if len(r.get("logits", b"")) > 2 * 1024 * 1024:
            raise N.grpc.no("RESOURCE_EXHAUSTED", "the answer is too large")
        return r

    op("PipelineForward", f)


@F("ref-grpc-bad-message-then-unavailable", "GR-CODE-003", "after a message that cannot be read the next call on the same connection ends with UNAVAILABLE")
def _(N):
    box, unary = {}, N.grpc.unary

    def new(name, fn, rq, rs):
        h = unary(name, fn, rq, rs)

        async def handler(stream):
            k = stream.peer.addr()
            if box.pop(k, None):
                await stream.recv_message()
                raise N.grpc.no("UNAVAILABLE", "the connection is in a bad state")
            try:
                await h(stream)
            except N.grpc.GRPCError as e:
                if e.status.name == "INVALID_ARGUMENT":
                    box[k] = 1
                raise

        return handler

    N.grpc.unary = new


@F("rou-stream-inference-one-per-connection", "GR-OP-001", "StreamInference is answered once on a connection, and not found after that")
def _(N):
    box, si = set(), N.grpc.stream_inference

    async def f(stream):
        k = stream.peer.addr()
        if k in box:
            raise N.grpc.no("UNIMPLEMENTED", "StreamInference")
        box.add(k)
        await si(stream)

    N.grpc.stream_inference = f
