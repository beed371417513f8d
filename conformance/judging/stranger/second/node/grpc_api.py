"""node.NodeService with grpclib; messages are read and written with the table in core."""

import asyncio, hashlib, json, math, time, os, struct
import numpy as np, lz4.frame
from grpclib import GRPCError
from grpclib.const import Status, Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server
from grpclib.config import Configuration
from grpclib.client import Channel
import core, model, state, http_api
from core import fault, pec, hook, encode, decode, Bad
from state import FIG

MIB = 1024 * 1024
LIMIT = 100 * MIB
for _n, _f in (
    (4, "lim-grpc-4mib"),
    (16, "lim-grpc-16mib"),
    (64, "lim-grpc-64mib"),
    (1, "lim-grpc-1mib"),
):
    pass


class Raw(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message, message_type):
        return message

    def decode(self, data, message_type):
        return data


def no(code, msg):
    return GRPCError(getattr(Status, code), msg)


ROUND = 37
MODEL_HASH = hashlib.sha256(b"toy model 37").hexdigest()
PHASE = "early" if not pec("phase-other") else "consolidation"
PARAMS = 1152
CKPT = lz4.frame.compress(
    json.dumps(
        {
            "version": ROUND,
            "layers": {
                str(i): [[float(round(float(x), 6)) for x in row] for row in model.W[i % 6]]
                for i in range(6)
            },
        }
    ).encode(),
    compression_level=1,
)
if pec("checkpoint-large"):
    CKPT = lz4.frame.compress(os.urandom(6 * MIB))
PUB = b"a public key of the stranger"
SELF_ID = hashlib.sha1(PUB).digest()
K = 1 if pec("k-one") else 20 if pec("k-twenty") else 8
if fault("lim-dht-k-zero"):
    K = 0
CONTACTS = {}
for _i in range(0 if pec("dht-alone") else 3 if pec("dht-few") else 26):
    _id = hashlib.sha1(b"contact %d" % _i).digest()
    CONTACTS[_id] = (
        "10.30.%d.%d" % (_i // 5, _i + 1) if not pec("dht-hostnames") else "c%d.example.net" % _i,
        8000 + _i,
    )
VALUES = {}
GRAPHS = {}
SEEN = {}
DIRECT = {}
_box = {}


def me():
    d = {"node_id": SELF_ID, "ip": "127.0.0.1", "port": http_api.PORT}
    if fault("rel-dht-self-id-changes"):
        _box["n"] = _box.get("n", 0) + 1
        d["node_id"] = hashlib.sha1(b"%d" % _box["n"]).digest()
    if fault("lim-dht-self-id-32"):
        d["node_id"] = hashlib.sha256(PUB).digest()
    if fault("lim-dht-self-id-40-hex"):
        d["node_id"] = SELF_ID.hex().encode()
    if fault("lim-dht-self-id-16"):
        d["node_id"] = hashlib.md5(PUB).digest()
    if fault("fld-dht-self-no-ip"):
        d["ip"] = ""
    if fault("fld-dht-self-no-port"):
        d["port"] = 0
    if fault("lim-dht-self-port-big"):
        d["port"] = http_api.PORT + 65536
    if fault("lim-dht-self-port-negative"):
        d["port"] = -1
    if fault("fld-dht-self-no-id"):
        d["node_id"] = b""
    return d


def learn(s, op):
    if fault("ref-dht-sender-needed") and not s:
        raise no("INTERNAL", "AttributeError")
    if not s:
        return
    if len(s["node_id"]) != 20:
        if fault("lim-dht-sender-any-length"):
            if s["node_id"]:
                CONTACTS[s["node_id"]] = (s["ip"] or "10.0.0.1", s["port"] or 8000)
            return
        if fault("ref-dht-bad-sender-aborts"):
            raise no("ABORTED", "bad sender")
        raise no("INVALID_ARGUMENT", "a node id has 20 bytes")
    if s["node_id"] == SELF_ID:
        return
    if not s["ip"] or not 0 < s["port"] < 65536:
        if fault("fld-dht-learns-without-address"):
            CONTACTS[s["node_id"]] = (s["ip"], s["port"])
        return
    if fault("eff-dht-moved-twice"):
        if s["node_id"] in CONTACTS and CONTACTS[s["node_id"]] != (s["ip"], s["port"]):
            _box.setdefault("twice", []).append((s["node_id"], CONTACTS[s["node_id"]]))
    CONTACTS[s["node_id"]] = (s["ip"], s["port"])
    if len(CONTACTS) > 3000:
        CONTACTS.pop(next(iter(CONTACTS)))
    if op == "DHTPing" and len(DIRECT) < 64:
        new = s["node_id"] not in DIRECT
        DIRECT[s["node_id"]] = (s["ip"], s["port"])
        if new and not pec("never-calls-back"):
            spawn(ping_back(s["ip"], s["port"]))


TASKS = set()


def spawn(coro):
    t = asyncio.get_running_loop().create_task(coro)
    TASKS.add(t)
    t.add_done_callback(TASKS.discard)


async def call_peer(ip, port, op, data, timeout=5.0, attempts=3):
    """Calls the gRPC port of a peer, which is its HTTP port plus 1000."""
    p = port + 1000
    if fault("rel-peer-port-plain"):
        p = port
    if fault("rel-peer-port-9000"):
        p = 9000
    if p > 65535:
        return None
    ch = Channel(ip, p, codec=Raw())
    try:
        from grpclib.client import UnaryUnaryMethod

        m = UnaryUnaryMethod(ch, "/node.NodeService/" + op, bytes, bytes)
        for k in range(12 if fault("eff-peer-retries-forever") else attempts):
            try:
                return await m(data, timeout=timeout)
            except GRPCError as e:
                if e.status not in (
                    Status.UNAVAILABLE,
                    Status.RESOURCE_EXHAUSTED,
                    Status.INTERNAL,
                    Status.DEADLINE_EXCEEDED,
                ):
                    return None
            except (OSError, asyncio.TimeoutError, Exception):
                pass
            if fault("eff-peer-no-pause"):
                continue
            await asyncio.sleep(min(2.0, 0.1 * 2 ** (k + 1)))
    except Exception:
        return None
    finally:
        ch.close()


async def ping_back(ip, port):
    await asyncio.sleep(0.15)
    s = me()
    if fault("lim-peer-ping-id-short"):
        s = dict(s, node_id=SELF_ID[:10])
    await call_peer(ip, port, "DHTPing", encode("DHTPingRequest", {"sender": s}), attempts=1)


def dist(a, b):
    return int.from_bytes(a, "big") ^ int.from_bytes(b.ljust(20, b"\0")[:20], "big")


def closest(target, op):
    L = list(CONTACTS)
    if fault("rel-dht-order-plain"):
        L.sort(key=lambda i: abs(int.from_bytes(i, "big") - int.from_bytes(target, "big")))
    elif fault("rel-dht-farthest"):
        L.sort(key=lambda i: -dist(i, target))
    elif fault("rel-dht-unsorted-first-k"):
        pass
    elif fault("rel-dht-first-byte"):
        L.sort(key=lambda i: (i[0] ^ target[0]) // 16)
    elif fault("rel-dht-hamming"):
        L.sort(key=lambda i: bin(dist(i, target)).count("1"))
    elif fault("rel-dht-little-endian"):
        L.sort(key=lambda i: int.from_bytes(i, "little") ^ int.from_bytes(target, "little"))
    elif fault("rel-dht-by-self"):
        L.sort(key=lambda i: dist(i, SELF_ID))
    elif fault("rel-dht-leaves-out-nearest"):
        L.sort(key=lambda i: dist(i, target))
        L = L[1:]
    elif fault("rel-dht-leaves-out-exact"):
        L = [i for i in L if i != target]
        L.sort(key=lambda i: dist(i, target))
    elif fault("rel-dht-value-other-order") and op == "value":
        pass
    elif fault("rel-dht-random-k"):
        state.R.shuffle(L)
    else:
        L.sort(key=lambda i: dist(i, target))
    k = K
    if fault("lim-dht-k-one-for-value") and op == "value":
        k = 0
    L = L[:k]
    if pec("dht-nearest-last"):
        L.reverse()
    out = [{"node_id": i, "ip": CONTACTS[i][0], "port": CONTACTS[i][1]} for i in L]
    for i, ad in _box.get("twice", []):
        if i in L:
            out.append({"node_id": i, "ip": ad[0], "port": ad[1]})
    if fault("rel-dht-listed-twice") and out:
        out.append(dict(out[0]))
    if fault("lim-dht-listed-ids-hex"):
        for o in out:
            o["node_id"] = o["node_id"].hex().encode()
    if fault("lim-dht-listed-ids-19"):
        for o in out:
            o["node_id"] = o["node_id"][:19]
    if fault("lim-dht-listed-ids-stripped"):
        for o in out:
            o["node_id"] = o["node_id"][::-1].lstrip(o["node_id"][-1:])
    if fault("fld-dht-listed-no-ip"):
        for o in out:
            o["ip"] = ""
    if fault("fld-dht-listed-no-port"):
        for o in out:
            o["port"] = 0
    if fault("fld-dht-listed-one-empty") and out:
        out[-1] = {}
    if fault("lim-dht-listed-port-plus-60000"):
        for o in out:
            o["port"] += 60000
    if fault("fld-dht-ip-with-port"):
        for o in out:
            o["port"], o["ip"] = 0, "%s:%d" % (o["ip"], o["port"])
    return out


# ---------------------------------------------------------------- operations; each takes and gives a dict
async def DHTPing(d):
    learn(d["sender"], "DHTPing")
    r = {"responder": me()}
    if fault("rel-dht-ping-echoes-sender") and d["sender"]:
        r["responder"] = d["sender"]
    return r


async def DHTFindNode(d):
    if len(d["target_id"]) != 20:
        if fault("ref-dht-target-length-out-of-range"):
            raise no("OUT_OF_RANGE", "target")
        if fault("ref-dht-target-length-unknown"):
            raise RuntimeError("target")
        if fault("ref-dht-target-length-precondition"):
            raise no("FAILED_PRECONDITION", "target")
        raise no("INVALID_ARGUMENT", "target_id has 20 bytes")
    learn(d["sender"], "DHTFindNode")
    r = {"responder": me(), "nodes": closest(d["target_id"], "node")}
    if fault("rel-dht-find-node-echoes-sender") and d["sender"]:
        r["responder"] = d["sender"]
    if fault("eff-dht-find-node-empty"):
        r["nodes"] = []
    if fault("rel-dht-find-node-responder-first-contact") and r["nodes"]:
        r["responder"] = r["nodes"][0]
    if fault("fld-dht-find-node-no-responder"):
        r["responder"] = None
    return r


def vkey(k):
    if fault("eff-dht-key-prefix"):
        return k[:8]
    if fault("eff-dht-key-suffix"):
        return k[-4:]
    if fault("eff-dht-key-case"):
        return k.lower()
    if fault("eff-dht-key-text"):
        return k.decode("utf-8", "replace").encode("utf-8", "replace")
    if fault("eff-dht-key-nul"):
        return k.split(b"\0")[0]
    if fault("eff-dht-key-ascii"):
        return k.decode("ascii", "ignore").encode()
    if fault("eff-dht-key-stripped"):
        return k.strip()
    if fault("eff-dht-key-sum"):
        return bytes([sum(k) % 256])
    return k


async def DHTStore(d):
    learn(d["sender"], "DHTStore")
    if not d["key"] or len(d["key"]) > 255:
        if fault("ref-dht-bad-key-unknown"):
            raise RuntimeError("key")
        raise no("INVALID_ARGUMENT", "key")
    v = d["value"]
    if pec("dht-long-values-refused") and len(v) > 2000:
        return {"responder": me(), "success": False}
    if pec("dht-only-20-byte-keys") and len(d["key"]) != 20:
        raise no("INVALID_ARGUMENT", "a key has 20 bytes")
    k = vkey(d["key"])
    for n in (32, 255, 1024, 4096, 65535):
        if fault("lim-dht-value-%d" % n):
            v = v[:n]
    if fault("eff-dht-value-trimmed"):
        v = v.strip()
    if fault("eff-dht-value-ascii"):
        v = v.encode("ascii", "replace").decode()
    if fault("eff-dht-value-latin"):
        v = v.encode("utf-8").decode("latin-1")
    if fault("eff-dht-value-lower"):
        v = v.lower()
    if fault("eff-dht-value-first-line"):
        v = v.split("\n")[0]
    if fault("eff-dht-value-nul"):
        v = v.split("\0")[0]
    if fault("eff-dht-value-host-port-only") and ":" in v:
        v = v.split(":")[0]
    if fault("eff-dht-value-json"):
        v = json.dumps(v)[1:-1]
    if fault("eff-dht-value-nfc"):
        import unicodedata

        v = unicodedata.normalize("NFKC", v)
    if fault("eff-dht-value-bmp"):
        v = "".join(x if ord(x) < 0x10000 else "\ufffd" for x in v)
    ok = True
    if fault("eff-dht-store-refused-but-stored"):
        ok = False
    if fault("eff-dht-store-existing-refused-but-replaced") and k in VALUES:
        ok = False
    if not fault("eff-dht-store-nothing"):
        if fault("eff-dht-one-slot"):
            VALUES.clear()
        if fault("eff-dht-keeps-three") and len(VALUES) >= 3:
            VALUES.pop(next(iter(VALUES)))
        if not (fault("eff-dht-first-only") and VALUES):
            if fault("eff-dht-store-appends") and k in VALUES:
                v = VALUES[k] + "," + v
            VALUES[k] = v
    if fault("eff-dht-store-expires-1s"):
        asyncio.get_running_loop().call_later(0.3, VALUES.pop, k, None)
    if fault("eff-dht-store-late"):
        VALUES.pop(k, None)
        asyncio.get_running_loop().call_later(3, VALUES.__setitem__, k, v)
    r = {"responder": me(), "success": ok}
    if fault("fld-dht-store-no-responder"):
        r["responder"] = None
    if fault("rel-dht-store-echoes-sender") and d["sender"]:
        r["responder"] = d["sender"]
    return r


async def DHTFindValue(d):
    learn(d["sender"], "DHTFindValue")
    key = d["key"]
    if not key or len(key) > 255:
        if fault("ref-dht-key-length-unknown"):
            raise RuntimeError("key")
        if fault("ref-dht-key-length-unauthenticated"):
            raise no("UNAUTHENTICATED", "key")
        raise no("INVALID_ARGUMENT", "key")
    k = vkey(key)
    v = VALUES.get(k)
    r = {"responder": me()}
    if fault("eff-dht-found-once"):
        VALUES.pop(k, None)
    if fault("eff-dht-found-every-second"):
        _box["f"] = _box.get("f", 0) + 1
        if _box["f"] % 2 == 0:
            v = None
    if fault("eff-dht-any-value") and v is None and VALUES:
        v = next(iter(VALUES.values()))
    if fault("eff-dht-latest-value") and VALUES and v is not None:
        v = list(VALUES.values())[-1]
    if v is not None:
        r.update(found=True, value=v)
        if fault("rel-dht-found-false-with-value"):
            r["found"] = False
        if fault("fld-dht-found-missing-value"):
            r.pop("value")
        if pec("dht-nodes-beside-value"):
            r["nodes"] = closest(key, "value")
    else:
        r.update(found=False, nodes=closest(key, "value"))
        if fault("rel-dht-unknown-found-true"):
            r["found"] = True
        if fault("rel-dht-unknown-value-text"):
            r["value"] = "None"
        if fault("rel-dht-unknown-value-empty-found"):
            r.update(found=True, value="", nodes=[])
        if fault("rel-dht-unknown-no-nodes"):
            r["nodes"] = []
        if fault("ref-dht-unknown-not-found"):
            raise no("NOT_FOUND", "no such key")
    if fault("fld-dht-find-value-no-responder"):
        r["responder"] = None
    if fault("rel-dht-find-value-echoes-sender") and d["sender"]:
        r["responder"] = d["sender"]
    return r


async def GetCheckpoint(d):
    r = {
        "success": True,
        "version": ROUND,
        "model_hash": MODEL_HASH,
        "phase": PHASE,
        "checkpoint_data": CKPT,
        "total_size": len(CKPT) if not pec("total-size-raw") else len(lz4.frame.decompress(CKPT)),
    }
    if pec("no-checkpoint"):
        return {"success": False, "error_message": "there is no checkpoint yet"}
    mh, mv = d["model_hash"], d["min_version"] or 0
    if (
        fault("rel-ckpt-own-hash-refused")
        and mh == MODEL_HASH
        or fault("lim-ckpt-own-version-refused")
        and mv >= ROUND
        or fault("rel-ckpt-hash-and-version-refused")
        and mh
        and mv
    ):
        return {"success": False, "error_message": "no such checkpoint"}
    if fault("rel-ckpt-hash-upper-needed") and mh and mh != MODEL_HASH.upper():
        return {"success": False, "error_message": "no such checkpoint"}
    why = None
    if (
        mh
        and mh != MODEL_HASH
        and not fault("eff-ckpt-hash-ignored")
        and not (fault("eff-ckpt-hash-prefix") and MODEL_HASH[:8] == mh[:8])
    ):
        why = "no checkpoint has this hash"
        if fault("eff-ckpt-hash-echoed"):
            r["model_hash"] = mh
            return r
    if mv > ROUND and not fault("eff-ckpt-version-ignored"):
        why = "no checkpoint is as new as that"
        if fault("eff-ckpt-version-echoed"):
            r["version"] = mv
            return r
        if fault("lim-ckpt-version-off-by-one") and mv == ROUND + 1:
            why = None
    if why:
        if fault("ref-ckpt-no-reason"):
            why = ""
        if fault("ref-ckpt-precondition"):
            raise no("FAILED_PRECONDITION", why)
        if fault("ref-ckpt-unknown"):
            raise RuntimeError(why)
        if fault("ref-ckpt-out-of-range"):
            raise no("OUT_OF_RANGE", why)
        if fault("rel-ckpt-refused-success"):
            return {"success": True, "error_message": why}
        if pec("ckpt-refusal-not-found"):
            raise no("NOT_FOUND", why)
        return {"success": False, "error_message": why}
    return r


async def GetCheckpointInfo(d):
    if pec("no-checkpoint"):
        return {"phase": "bootstrap"}
    r = {
        "version": ROUND,
        "model_hash": MODEL_HASH,
        "phase": PHASE,
        "params": PARAMS,
        "loss": state.loss(),
    }
    if pec("params-huge"):
        r["params"] = 700 * 10**9
    return r


async def GetWeights(d):
    s = d["shard_range"].strip()
    held = sorted(model.HELD)
    if fault("lim-weights-end-exclusive"):
        pass
    try:
        if not s:
            want = held
        elif "-" in s[1:]:
            a, b = s.split("-", 1)
            a, b = int(a), int(b)
            if fault("lim-weights-end-exclusive"):
                b -= 1
            want = list(range(a, b + 1)) if b - a < 100000 else [a, b]
        else:
            want = [int(x) for x in s.split(",")]
        if not want and not fault("lim-weights-end-exclusive") or any(x < 0 for x in want):
            raise ValueError
    except ValueError:
        if fault("ref-weights-junk-unknown"):
            raise RuntimeError(s)
        if fault("ref-weights-junk-empty"):
            return {"weights_data": b""}
        if fault("ref-weights-junk-unimplemented"):
            raise no("UNIMPLEMENTED", "notation")
        raise no("INVALID_ARGUMENT", "write one layer as 3 and several as 2-4")
    if any(x not in held for x in want):
        for n, code in (
            ("internal", "INTERNAL"),
            ("unavailable", "UNAVAILABLE"),
            ("invalid", "INVALID_ARGUMENT"),
            ("exhausted", "RESOURCE_EXHAUSTED"),
        ):
            if fault("ref-weights-absent-" + n):
                raise no(code, "absent")
        if fault("ref-weights-absent-empty"):
            return {"weights_data": b""}
        if fault("ref-weights-absent-others"):
            want = held
        elif fault("ref-weights-absent-partial") and any(x in held for x in want):
            want = [x for x in want if x in held]
        elif fault("ref-weights-absent-zeros"):
            return {"weights_data": b"\0" * 256}
        else:
            raise no("NOT_FOUND", "a layer of these is not here")
    data = lz4.frame.compress(b"".join(model.W[i % 6].tobytes() for i in want), compression_level=1)
    if pec("weights-plain"):
        data = b"".join(model.W[i % 6].tobytes() for i in want)
    return {"weights_data": data}


async def GossipGradient(d):
    FIG.grads_in += 1
    r = {"accepted": False, "current_round": ROUND}
    if fault("rel-gossip-round-echoed"):
        r["current_round"] = d["round_id"]
    why = None
    if not d["node_id"]:
        why = "node_id is empty"
    elif d["model_hash"] != MODEL_HASH:
        why = "another model"
    elif not ROUND - 3 <= d["round_id"] <= ROUND + 1:
        why = "round %d is not near %d" % (d["round_id"], ROUND)
    elif not math.isfinite(d["loss"]):
        why = "the loss is not finite"
    elif not d["layer_gradients"]:
        why = "no gradients"
    elif d["ttl"] < 0:
        why = "negative ttl"
    else:
        for k, v in d["layer_gradients"].items():
            try:
                lz4.frame.decompress(v)
            except Exception:
                why = "the gradient of %s is not an LZ4 frame" % k[:40]
    dig = hashlib.sha1(encode("GossipGradientRequest", dict(d, ttl=0))).digest()
    if why is None and dig in SEEN:
        why = "known already"
    if pec("gossip-accepts-all"):
        why = None
    if why:
        if fault("ref-gossip-no-reason"):
            why = ""
        if fault("ref-gossip-unknown"):
            raise RuntimeError(why)
        if fault("ref-gossip-unauthenticated"):
            raise no("UNAUTHENTICATED", why)
        if fault("ref-gossip-already-exists"):
            raise no("ALREADY_EXISTS", why)
        r["reason"] = why
        return r
    SEEN[dig] = 1
    if len(SEEN) > 1000:
        SEEN.pop(next(iter(SEEN)))
    FIG.grads_ok += 1
    r["accepted"] = True
    if d["ttl"] > 0 or fault("lim-gossip-ttl-below-zero"):
        spawn(pass_on(d))
    return r


async def pass_on(d):
    ttl = d["ttl"] - 1
    if fault("lim-gossip-ttl-kept"):
        ttl = d["ttl"]
    if fault("lim-gossip-ttl-raised"):
        ttl = d["ttl"] + 1
    data = encode("GossipGradientRequest", dict(d, ttl=ttl))
    for i, (ip, port) in list(DIRECT.items())[-3:]:
        if i.hex() == d["node_id"] or "%s:%d" % (ip, port) == d["node_id"]:
            continue
        await call_peer(ip, port, "GossipGradient", data)


def tensor(b, shape, what):
    if len(shape) != 3 or any(x <= 0 for x in shape) or shape[2] != model.HID:
        raise no("INVALID_ARGUMENT", "%s has the shape [batch, seq, %d]" % (what, model.HID))
    n = shape[0] * shape[1] * shape[2]
    if len(b) != n * 4:
        raise no("INVALID_ARGUMENT", "%s has %d bytes instead of %d" % (what, len(b), n * 4))
    t = np.frombuffer(b, "<f4").reshape(shape)
    if not np.isfinite(t).all():
        raise no("INVALID_ARGUMENT", "%s is not finite" % what)
    return t


def absent(d, r):
    s = d["target_shard"] or 0
    if s < 0:
        raise no("INVALID_ARGUMENT", "a shard is not negative")
    if s not in model.HELD:
        for n, code in (
            ("internal", "INTERNAL"),
            ("unavailable", "UNAVAILABLE"),
            ("exhausted", "RESOURCE_EXHAUSTED"),
            ("invalid", "INVALID_ARGUMENT"),
            ("deadline", "DEADLINE_EXCEEDED"),
            ("unimplemented", "UNIMPLEMENTED"),
        ):
            if fault("ref-%s-absent-%s" % (r, n)):
                raise no(code, "absent")
        if fault("ref-%s-absent-success-false" % r):
            return {
                "success": False,
                "error_message": "the layer is not here",
                "request_id": d["request_id"],
            }
        if fault("ref-%s-absent-computed" % r):
            return None
        raise no("NOT_FOUND", "layer %d is not here" % s)


async def PipelineForward(d):
    rid = d["request_id"]
    if fault("rel-fwd-request-id-empty"):
        rid = ""
    if fault("rel-fwd-request-id-session"):
        rid = d["session_id"]
    if fault("rel-fwd-request-id-new"):
        rid = state.new_id("fw")
    if fault("rel-fwd-request-id-previous"):
        rid, _box["rid"] = _box.get("rid", rid), rid
    if fault("rel-fwd-request-id-cut"):
        rid = rid[:8]
    if fault("rel-fwd-request-id-lower"):
        rid = rid.lower() if rid != rid.lower() else rid.upper()
    r = {"request_id": rid}
    x = absent(d, "fwd")
    if x:
        return x
    try:
        h = tensor(d["hidden_states"], d["hidden_shape"], "hidden_states")
    except GRPCError as e:
        if fault("ref-fwd-bad-shape-unknown"):
            raise RuntimeError("reshape")
        if fault("ref-fwd-bad-success-false-no-reason"):
            return {"request_id": rid, "success": False}
        if fault("ref-fwd-bad-computed"):
            h = np.zeros((1, 1, 8), "<f4")
        elif fault("ref-fwd-bad-cancelled"):
            raise no("CANCELLED", "x")
        elif pec("fwd-refuses-softly"):
            return {"request_id": rid, "success": False, "error_message": e.message}
        else:
            raise
    held = sorted(model.HELD)
    first = d["target_shard"] or 0
    if fault("rel-fwd-skips-layers"):
        out = h
    else:
        out = model.run_layers(h, first, held[-1])
    if fault("rel-fwd-nan"):
        out = out * np.float32("nan")
    final = held[-1] == model.TOTAL - 1
    r.update(success=True, is_final=final)
    if fault("rel-fwd-success-false-with-result"):
        r["success"] = False
    if d["use_cache"]:
        r["past_key_values"] = [h.tobytes()[:64]] * 1 if not pec("no-cache-given") else []
    loss = None
    if final:
        lg = model.logits_of(out)
        r.update(logits=lg.tobytes(), logits_shape=list(lg.shape))
        if pec("final-with-hidden"):
            r.update(hidden_states=out.tobytes(), hidden_shape=list(out.shape))
        if d["training_labels"]:
            n = h.shape[0] * h.shape[1]
            lab = np.frombuffer(d["training_labels"][: len(d["training_labels"]) // 8 * 8], "<i8")
            lab = lab[:n] % model.V if len(lab) >= n else np.zeros(n, "i8")
            z = lg.reshape(n, -1).astype("f8")
            z -= z.max(1, keepdims=True)
            loss = float(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(n), lab]))
            r["loss"] = loss
    else:
        r.update(hidden_states=out.tobytes(), hidden_shape=list(out.shape))
    GRAPHS[(d["session_id"], d["request_id"])] = (h.shape, d["sender_url"], model.V)
    while len(GRAPHS) > 64:
        GRAPHS.pop(next(iter(GRAPHS)))
    if fault("eff-bwd-graph-dropped"):
        GRAPHS.clear()
    if fault("eff-bwd-graph-only-with-labels") and not d["training_labels"]:
        GRAPHS.clear()
    return r


async def PipelineBackward(d):
    x = absent(d, "bwd")
    if x:
        x.pop("request_id")
        return x
    g = GRAPHS.get((d["session_id"], d["request_id"]))
    if fault("eff-bwd-graph-by-request-reversed"):
        g = GRAPHS.get((d["request_id"], d["session_id"]))
    if not g:
        if fault("ref-bwd-no-reason"):
            return {"success": False}
        if fault("ref-bwd-unknown-graph-crash"):
            raise RuntimeError("KeyError")
        if fault("ref-bwd-unknown-graph-precondition"):
            raise no("FAILED_PRECONDITION", "no graph")
        return {
            "success": False,
            "error_message": "no forward pass of this session and request is kept",
        }
    shape = d["grad_shape"]
    n = int(np.prod(shape)) if shape and all(0 < x < 10**6 for x in shape) else -1
    ok = tuple(shape) in (tuple(g[0]), tuple(g[0][:2]) + (g[2],)) and len(d["grad_output"]) == 4 * n
    if fault("eff-bwd-shape-transposed"):
        ok = ok and shape[0] == shape[1] == 0
    if not ok:
        return {"success": False, "error_message": "the gradient has not the shape of the pass"}
    if fault("rel-bwd-success-unset"):
        return {}
    if g[1] and not fault("eff-bwd-not-passed-on"):
        spawn(send_back(d, g))
    return {"success": True}


async def send_back(d, g):
    u = g[1].split("://")[-1].rstrip("/")
    if ":" not in u:
        return
    ip, port = u.rsplit(":", 1)
    if not port.isdigit():
        return
    z = np.zeros(g[0], "<f4") + 0.01
    data = encode(
        "PipelineBackwardRequest",
        {
            "session_id": d["session_id"],
            "request_id": d["request_id"],
            "grad_output": z.tobytes(),
            "grad_shape": list(z.shape),
            "target_shard": max(0, d["target_shard"] - 1),
        },
    )
    await call_peer(ip, int(port), "PipelineBackward", data)


async def UnaryInference(d):
    if not d["prompt"]:
        raise no("INVALID_ARGUMENT", "prompt")
    g = model.Generation(d["prompt"], min(max(d["max_tokens"], 0) or 20, 200), 1.0, 1.0, 50, [])
    for _ in g:
        pass
    return {"piece": g.text, "last": True, "tokens": g.count}


def ack(name):
    async def op(d):
        return {"ok": False, "note": "nothing is done about it"}

    op.__name__ = name
    return op


async def GetShardInfo(d):
    return {"held": sorted(model.HELD)[:50], "total": model.TOTAL, "role": model.ROLE}


async def GetSwarmStatus(d):
    return {"ok": True, "note": "%d contacts" % len(CONTACTS)}


OPS = {
    "UnaryInference": (UnaryInference, "InferenceRequest", "InferenceResponse"),
    "GetWeights": (GetWeights, "WeightRequest", "WeightResponse"),
    "GossipGradient": (GossipGradient, "GossipGradientRequest", "GossipGradientResponse"),
    "GetCheckpoint": (GetCheckpoint, "GetCheckpointRequest", "GetCheckpointResponse"),
    "GetCheckpointInfo": (
        GetCheckpointInfo,
        "GetCheckpointInfoRequest",
        "GetCheckpointInfoResponse",
    ),
    "PipelineForward": (PipelineForward, "PipelineForwardRequest", "PipelineForwardResponse"),
    "PipelineBackward": (PipelineBackward, "PipelineBackwardRequest", "PipelineBackwardResponse"),
    "GetShardInfo": (GetShardInfo, "GetCheckpointInfoRequest", "ShardInfo"),
    "DHTPing": (DHTPing, "DHTPingRequest", "DHTPingResponse"),
    "DHTStore": (DHTStore, "DHTStoreRequest", "DHTStoreResponse"),
    "DHTFindNode": (DHTFindNode, "DHTFindNodeRequest", "DHTFindNodeResponse"),
    "DHTFindValue": (DHTFindValue, "DHTFindValueRequest", "DHTFindValueResponse"),
    "GetSwarmStatus": (GetSwarmStatus, "GetCheckpointInfoRequest", "Ack"),
}
for _n in (
    "GossipProof",
    "GossipTransaction",
    "GossipStake",
    "RequestProofValidation",
    "GossipValidationVote",
    "SwarmForward",
    "UpdatePeerCapacity",
):
    OPS[_n] = (ack(_n), "GetCheckpointInfoRequest", "Ack")
ALL = ["StreamInference"] + list(OPS)


def size_guard(op, data):
    lim = LIMIT
    for n in (1, 4, 16, 64):
        if fault("lim-grpc-%dmib" % n):
            lim = n * MIB
    for o, n in (
        ("DHTStore", 4),
        ("PipelineForward", 4),
        ("GossipGradient", 4),
        ("GossipGradient", 50),
        ("PipelineForward", 32),
        ("PipelineBackward", 4),
        ("DHTPing", 4),
        ("DHTFindValue", 4),
        ("GetWeights", 4),
        ("GetCheckpoint", 4),
        ("DHTFindNode", 4),
    ):
        if op == o and fault("lim-grpc-%s-%dmib" % (o.lower(), n)):
            lim = n * MIB
    if fault("lim-grpc-100mb"):
        lim = 95 * 1000 * 1000
    if len(data) > lim:
        raise no("RESOURCE_EXHAUSTED", "the message has %d bytes" % len(data))


def unary(op, fn, rq, rs):
    async def handler(stream):
        data = await stream.recv_message()
        if data is None:
            raise no("INVALID_ARGUMENT", "no message")
        FIG.rpc += 1
        size_guard(op, data)
        if pec("g-slow"):
            await asyncio.sleep(0.3)
        try:
            d = decode(rq, data)
        except (Bad, struct.error) as e:
            if fault("ref-grpc-garbage-internal"):
                raise RuntimeError("parse")
            if fault("ref-grpc-garbage-ignored"):
                d = decode(rq, b"")
            elif fault("ref-grpc-garbage-closes"):
                stream._stream.connection._transport.abort() if hasattr(
                    stream._stream, "connection"
                ) else None
                raise no("INTERNAL", "x")
            else:
                raise no("INVALID_ARGUMENT", str(e))
        if fault("ref-info-nonempty") and op == "GetCheckpointInfo" and not data:
            raise no("INVALID_ARGUMENT", "which checkpoint")
        for o in (
            "GetCheckpoint",
            "GetCheckpointInfo",
            "DHTPing",
            "GetWeights",
            "DHTFindNode",
            "GossipGradient",
        ):
            if op == o and fault("ref-%s-unauthenticated" % o.lower()):
                raise no("UNAUTHENTICATED", "credentials are needed")
            if op == o and fault("ref-%s-internal" % o.lower()):
                raise RuntimeError("x")
        r = await fn(d)
        r = hook("g:" + op, r, d)
        out = encode(rs, r)
        if fault("rou-op-%s-two-answers" % op.lower()):
            await stream.send_message(out)
            await stream.send_message(out)
            return
        if fault("rou-op-%s-no-answer" % op.lower()):
            return
        if pec("g-trailers"):
            await stream.send_message(out)
            await stream.send_trailing_metadata(metadata=[("x-took", "1")])
            return
        await stream.send_message(out)

    return handler


async def stream_inference(stream):
    any_ = False
    async for data in stream:
        any_ = True
        FIG.rpc += 1
        try:
            d = decode("InferenceRequest", data)
        except Bad as e:
            raise no("INVALID_ARGUMENT", str(e))
        if fault("eff-stream-inference-second-refused") and stream.__dict__.setdefault("_n", 0):
            raise no("INTERNAL", "too many messages")
        stream.__dict__["_n"] = 1
        p = d["prompt"] or "x"
        g = model.Generation(p, min(max(d["max_tokens"], 0) or 8, 200), 1.0, 1.0, 50, [])
        for piece in g:
            await stream.send_message(encode("InferenceResponse", {"piece": piece}))
        await stream.send_message(encode("InferenceResponse", {"last": True, "tokens": g.count}))
        if fault("eff-stream-inference-first-only"):
            return
    if not any_:
        return


class Service:
    def __mapping__(self):
        base = "/%s/" % core.ROUTEMOD.get("service", "node.NodeService")
        m = {}
        for op in ALL:
            name = core.ROUTEMOD.get("op:" + op, op)
            if not name:
                continue
            if op == "StreamInference":
                h, card = stream_inference, Cardinality.STREAM_STREAM
                if fault("rou-op-stream-inference-unary"):
                    h, card = (
                        unary(
                            "UnaryInference",
                            UnaryInference,
                            "InferenceRequest",
                            "InferenceResponse",
                        ),
                        Cardinality.UNARY_UNARY,
                    )
            else:
                h, card = unary(op, *OPS[op]), Cardinality.UNARY_UNARY
                if fault("rou-op-%s-two-answers" % op.lower()):
                    card = Cardinality.UNARY_STREAM
            m[base + name] = Handler(h, card, bytes, bytes)
            for a in core.ROUTEMOD.get("alias", ()):
                m["/%s/%s" % (a, name)] = m[base + name]
        if fault("rou-grpc-unlisted-answered"):
            for n in ("PutCheckpoint", "NoSuchOperation", "Shutdown", "GetPeers", "Ping"):
                m[base + n] = Handler(
                    unary("Ack", ack("Ack"), "GetCheckpointInfoRequest", "Ack"),
                    Cardinality.UNARY_UNARY,
                    bytes,
                    bytes,
                )
        return m


def server():
    cfg = Configuration(http2_connection_window_size=64 * MIB, http2_stream_window_size=64 * MIB)
    return Server([Service()], codec=Raw(), config=cfg)
