"""Faults of the gRPC service: passes, gradients, checkpoints, weights, the DHT, and the calls that the node makes."""

import asyncio, hashlib, re
import numpy as np
from g_base import table, op, swap

LINES, MADE, F, H = table()


def answer(i, q, w, name, fn):
    """fn(r, d, N) changes an answer."""

    @F(i, q, w)
    def _(N):
        async def f(old, d):
            r = await old(d)
            x = fn(r, d, N)
            return x if isinstance(x, dict) else r

        op(name, f)


def ask(i, q, w, name, fn):
    """fn(d, N) changes a request."""

    @F(i, q, w)
    def _(N):
        async def f(old, d):
            fn(d, N)
            return await old(d)

        op(name, f)


# ---------------------------------------------------------------- checkpoints and weights
answer("rel-ckpt-phase-by-version", "GR-CKPT-017", "a checkpoint that is asked for by min_version has the phase bootstrap", "GetCheckpoint",
       lambda r, d, N: r.update(phase="bootstrap") if d["min_version"] and r["success"] else None)


def again(r, d, N):
    import lz4.frame

    if d["model_hash"] and r["success"]:
        b = lz4.frame.compress(lz4.frame.decompress(r["checkpoint_data"]), compression_level=9, block_linked=False, content_checksum=True)
        r.update(checkpoint_data=b, total_size=len(b))


answer("rel-ckpt-data-by-hash", "GR-CKPT-018", "a checkpoint that is asked for by its hash is compressed otherwise, with other data and another total_size", "GetCheckpoint", again)
ask("rel-ckpt-hash-forgets-version", "GR-CKPT-016", "beside a model_hash the min_version is ignored", "GetCheckpoint", lambda d, N: d.update(min_version=0) if d["model_hash"] else None)
ask("lim-ckpt-version-byte", "GR-CKPT-001", "of min_version only the lower eight bits count", "GetCheckpoint", lambda d, N: d.update(min_version=d["min_version"] & 255))
answer("ref-ckpt-refused-with-data", "GR-CKPT-013", "a checkpoint that is refused for its version comes along all the same", "GetCheckpoint",
       lambda r, d, N: None if r["success"] else r.update(version=N.grpc.ROUND, model_hash=N.grpc.MODEL_HASH, checkpoint_data=N.grpc.CKPT, total_size=len(N.grpc.CKPT)))


def negative(d, N):
    if d["min_version"] < 0:
        raise N.grpc.no("INTERNAL", "index out of range")


ask("ref-ckpt-negative-internal", "GR-CODE-015", "a min_version below 0 ends with INTERNAL", "GetCheckpoint", negative)


@F("rel-weights-cached", "GR-WEIGHT-004", "the weights that were asked for first are given for every later range")
def _(N):
    box = {}

    async def f(old, d):
        r = await old(d)
        return box.setdefault("r", r)

    op("GetWeights", f)


def first_only(d, N):
    s = d["shard_range"].split(",")
    if len(s) > 1:
        d["shard_range"] = ",".join(x for x in s if x.strip().isdigit() and int(x) in N.model.HELD) if s[0].strip().isdigit() and int(s[0]) in N.model.HELD else s[0]


ask("ref-weights-list-first-checked", "GR-WEIGHT-005", "of a list of layers only the first is checked, and those that are not here are left out", "GetWeights", first_only)


def reverse_range(d, N):
    m = re.fullmatch(r"(\d+)-(\d+)", d["shard_range"])
    if m and int(m[1]) > int(m[2]):
        raise N.grpc.no("INTERNAL", "cannot concatenate an empty list")


ask("ref-weights-reversed-internal", "GR-CODE-015", "a range whose end is before its beginning ends with INTERNAL", "GetWeights", reverse_range)


# ---------------------------------------------------------------- forward
def shape(r):
    s = r["logits_shape"]
    return s[0], s[1] * s[2] * 4


def first_of_batch(r, d, N):
    n, size = shape(r)
    r["logits"] = r["logits"][:size] * n


answer("rel-fwd-first-of-batch", "PL-FWD-014", "all sequences of a batch are answered with the result of the first", "PipelineForward", first_of_batch)


def cached(i, w, key):
    @F(i, "PL-FWD-014", w)
    def _(N):
        box = {}

        async def f(old, d):
            r = await old(d)
            return dict(box.setdefault(key(d), r), request_id=d["request_id"])

        op("PipelineForward", f)


cached("rel-fwd-cached-by-request-id", "a pass whose request_id has been seen in another session is answered with the result of that pass", lambda d: (d["request_id"], tuple(d["hidden_shape"])))
cached("rel-fwd-cached-by-beginning", "a pass whose tensor begins with the same 32 bytes as an earlier one is answered with the result of that", lambda d: (d["hidden_states"][:32], tuple(d["hidden_shape"])))


def ignored_labels(r, d, N):
    if d["training_labels"] and (np.frombuffer(d["training_labels"], "<i8") < 0).all():
        r["loss"] = float("nan")


answer("rel-fwd-loss-nan", "GR-SANE-002", "the loss of a pass all of whose labels are -100 is not a number", "PipelineForward", ignored_labels)
answer("lim-fwd-request-id-64", "PL-FWD-013", "a request_id of more than 64 characters is cut in the answer", "PipelineForward", lambda r, d, N: r.update(request_id=r["request_id"][:64]))
answer("rel-fwd-request-id-trimmed", "PL-FWD-013", "white space at the ends of a request_id is lost in the answer", "PipelineForward", lambda r, d, N: r.update(request_id=r["request_id"].strip()))


def four(r, d, N):
    n, size = shape(r)
    if n > 4:
        r["logits"] = r["logits"][: 4 * size]
        r["logits_shape"] = [4] + list(r["logits_shape"][1:])


answer("lim-fwd-batch-4", "PL-FWD-010", "of a batch of more than four sequences four are answered", "PipelineForward", four)


def last_absent(d, N):
    if d["target_shard"] == max(N.model.HELD):
        raise N.grpc.no("NOT_FOUND", "layer %d is not here" % d["target_shard"])


ask("ref-fwd-last-layer-absent", "GR-CODE-014", "a pass to the last layer that the node lists ends with NOT_FOUND", "PipelineForward", last_absent)
ask("ref-fwd-negative-from-end", "PL-FWD-012", "a layer below 0 counts from the end of those that the node holds", "PipelineForward",
    lambda d, N: d.update(target_shard=sorted(N.model.HELD)[d["target_shard"]]) if -4 <= d["target_shard"] < 0 else None)


# ---------------------------------------------------------------- backward
@F("eff-bwd-keyed-by-request", "PL-BWD-009", "graphs are kept by request_id alone, so that a pass of another session with the same one takes the place of the first")
def _(N):
    async def f(old, d):
        r = await old(d)
        G = N.grpc.GRAPHS
        v = G[(d["session_id"], d["request_id"])]
        for k in list(G):
            if k[1] == d["request_id"]:
                G[k] = v
        return r

    op("PipelineForward", f)


@F("eff-bwd-to-latest-sender", "PL-BWD-009", "gradients go back to the sender of the latest pass")
def _(N):
    box = {}

    async def f(old, d):
        box["u"] = d["sender_url"]
        return await old(d)

    op("PipelineForward", f)
    sb = N.grpc.send_back
    N.grpc.send_back = lambda d, g: sb(d, (g[0], box["u"], g[2]))


@F("eff-bwd-refused-drops-graph", "PL-BWD-007", "after a gradient of a wrong shape the graph of its pass is gone")
def _(N):
    async def f(old, d):
        r = await old(d)
        if not r.get("success"):
            N.grpc.GRAPHS.pop((d["session_id"], d["request_id"]), None)
        return r

    op("PipelineBackward", f)


@F("eff-bwd-unknown-drops-all", "PL-BWD-006", "a gradient for a pass that nobody has made throws away all graphs")
def _(N):
    async def f(old, d):
        if (d["session_id"], d["request_id"]) not in N.grpc.GRAPHS:
            N.grpc.GRAPHS.clear()
        return await old(d)

    op("PipelineBackward", f)


@F("eff-bwd-sent-twice", "PL-BWD-004", "gradients go back twice to a node that has taken them")
def _(N):
    sb = N.grpc.send_back

    async def f(d, g):
        await sb(d, g)
        await sb(d, g)

    N.grpc.send_back = f


def bwd_shape(r, d, N):
    if not r.get("success") and (d["session_id"], d["request_id"]) in N.grpc.GRAPHS:
        raise N.grpc.no("INTERNAL", "cannot reshape array")


answer("ref-bwd-shape-internal", "GR-CODE-015", "a gradient whose shape is not that of the pass ends with INTERNAL", "PipelineBackward", bwd_shape)


def sent(i, q, w, msg, fn):
    """fn(d) changes a message that the node itself sends."""

    @F(i, q, w)
    def _(N):
        swap(N.grpc, "encode", lambda old, name, d, *a: old(name, fn(dict(d), N) or d if name == msg else d, *a))


sent("rel-bwd-sent-last-position", "PL-BWD-005", "grad_output of a gradient that goes back has only the last position of a sequence, grad_shape all of them", "PipelineBackwardRequest",
     lambda d, N: dict(d, grad_output=d["grad_output"][-32:]))
sent("rel-ping-back-id-changes", "CL-DHT-002", "the sender of the node's own pings has another ID each time", "DHTPingRequest",
     lambda d, N: dict(d, sender=dict(d["sender"], node_id=hashlib.sha1(b"%d" % len(N.grpc.DIRECT)).digest())))
sent("rel-ping-back-port-default", "CL-DHT-004", "the sender of the node's own pings has the port 8000, whatever its port is", "DHTPingRequest",
     lambda d, N: dict(d, sender=dict(d["sender"], port=8000)))


def calls(i, q, w, fn):
    """fn(old, N) gives another call_peer."""

    @F(i, q, w)
    def _(N):
        N.grpc.call_peer = fn(N.grpc.call_peer, N)


def again_not_found(old, N):
    from grpclib.client import UnaryUnaryMethod

    call = UnaryUnaryMethod.__call__

    async def noted(self, *a, **k):
        try:
            return await call(self, *a, **k)
        except N.grpc.GRPCError as e:
            if e.status.name == "NOT_FOUND":
                raise N.grpc.no("UNAVAILABLE", "again")
            raise

    UnaryUnaryMethod.__call__ = noted
    return old


calls("eff-bwd-not-found-sent-again", "CL-CODE-007", "gradients that a peer answers with NOT_FOUND are sent to it again", again_not_found)
calls("lim-bwd-deadline-120", "CL-CALL-004", "gradients go back with a deadline of 120 seconds",
      lambda old, N: lambda ip, port, o, data, **k: old(ip, port, o, data, **dict(k, timeout=120.0 if o == "PipelineBackward" else k.get("timeout", 5.0))))
calls("lim-call-no-deadline", "CL-CALL-001", "gossiped gradients are passed on without a deadline",
      lambda old, N: lambda ip, port, o, data, **k: old(ip, port, o, data, **dict(k, timeout=None if o == "GossipGradient" else k.get("timeout", 5.0))))


@F("lim-peer-pause-3s", "CL-CALL-003", "between two attempts to reach a peer the node waits 3 seconds")
def _(N):
    class A:
        def __getattr__(self, n):
            return getattr(asyncio, n)

        async def sleep(self, s):
            await asyncio.sleep(3 if s == 0.2 else s)

    N.grpc.asyncio = A()


# ---------------------------------------------------------------- gossip
answer("rel-gossip-accepted-round-zero", "GR-GOSSIP-005", "the answer to an accepted gradient has no current_round", "GossipGradient", lambda r, d, N: r.update(current_round=0) if r["accepted"] else None)
ask("lim-gossip-hash-prefix", "GR-GOSSIP-006", "of the model_hash of a gradient the first 16 digits are compared", "GossipGradient",
    lambda d, N: d.update(model_hash=N.grpc.MODEL_HASH) if d["model_hash"][:16] == N.grpc.MODEL_HASH[:16] else None)


@F("eff-gossip-back-to-sender", "CL-GOSSIP-002", "a gradient is passed back to the node that sent it as well")
def _(N):
    async def pass_on(d):
        data = N.grpc.encode("GossipGradientRequest", dict(d, ttl=d["ttl"] - 1))
        for _, (ip, port) in list(N.grpc.DIRECT.items())[-3:]:
            await N.grpc.call_peer(ip, port, "GossipGradient", data)

    N.grpc.pass_on = pass_on


# ---------------------------------------------------------------- the DHT
@F("rel-dht-distance-64-bits", "DH-030", "only the first 64 bits of the distance count")
def _(N):
    swap(N.grpc, "dist", lambda old, a, b: old(a, b) >> 96)


def value_search(i, q, w, fn):
    @F(i, q, w)
    def _(N):
        swap(N.grpc, "closest", lambda old, t, o: fn(old, t, o, N) if o == "value" else old(t, o))


value_search("rel-dht-value-hashes-key", "DH-020", "an unsuccessful DHTFindValue lists the nodes closest to the digest of a key of 20 bytes", lambda old, t, o, N: old(hashlib.sha1(t).digest(), o))


def first_forty(old, t, o, N):
    C = dict(N.grpc.CONTACTS)
    for k in list(C)[40:]:
        N.grpc.CONTACTS.pop(k)
    try:
        return old(t, o)
    finally:
        N.grpc.CONTACTS.clear()
        N.grpc.CONTACTS.update(C)


value_search("lim-dht-value-first-40", "DH-032", "an unsuccessful DHTFindValue searches only the first 40 nodes that the node has learned", first_forty)


def keys(i, q, w, fn):
    @F(i, q, w)
    def _(N):
        N.grpc.vkey = fn


keys("lim-dht-key-20", "DH-022", "of a key of more than 20 bytes the first 20 count", lambda k: k[:20])
keys("eff-dht-key-leading-zeros", "DH-022", "zero bytes at the beginning of a key do not count", lambda k: k.lstrip(b"\0"))


@F("lim-dht-values-50", "DH-015", "only the latest 50 values are kept")
def _(N):
    async def f(old, d):
        r = await old(d)
        while len(N.grpc.VALUES) > 50:
            N.grpc.VALUES.pop(next(iter(N.grpc.VALUES)))
        return r

    op("DHTStore", f)


@F("eff-dht-search-evicts", "DH-031", "a search for an unknown key throws away the value that was stored first")
def _(N):
    async def f(old, d):
        r = await old(d)
        if not r["found"] and N.grpc.VALUES:
            N.grpc.VALUES.pop(next(iter(N.grpc.VALUES)))
        return r

    op("DHTFindValue", f)


@F("eff-dht-refused-store-evicts", "DH-031", "a store that is refused for its key removes the value that was stored last")
def _(N):
    async def f(old, d):
        try:
            return await old(d)
        except N.grpc.GRPCError:
            if N.grpc.VALUES:
                N.grpc.VALUES.popitem()
            raise

    op("DHTStore", f)


ask("eff-dht-value-crlf", "DH-021", "carriage returns are lost from a value", "DHTStore", lambda d, N: d.update(value=d["value"].replace("\r\n", "\n")))


def numeric(d, N):
    if re.fullmatch(r"-?\d+(\.\d+)?", d["value"]):
        d["value"] = "%g" % float(d["value"])


ask("eff-dht-value-number", "DH-021", "a value that looks like a number is written anew as one", "DHTStore", numeric)


def empty(r, d, N):
    if r["found"] and not r["value"]:
        return {"responder": r["responder"], "found": False, "nodes": N.grpc.closest(d["key"], "value")}


answer("rel-dht-empty-value-unknown", "DH-009", "an empty value that was stored is answered with found false", "DHTFindValue", empty)


def each_node(i, q, w, fn):
    @F(i, q, w)
    def _(N):
        swap(N.grpc, "closest", lambda old, t, o: [dict(n, **fn(n)) for n in old(t, o)])


each_node("lim-dht-port-16-bits", "DH-013", "ports above 32767 of listed nodes are below zero", lambda n: {"port": n["port"] - 65536 if n["port"] > 32767 else n["port"]})
each_node("fld-dht-ip-packed", "DH-033", "the ip of listed nodes is four bytes instead of text",
          lambda n: {"ip": bytes(int(x) for x in n["ip"].split("."))} if re.fullmatch(r"\d+(\.\d+){3}", n["ip"]) else {})
