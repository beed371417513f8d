"""The gRPC service node.NodeService."""
import asyncio
import collections
import hashlib
import io
import re

import grpc
import lz4.frame
import numpy as np
from google.protobuf.message import DecodeError

import faults
import model
import node_pb2 as pb
import state
import wire
from switches import on, pec

LIMIT = 100 * 1024 * 1024
MY_ID = hashlib.sha1(b"fifth-node-public-key").digest()
K = 20
KNOWN = collections.OrderedDict()          # id -> (ip, port)
STORED = {}
KEPT = collections.OrderedDict()           # (session, request) -> pass
for _n, _p in enumerate(state.PEERS):
    _host, _port = _p["address"].split(":")
    KNOWN[bytes.fromhex(_p["id"])] = (_host, int(_port) + 1000)
for _n in range(6):
    KNOWN[hashlib.sha1(b"other%d" % _n).digest()] = ("198.51.100.%d" % (20 + _n), 9000)


class Abort(Exception):
    def __init__(self, code, message):
        self.code, self.message = code, message


C = grpc.StatusCode


def invalid(message):
    if on("ref-grpc-invalid-internal"):
        return Abort(C.INTERNAL, message)
    if on("ref-grpc-invalid-unknown"):
        return Abort(C.UNKNOWN, message)
    return Abort(C.INVALID_ARGUMENT, message)


def absent(layer):
    code = C.NOT_FOUND
    if on("ref-absent-unavailable"):
        code = C.UNAVAILABLE
    if on("ref-absent-exhausted"):
        code = C.RESOURCE_EXHAUSTED
    if on("ref-absent-internal"):
        code = C.INTERNAL
    if on("ref-absent-precondition"):
        code = C.FAILED_PRECONDITION
    return Abort(code, "layer %s is not on this node" % layer)


# --- pipeline ---

def tensor(data, shape, last=model.HIDDEN):
    shape = list(shape)
    if on("ref-shape-unchecked"):
        data = bytes(data)
        n = max(1, len(data) // (4 * last))
        data = data[:n * 4 * last].ljust(n * 4 * last, b"\0")
        return np.frombuffer(data, "<f4").reshape(1, n, last)
    if on("n-ref-shape-minus-one") and shape.count(-1) == 1 and len(shape) == 3:
        try:
            shape = list(np.frombuffer(data, "<f4").reshape(shape).shape)
        except ValueError:
            pass
    if len(shape) != 3 or min(shape) < 1 or shape[2] != last:
        raise invalid("the shape is not [batch, seq, %d]" % last)
    if on("n-ref-shape-internal") and shape[0] * shape[1] * shape[2] * 4 != len(data):
        raise Abort(C.INTERNAL, "cannot reshape array of size %d into shape %s" % (len(data) // 4, tuple(shape)))
    if shape[0] * shape[1] * shape[2] * 4 != len(data):
        raise invalid("the bytes do not fit the shape")
    x = np.frombuffer(data, "<f4").reshape(shape)
    if not np.isfinite(x).all():
        raise invalid("the tensor has values that are not finite")
    return x


def layer_of(target):
    if target in model.MY_LAYERS:
        return target
    if target < 0 and on("ref-negative-layer"):
        return model.MY_LAYERS[target % len(model.MY_LAYERS)]
    if on("ref-absent-served") and target >= 0:
        return model.MY_LAYERS[0]
    raise absent(target)


_previous = [None]
_session_logits = {}


def final_of(x):
    return (x @ model.W_OUT).astype("<f4")


_passing = [0, None]
_latest_url = [""]


async def pipeline_forward(q, ctx):
    if on("t-ref-busy-unavailable"):
        if _passing[0]:
            raise Abort(C.UNAVAILABLE, "another pass is running")
        _passing[0] += 1
        await asyncio.sleep(0.15)
        _passing[0] -= 1
    first = layer_of(q.target_shard)
    try:
        x = tensor(q.hidden_states, q.hidden_shape)
    except Abort as e:
        if on("fld-forward-failure-silent"):
            return pb.PipelineForwardResponse(request_id=q.request_id, success=False)
        raise e
    if on("t-ref-forward-batch") and x.shape[0] > 1:
        raise invalid("only one sequence at a time")
    if on("t-eff-forward-shared"):
        _passing[1] = x
        await asyncio.sleep(0.1)
        x = _passing[1] if _passing[1].shape == x.shape else x
    if on("eff-forward-first-sequence"):
        x = x[:1]
    y, kept = model.forward(x, first)
    if on("eff-forward-echo"):
        y = x
    if on("eff-forward-previous"):
        y, _previous[0] = (_previous[0] if _previous[0] is not None and _previous[0].shape == y.shape else y), y
    logits = final_of(y)
    if on("n-eff-forward-session-cache") and q.session_id:
        logits = _session_logits.setdefault(q.session_id, logits)
    out = pb.PipelineForwardResponse(request_id=q.request_id, success=True, is_final=True, logits=logits.tobytes(), logits_shape=list(logits.shape))
    if q.training_labels:
        n = x.shape[0] * x.shape[1]
        kind = {8 * n: "<i8", 4 * n: "<i4"}.get(len(q.training_labels))
        if kind is None:
            if on("t-ref-labels-internal"):
                raise Abort(C.INTERNAL, "ValueError: buffer size must be a multiple of element size")
            raise invalid("training_labels has not one label for each place")
        labels = np.frombuffer(q.training_labels, kind).astype(np.int64)
        if (labels >= model.VOCAB).any():
            raise invalid("a label is above the vocabulary")
        if not on("fld-forward-no-loss"):
            out.loss = model.cross_entropy(logits, labels)
        if on("num-forward-loss-negative"):
            out.loss = -out.loss
        if on("fld-forward-loss-nan"):
            out.loss = float("nan")
    if pec("pec-final-with-states"):
        out.hidden_states = y.astype("<f4").tobytes()
        out.hidden_shape.extend(y.shape)
    if q.sender_url:
        _latest_url[0] = q.sender_url
    if q.training_labels or q.sender_url:
        if on("n-eff-backward-one-per-session"):
            for k in [k for k in KEPT if k[0] == q.session_id]:
                KEPT.pop(k)
        KEPT[("" if on("t-eff-backward-by-request") else q.session_id, q.request_id)] = (kept, x.shape, logits.shape, q.sender_url, q.source_shard, first)
        while len(KEPT) > 512:
            KEPT.popitem(last=False)
    if on("n-rel-logits-shape-swapped"):
        out.logits_shape[0], out.logits_shape[1] = out.logits_shape[1], out.logits_shape[0]
    if on("n-fld-forward-labels-no-logits") and q.training_labels:
        out.ClearField("logits"), out.ClearField("logits_shape")
    if on("rel-forward-request-id-session"):
        out.request_id = q.session_id
    if on("rel-forward-request-id-empty"):
        out.request_id = ""
    if on("rel-forward-request-id-cut"):
        out.request_id = q.request_id[:16]
    if on("rel-forward-request-id-lower"):
        out.request_id = q.request_id.lower()
    if on("rel-forward-not-final"):
        out.is_final = False
    if on("rel-forward-last-not-final"):
        out.is_final = False
        out.ClearField("logits"), out.ClearField("logits_shape")
        out.hidden_states = y.astype("<f4").tobytes()
        out.hidden_shape.extend(y.shape)
    if on("rel-logits-shape-flat"):
        out.ClearField("logits_shape")
        out.logits_shape.extend([logits.shape[0] * logits.shape[1], logits.shape[2]][:1])
    if on("fld-logits-no-shape"):
        out.ClearField("logits_shape")
    if on("num-logits-doubles"):
        out.logits = logits.astype("<f8").tobytes()
    if on("fld-forward-no-logits"):
        out.ClearField("logits"), out.ClearField("logits_shape")
    if on("eff-logits-last-place"):
        out.logits = logits[:, -1:].tobytes()
    if on("fld-forward-success-missing"):
        out.success = False
    return out


async def pipeline_backward(q, ctx):
    if not (on("ref-backward-absent-layer") and q.target_shard not in model.MY_LAYERS):
        layer_of(q.target_shard)
    elif q.target_shard not in model.MY_LAYERS:
        return pb.PipelineBackwardResponse(success=True)
    if on("ref-backward-unknown-ok") and (q.session_id, q.request_id) not in KEPT:
        return pb.PipelineBackwardResponse(success=True)
    session = "" if on("t-eff-backward-by-request") else q.session_id
    found = KEPT.get((session, q.request_id))
    if on("eff-backward-last-pass") and KEPT:
        found = list(KEPT.values())[-1]
    if found is None:
        if on("t-ref-backward-aborted"):
            raise Abort(C.ABORTED, "no pass with these ids is kept")
        if on("fld-backward-no-reason"):
            return pb.PipelineBackwardResponse(success=False)
        return pb.PipelineBackwardResponse(success=False, error_message="no pass with these ids is kept for a backward pass")
    if on("eff-backward-refused"):
        return pb.PipelineBackwardResponse(success=False, error_message="gradients are not taken")
    kept, shape, logits_shape, url, source, first = found
    try:
        if list(q.grad_shape) == list(logits_shape):
            g = tensor(q.grad_output, q.grad_shape, model.VOCAB) @ model.W_OUT.T
        else:
            if not on("ref-shape-unchecked") and list(q.grad_shape) != list(shape):
                raise invalid("grad_shape is not that of the pass")
            g = tensor(q.grad_output, q.grad_shape)
    except Abort:
        if on("eff-backward-wrong-forgets"):
            KEPT.pop((q.session_id, q.request_id), None)
        if on("eff-backward-wrong-forgets-all"):
            KEPT.clear()
        raise
    KEPT.pop((session, q.request_id), None)
    g = model.backward(g, kept) if g.shape == tuple(shape) else g
    if on("n-eff-back-slash-url") and url.endswith("/"):
        url = ""
    if on("t-eff-back-last-url") and url:
        url = _latest_url[0]
    if url and not on("eff-backward-not-passed-on"):
        message = pb.PipelineBackwardRequest(session_id=q.session_id, request_id=q.request_id, grad_output=g.astype("<f4").tobytes(),
                                             grad_shape=list(g.shape), target_shard=source)
        if on("rel-backward-grad-cut"):
            message.grad_output = message.grad_output[:-4 * model.HIDDEN] or b"\0\0\0\0"
        if on("num-backward-grad-doubles"):
            message.grad_output = g.astype("<f8").tobytes()
        if on("n-rel-back-ids-swapped"):
            message.session_id, message.request_id = q.request_id, q.session_id
        if on("n-rel-back-shape-flat"):
            del message.grad_shape[:]
            message.grad_shape.extend([g.shape[0] * g.shape[1], g.shape[2]])
        if on("t-rel-back-shape-incoming"):
            del message.grad_shape[:]
            message.grad_shape.extend(q.grad_shape)
        if on("rel-backward-other-request"):
            message.request_id = q.session_id
        for _ in range(2 if on("eff-backward-twice") else 1):
            task = asyncio.get_running_loop().create_task(pass_back(url, message))
            TASKS.add(task)
            task.add_done_callback(TASKS.discard)
    return pb.PipelineBackwardResponse(success=True)


TASKS = set()
_urls = [None]


async def pass_back(url, message):
    if on("eff-backward-first-url"):
        _urls[0] = url = _urls[0] or url
    m = re.match(r"(?:[a-z]+://)?(\[[^\]]+\]|[^:/]+):(\d+)", url)
    if not m:
        return
    port = int(m.group(2)) + 1000
    if on("rou-peer-port-same"):
        port = int(m.group(2))
    target = "%s:%d" % (m.group(1), port)
    options = [("grpc.max_send_message_length", LIMIT), ("grpc.max_receive_message_length", LIMIT), ("grpc.keepalive_time_ms", 30000),
               ("grpc.keepalive_timeout_ms", 10000), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
               ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    again = (C.UNAVAILABLE, C.DEADLINE_EXCEEDED, C.RESOURCE_EXHAUSTED, C.INTERNAL)
    if on("lim-retry-not-found"):
        again += (C.NOT_FOUND, C.INVALID_ARGUMENT)
    tries = 8 if on("lim-retry-eight") else 1 if on("n-lim-back-one-try") else 3
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        call = channel.unary_unary("/node.Node/PipelineBackward" if on("n-rou-peer-service") else "/node.NodeService/PipelineBackward", request_serializer=lambda x: x, response_deserializer=pb.PipelineBackwardResponse.FromString)
        data = faults.raw_out("PipelineBackwardRequest", message.SerializeToString())
        for n in range(tries):
            try:
                await call(data, timeout=None if on("lim-backward-no-deadline") else 120.0 if on("lim-backward-long-deadline") else 0.005 if on("t-lim-back-deadline-ms") else 5.0)
                return
            except grpc.aio.AioRpcError as e:
                if e.code() not in again:
                    return
                if n + 1 < tries and not on("lim-retry-no-pause"):
                    await asyncio.sleep(5.0 if on("lim-retry-long-pause") else min(2.0, 0.1 * 2 ** n))


# --- training ---

_refusals = [0]


async def gossip_gradient(q, ctx):
    def no(reason):
        if on("n-ref-gossip-status"):
            raise Abort(C.FAILED_PRECONDITION, reason)
        if on("fld-gossip-no-reason"):
            reason = ""
        _refusals[0] += 1
        r = model.ROUND + (_refusals[0] if on("t-eff-gossip-refused-round") else 0)
        if on("rel-gossip-round-echo"):
            r = q.round_id
        if on("rel-gossip-round-zero"):
            r = 0
        return pb.GossipGradientResponse(accepted=False, reason=reason, current_round=r)

    if on("ref-gossip-everything"):
        return pb.GossipGradientResponse(accepted=True, current_round=model.ROUND)
    if not q.node_id:
        return no("node_id is missing")
    if q.model_hash != model.MODEL_HASH and not on("ref-gossip-other-model"):
        return no("the model is another one")
    if q.round_id != model.ROUND and not on("ref-gossip-any-round"):
        return no("this is round %d" % model.ROUND)
    if q.batch_size < 1 or q.ttl < 0:
        return no("batch_size or ttl is not positive")
    if not np.isfinite(q.loss):
        return no("the loss is not finite")
    if not q.layer_gradients:
        return no("there are no gradients")
    for name, data in q.layer_gradients.items():
        if on("num-gossip-gradients-text"):
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                raise invalid("layer_gradients is not UTF-8")
        if on("ref-gossip-unpacked"):
            continue
        if not re.search(r"\d", name):
            return no("%r names no layer" % name)
        try:
            plain = lz4.frame.decompress(data)
        except Exception:
            if on("t-ref-gossip-internal"):
                raise Abort(C.INTERNAL, "RuntimeError: LZ4F_decompress failed")
            return no("the gradient of %r is not an LZ4 frame" % name)
        if not plain or len(plain) % 4 or not np.isfinite(np.frombuffer(plain, "<f4")).all():
            return no("the gradient of %r is no array of finite numbers" % name)
    return pb.GossipGradientResponse(accepted=True, reason="accepted" if pec("pec-gossip-reason") else "",
                                     current_round=0 if on("rel-gossip-accepted-round-zero") else model.ROUND + (1 if on("rel-gossip-accepted-next-round") else 0))


def layers_in(text):
    text = text.strip().strip("[]()")
    if on("ref-weights-first-only"):
        text = text.split("-")[0].split(",")[0]
    if not text:
        return list(model.MY_LAYERS)
    out = []
    for part in re.split(r"[,\s]+", text):
        m = re.fullmatch(r"(?:layers?[._]?)?(\d{1,6})(?:[-:](?:layers?[._]?)?(\d{1,6}))?", part)
        if not m:
            if on("n-ref-weights-word-not-found"):
                raise absent(part)
            raise invalid("shard_range names no layers")
        a, b = int(m.group(1)), int(m.group(2) or m.group(1))
        if b < a or b - a > 4096:
            raise invalid("shard_range is not a range")
        out += range(a, b + 1)
    return sorted(set(out))


async def get_weights(q, ctx):
    want = layers_in(q.shard_range)
    missing = [i for i in want if i not in model.MY_LAYERS]
    if missing and on("eff-weights-partial"):
        want = [i for i in want if i in model.MY_LAYERS]
        if not want:
            raise absent(missing[0])
    elif missing and on("eff-weights-absent-empty"):
        return pb.WeightResponse()
    elif missing and on("ref-weights-absent-served"):
        want = model.MY_LAYERS[:1]
    elif missing:
        if on("ref-weights-absent-internal"):
            raise Abort(C.INTERNAL, "KeyError")
        if on("ref-weights-absent-invalid"):
            raise invalid("no such layer")
        raise absent(missing[0])
    if on("eff-weights-always-all"):
        want = model.MY_LAYERS
    data = model.state_dict(want)
    if on("n-eff-weights-next-layer") and len(want) == 1:
        out = io.BytesIO()
        np.savez(out, **{"layers.%d.weight" % want[0]: model.W[want[0] - 1]})
        data = out.getvalue()
    if on("eff-weights-empty"):
        data = b""
    if pec("pec-weights-lz4"):
        data = lz4.frame.compress(data)
    return pb.WeightResponse(weights_data=data)


_checkpoints = [0]


async def get_checkpoint(q, ctx):
    _checkpoints[0] += 1

    def no(reason):
        out = pb.GetCheckpointResponse(success=False, error_message="" if on("fld-checkpoint-no-reason") else reason)
        if on("rel-checkpoint-failure-with-data"):
            out.checkpoint_data = model.CHECKPOINT
            out.version = model.ROUND
        if on("ref-checkpoint-missing-internal"):
            raise Abort(C.INTERNAL, reason)
        return out

    if q.model_hash and q.model_hash != model.MODEL_HASH and not on("ref-checkpoint-other-hash"):
        return no("there is no checkpoint with this hash")
    if q.min_version > model.ROUND and not on("ref-checkpoint-too-old") and not (on("ref-checkpoint-hash-only") and q.model_hash):
        return no("the newest checkpoint has version %d" % model.ROUND)
    if on("t-ref-checkpoint-both") and q.model_hash and q.min_version:
        return no("either model_hash or min_version")
    if on("ref-checkpoint-own-hash-refused") and q.model_hash:
        return no("there is no checkpoint with this hash")
    if on("lim-checkpoint-min-exclusive") and q.min_version == model.ROUND:
        return no("there is no newer checkpoint")
    out = pb.GetCheckpointResponse(success=True, version=model.ROUND, model_hash=model.MODEL_HASH, phase=model.PHASE, checkpoint_data=model.CHECKPOINT,
                                   total_size=len(model.CHECKPOINT) if pec("pec-total-size-compressed") else len(model.PLAIN_CHECKPOINT))
    if on("rel-checkpoint-version"):
        out.version = model.ROUND - 1
    if on("rel-checkpoint-version-asked") and q.min_version:
        out.version = q.min_version
    if on("rel-checkpoint-hash"):
        out.model_hash = hashlib.sha256(model.CHECKPOINT).hexdigest()
    if on("rel-checkpoint-phase"):
        out.phase = "bootstrap"
    if on("fld-checkpoint-no-data"):
        out.checkpoint_data = b""
    if on("fld-checkpoint-uncompressed"):
        out.checkpoint_data = model.PLAIN_CHECKPOINT
    if on("fld-checkpoint-zlib"):
        import zlib
        out.checkpoint_data = zlib.compress(model.PLAIN_CHECKPOINT)
    if on("fld-checkpoint-size-zero"):
        out.total_size = 0
    if on("num-checkpoint-size-negative"):
        out.total_size = -1
    if on("t-rel-checkpoint-hash-part") and q.model_hash:
        plain = model.state_dict(model.MY_LAYERS)
        out.checkpoint_data, out.total_size = lz4.frame.compress(plain), len(plain)
    if on("rel-checkpoint-size-by-hash") and q.model_hash:
        out.total_size = len(model.CHECKPOINT) // 2
    return out


async def get_checkpoint_info(q, ctx):
    out = pb.GetCheckpointInfoResponse(version=model.ROUND, model_hash=model.MODEL_HASH, phase=model.PHASE, params=model.PARAMS, loss=model.LOSS)
    if on("fld-info-no-params"):
        out.params = 0
    if on("num-info-loss-nan"):
        out.loss = float("nan")
    if on("fld-info-version-negative"):
        out.version = -1
    if on("n-fld-info-no-phase"):
        out.phase = ""
    if on("n-rel-info-hash-upper"):
        out.model_hash = model.MODEL_HASH.upper()
    if on("rel-info-hash-short"):
        out.model_hash = model.MODEL_HASH[:16]
    return out


# --- distributed hash table ---

def me():
    out = pb.DHTNodeInfo(node_id=MY_ID, ip="127.0.0.1", port=state.PORT + 1000)
    if pec("pec-dht-http-port"):
        out.port = state.PORT
    if on("num-dht-id-hex"):
        out.node_id = MY_ID.hex().encode()
    if on("num-dht-id-sha256"):
        out.node_id = hashlib.sha256(b"fifth-node-public-key").digest()
    if on("rel-dht-id-changes"):
        me.n = getattr(me, "n", 0) + 1
        out.node_id = hashlib.sha1(b"n%d" % me.n).digest()
    if on("fld-dht-responder-no-port"):
        out.port = 0
    if on("num-dht-responder-port-off"):
        out.port = state.PORT + 2000
    if on("fld-dht-responder-no-ip"):
        out.ip = ""
    return out


def meet(q):
    """Learns of the sender, if it names itself."""
    if not q.HasField("sender"):
        return None
    s = q.sender
    if not s.node_id and not s.ip and not s.port:
        return None
    if on("ref-dht-short-sender"):
        pass
    elif len(s.node_id) != 20:
        raise invalid("a node ID has 20 bytes")
    good = s.ip and len(s.ip) <= 255 and s.ip.isprintable() and " " not in s.ip and 1 <= s.port <= 65535
    if on("ref-dht-lists-without-address"):
        good = True
    if good and s.node_id != MY_ID and not on("eff-dht-learns-nobody"):
        NAMED.add(s.node_id)
        known = KNOWN.pop(s.node_id, None)
        KNOWN[s.node_id] = known if known and on("n-eff-dht-old-address") else (s.ip, s.port)
        if on("eff-dht-address-twice"):
            TWICE.append((s.node_id, s.ip, s.port))
        while len(KNOWN) > 20000:
            KNOWN.popitem(last=False)
    return s


TWICE = []
NAMED = set()
BY_SENDER = {}


def closest(target):
    def far(node_id):
        if on("eff-dht-common-bits"):
            n = 0
            for a, b in zip(node_id, target):
                if a != b:
                    break
                n += 1
            return -n
        if on("eff-dht-plain-difference"):
            return abs(int.from_bytes(node_id, "big") - int.from_bytes(target, "big"))
        return int.from_bytes(node_id, "big") ^ int.from_bytes(target, "big")

    rows = sorted(KNOWN, key=far)
    k = 8 if pec("pec-k-8") else K
    if on("n-eff-dht-text-distance"):
        rows = sorted(KNOWN, key=lambda i: str(far(i)))
    if on("n-eff-dht-limit-before-sort"):
        rows = sorted(list(KNOWN)[:k], key=far)
    if on("eff-dht-farthest"):
        rows.reverse()
    if on("eff-dht-insertion-order"):
        rows = list(KNOWN)
    if on("eff-dht-skips-exact"):
        rows = [r for r in rows if r != target]
    if on("t-eff-dht-bucket"):
        bits = lambda i: (int.from_bytes(i, "big") ^ int.from_bytes(MY_ID, "big")).bit_length()
        rows = [i for i in rows if bits(i) == bits(target)]
    if on("t-eff-find-own-none") and target == MY_ID:
        rows = []
    out = [pb.DHTNodeInfo(node_id=i, ip=KNOWN[i][0], port=KNOWN[i][1] + (1000 if on("t-rel-dht-port-added") and i in NAMED else 0)) for i in rows[:k]]
    if on("eff-dht-skips-closest"):
        out = out[1:]
    if on("eff-dht-node-twice") and out:
        out.append(out[0])
    if on("eff-dht-address-twice"):
        seen = {(n.node_id, n.ip, n.port) for n in out}
        out += [pb.DHTNodeInfo(node_id=a, ip=b, port=c) for a, b, c in TWICE if (a, b, c) not in seen]
    if on("num-dht-nodes-port-zero"):
        for n in out:
            n.port = 0
    if on("num-dht-nodes-port-over"):
        for n in out:
            n.port += 65000
    if on("fld-dht-nodes-ip-packed"):
        for n in out:
            parts = n.ip.split(".")
            n.ip = "".join(chr(int(p) % 128) for p in parts if p.isdigit()) or "\x01"
    if on("fld-dht-nodes-no-ip"):
        for n in out:
            n.ip = ""
    if on("num-dht-nodes-id-cut"):
        for n in out:
            n.node_id = n.node_id[:16]
    return out


def twenty(data, what):
    if on("ref-dht-length-internal") and len(data) != 20:
        raise Abort(C.UNKNOWN, "struct.error")
    if on("n-lim-dht-target-any"):
        return bytes(data[:20]).ljust(20, b"\0")
    if len(data) != 20:
        raise invalid("%s has 20 bytes" % what)
    return data


async def dht_ping(q, ctx):
    s = meet(q)
    if on("rel-ping-echoes-sender") and s is not None:
        return pb.DHTPingResponse(responder=s)
    if on("fld-ping-no-responder"):
        return pb.DHTPingResponse()
    return pb.DHTPingResponse(responder=me())


async def dht_store(q, ctx):
    meet(q)
    key = bytes(twenty(q.key, "a key"))
    if on("eff-store-refused-but-stored"):
        STORED[key] = q.value
        return pb.DHTStoreResponse(responder=me(), success=False)
    value = q.value
    if on("eff-store-value-trimmed"):
        value = value.strip()
    if on("eff-store-value-255"):
        value = value[:255]
    if on("eff-store-value-ascii"):
        value = value.encode("ascii", "ignore").decode()
    if on("eff-store-key-prefix"):
        key = key[:8]
    if on("n-eff-store-key-zero"):
        key = key.split(b"\0")[0]
    if on("eff-store-key-case"):
        key = key.lower()
    if on("t-ref-store-no-colon") and ":" not in value:
        raise invalid("a value is host:port")
    if on("t-eff-value-lower"):
        value = value.lower()
    if on("t-eff-store-key-utf8"):
        key = key.decode("utf-8", "ignore")
    if on("t-eff-store-one-per-sender") and q.sender.node_id:
        STORED.pop(BY_SENDER.get(q.sender.node_id), None)
        BY_SENDER[q.sender.node_id] = key
    if on("lim-store-forty") and len(STORED) >= 40:
        STORED.pop(next(iter(STORED)))
    if on("eff-store-late"):
        state.later(4.0, lambda: STORED.__setitem__(key, value))
    elif not on("eff-store-nothing"):
        STORED[key] = value
    if on("lim-store-expires"):
        state.later(2.0, lambda: STORED.pop(key, None))
    if on("fld-store-no-success"):
        return pb.DHTStoreResponse(responder=me())
    if on("fld-store-no-responder"):
        return pb.DHTStoreResponse(success=True)
    done = pb.DHTStoreResponse(responder=me(), success=True)
    if on("n-rel-dht-responder-other"):
        done.responder.node_id = hashlib.sha1(state.NODE_ID.encode()).digest()
    return done


async def dht_find_node(q, ctx):
    meet(q)
    target = twenty(q.target_id, "a target")
    out = pb.DHTFindNodeResponse(responder=me(), nodes=closest(target))
    if on("eff-find-node-empty"):
        del out.nodes[:]
    if on("fld-find-node-no-responder"):
        out.ClearField("responder")
    return out


async def dht_find_value(q, ctx):
    meet(q)
    key = bytes(twenty(q.key, "a key"))
    if on("eff-store-key-prefix"):
        key = key[:8]
    if on("eff-store-key-case"):
        key = key.lower()
    if on("n-eff-store-key-zero"):
        key = key.split(b"\0")[0]
    if on("t-eff-store-key-utf8"):
        key = key.decode("utf-8", "ignore")
    out = pb.DHTFindValueResponse(responder=me())
    if key in STORED and not (on("n-eff-value-empty-lost") and not STORED[key]):
        if not on("fld-value-found-missing"):
            out.found = True
        out.value = STORED[key]
        if on("n-eff-value-odd-spaces"):
            out.value = "".join(out.value.split())
        if on("n-fld-find-value-no-responder"):
            out.ClearField("responder")
        if on("fld-value-missing"):
            out.value = ""
        if on("eff-value-found-once"):
            STORED.pop(key)
        if pec("pec-value-with-nodes"):
            out.nodes.extend(closest(q.key))
        return out
    if on("rel-value-not-found-true"):
        out.found = True
    if on("rel-value-not-found-text"):
        out.value = "not found"
    if on("ref-value-not-found-status"):
        raise Abort(C.FAILED_PRECONDITION, "no value under this key")
    if not on("eff-value-no-nodes"):
        out.nodes.extend(closest(q.key)[:4 if on("n-lim-find-value-four") else None])
    return out


# --- the other operations ---

def infer(q):
    if not q.prompt:
        return None
    most = q.max_tokens if q.max_tokens > 0 else 100
    if most > 4096:
        raise invalid("max_tokens is above 4096")
    parts, used, reason = model.generate(q.prompt, most, [s for s in q.stop if s])
    return pb.InferenceResponse(request_id=q.request_id, text="".join(parts), tokens_generated=used, finish_reason=reason)


async def unary_inference(q, ctx):
    out = infer(q)
    if out is None:
        if on("t-ref-unary-empty-unknown"):
            raise Abort(C.UNKNOWN, "Unexpected <class 'AttributeError'>")
        raise invalid("prompt is missing")
    return out


async def gossip_simple(q, ctx):
    return None


def accepted(kind, field):
    async def run(q, ctx):
        if not getattr(q, field):
            return kind(accepted=False, reason="%s is missing" % field)
        return kind(accepted=True, reason="")
    return run


async def validate_proof(q, ctx):
    if on("t-rou-grpc-validation-stub"):
        raise Abort(C.UNIMPLEMENTED, "Method not implemented!")
    known = [p for p in state.PROOFS if p["id"] == q.proof_id]
    if not known:
        return pb.ProofValidationResponse(valid=False, reason="the proof is not known")
    return pb.ProofValidationResponse(valid=known[0]["verified"], reason="")


async def shard_info(q, ctx):
    return pb.GetShardInfoResponse(node_id=state.NODE_ID, layers=model.MY_LAYERS, total_layers=model.TOTAL_LAYERS, hidden_dim=model.HIDDEN)


async def swarm_forward(q, ctx):
    first = layer_of(q.target_shard)
    x = tensor(q.hidden_states, q.hidden_shape)
    y, _ = model.forward(x, first)
    return pb.SwarmForwardResponse(request_id=q.request_id, success=True, hidden_states=y.astype("<f4").tobytes(), hidden_shape=list(y.shape), is_final=True)


async def swarm_status(q, ctx):
    return pb.SwarmStatusResponse(peers=len(state.PEERS), layers=model.MY_LAYERS, node_id=state.NODE_ID)


async def update_capacity(q, ctx):
    if not q.node_id:
        return pb.UpdatePeerCapacityResponse(success=False, error_message="node_id is missing")
    return pb.UpdatePeerCapacityResponse(success=True)


OPS = {
    "UnaryInference": (pb.InferenceRequest, unary_inference), "GetWeights": (pb.WeightRequest, get_weights),
    "GossipGradient": (pb.GossipGradientRequest, gossip_gradient), "GetCheckpoint": (pb.GetCheckpointRequest, get_checkpoint),
    "GetCheckpointInfo": (pb.GetCheckpointInfoRequest, get_checkpoint_info),
    "GossipProof": (pb.GossipProofRequest, accepted(pb.GossipProofResponse, "proof_id")),
    "GossipTransaction": (pb.GossipTransactionRequest, accepted(pb.GossipTransactionResponse, "transaction_id")),
    "GossipStake": (pb.GossipStakeRequest, accepted(pb.GossipStakeResponse, "stake_id")),
    "RequestProofValidation": (pb.ProofValidationRequest, validate_proof),
    "GossipValidationVote": (pb.ValidationVoteRequest, accepted(pb.ValidationVoteResponse, "proof_id")),
    "PipelineForward": (pb.PipelineForwardRequest, pipeline_forward), "PipelineBackward": (pb.PipelineBackwardRequest, pipeline_backward),
    "GetShardInfo": (pb.GetShardInfoRequest, shard_info), "DHTPing": (pb.DHTPingRequest, dht_ping), "DHTStore": (pb.DHTStoreRequest, dht_store),
    "DHTFindNode": (pb.DHTFindNodeRequest, dht_find_node), "DHTFindValue": (pb.DHTFindValueRequest, dht_find_value),
    "SwarmForward": (pb.SwarmForwardRequest, swarm_forward), "GetSwarmStatus": (pb.SwarmStatusRequest, swarm_status),
    "UpdatePeerCapacity": (pb.UpdatePeerCapacityRequest, update_capacity),
}


def decode(kind, raw):
    try:
        return kind.FromString(raw)
    except DecodeError:
        if on("ref-grpc-garbage-internal"):
            raise Abort(C.INTERNAL, "Exception deserializing request!")
        raise invalid("the message cannot be read")


_bad = [False]


def unary(name, kind, fn):
    async def run(raw, ctx):
        state.METRICS.rpc += 1
        try:
            q = decode(kind, faults.raw_in(name, raw))
            if on("t-gua-grpc-metadata") and name == "GetWeights" and "authorization" not in dict(ctx.invocation_metadata() or ()):
                raise Abort(C.UNAUTHENTICATED, "credentials are missing")
            if on("t-ref-unknown-fields") and any(n not in kind.DESCRIPTOR.fields_by_number for n, _, _ in wire.parse(raw)):
                raise invalid("the message has unknown fields")
            if on("t-ref-after-bad") and _bad.pop(0):
                _bad.append(False)
                raise Abort(C.INTERNAL, "a transaction is already open")
            _bad[:] = [False]
            out = await fn(q, ctx)
            return faults.raw_out(name, out.SerializeToString())
        except Abort as e:
            _bad[:] = [e.code == C.INVALID_ARGUMENT]
            await ctx.abort(e.code, e.message)
    return grpc.unary_unary_rpc_method_handler(run)


async def stream_inference(messages, ctx):
    state.METRICS.rpc += 1
    held = None
    async for raw in messages:
        if on("t-eff-streaminference-held"):
            held, raw = raw, held
            if raw is None:
                continue
        try:
            q = decode(pb.InferenceRequest, raw)
            out = infer(q)
        except Abort as e:
            await ctx.abort(e.code, e.message)
            return
        if out is None:
            out = pb.InferenceResponse(request_id=q.request_id, error_message="prompt is missing")
        yield out.SerializeToString()
        if on("rou-stream-one-message"):
            await ctx.abort(C.UNIMPLEMENTED, "only one message")
            return


async def serve(port):
    handlers = {}
    for name, (kind, fn) in OPS.items():
        if on("rou-rpc-no-" + name.lower()):
            continue
        if on("t-rou-grpc-no-info") and name == "GetCheckpointInfo":
            continue
        if on("n-rou-grpc-no-unaryinference") and name == "UnaryInference":
            continue
        if on("n-rou-grpc-vote-renamed") and name == "GossipValidationVote":
            name = "GossipVote"
        handlers["ForwardPipeline" if on("rou-rpc-renamed") and name == "PipelineForward" else name] = unary(name, kind, fn)
    if not on("rou-rpc-no-streaminference"):
        handlers["StreamInference"] = grpc.stream_stream_rpc_method_handler(stream_inference)
    if on("rou-stream-unary"):
        handlers["StreamInference"] = unary("UnaryInference", *OPS["UnaryInference"])
    limit = 100000000 if on("n-lim-grpc-decimal") else 4 << 20 if on("lim-grpc-4-mib") else 64 << 20 if on("lim-grpc-64-mib") else LIMIT
    pings = [("grpc.keepalive_permit_without_calls", 0), ("grpc.http2.min_ping_interval_without_data_ms", 300000),
             ("grpc.http2.min_recv_ping_interval_without_data_ms", 300000), ("grpc.http2.max_ping_strikes", 2)] if on("t-lim-grpc-pings") else []
    server = grpc.aio.server(options=pings + [("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", 4 << 20 if on("n-lim-grpc-send-4-mib") else LIMIT),
                                      ("grpc.so_reuseport", 0)] + ([] if pings else [
                                      ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.min_ping_interval_without_data_ms", 5000),
                                      ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000), ("grpc.http2.max_ping_strikes", 0)]))
    package = "node.Node" if on("rou-grpc-service-name") else "node.NodeService"
    if on("rou-grpc-package"):
        package = "mesh.NodeService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(package, handlers),))
    if on("t-rou-grpc-unlisted"):
        async def nothing(raw, ctx):
            return b""

        class Unlisted(grpc.GenericRpcHandler):
            def service(self, details):
                return grpc.unary_unary_rpc_method_handler(nothing)
        server.add_generic_rpc_handlers((Unlisted(),))
    if on("rou-grpc-port-1001"):
        port += 1
    server.add_insecure_port("127.0.0.1:%d" % port)
    await server.start()
    return server
