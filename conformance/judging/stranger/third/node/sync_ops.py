"""Gradients, checkpoints and weights."""

import io
import json
import math
import re
import zlib

import grpc
import lz4.frame

import core
import counters
import node_pb2 as pb
import pipeline
from core import fault, nth, peculiar
from fail import Fail

INVALID, MISSING = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
SEEN = set()
_DATA = {}


def state(layers):
    """A state dictionary: a line of JSON with names and shapes, then the float32 values in that order."""
    out, head = io.BytesIO(), []
    parts = []
    for layer in layers:
        grid = pipeline.weight(layer)
        head.append({"name": "layers.%d.mix" % layer, "shape": list(grid.shape), "dtype": "<f4"})
        parts.append(grid.tobytes())
    out.write(json.dumps(head).encode() + b"\n")
    for part in parts:
        out.write(part)
    return out.getvalue()


def packed():
    if "all" not in _DATA:
        level = 0 if peculiar("lz4-other-level") else 1
        _DATA["all"] = lz4.frame.compress(state(core.HELD + [core.TOTAL_LAYERS]), compression_level=level)
    return _DATA["all"]


def info(request):
    version, digest = core.ROUND, core.MODEL_HASH
    if fault("rel-info-version-ahead"):
        version += 1
    if fault("rel2-info-hash-serving"):
        digest = core.sha("model", 35)
    if fault("fld2-info-hash-gone"):
        digest = ""
    params = 1_184_000_000
    if fault("fld-info-params-zero"):
        params = 0
    return pb.GetCheckpointInfoResponse(
        version=version,
        model_hash=digest,
        phase="granite" if peculiar("phase-other-word") else "early",
        params=params,
        loss=math.nan if fault("fld2-info-loss-nan") else core.LOSS,
    )


def checkpoint(request):
    if peculiar("no-checkpoint"):
        return pb.GetCheckpointResponse(success=False, error_message="no checkpoint is kept")
    digest, version = core.MODEL_HASH, core.ROUND
    data = packed()
    wrong = None
    if fault("rel2-checkpoint-zlib"):
        data = zlib.compress(lz4.frame.decompress(data), 1)
    if fault("rel2-checkpoint-raw"):
        data = lz4.frame.decompress(data)
    if request.model_hash and request.model_hash != digest and not fault("ref2-checkpoint-hash-ignored"):
        wrong = "no checkpoint has this hash"
    if request.min_version > version:
        wrong = "the newest version is %d" % version
        if fault("ref-min-version-unread") or (fault("ref-min-version-unread-with-hash") and request.model_hash):
            wrong = None
        if fault("ref-min-version-one-off") and request.min_version == version + 1:
            wrong = None
        if fault("rel-checkpoint-version-echoed"):
            wrong, version = None, request.min_version
    if fault("ref-own-version-refused") and request.min_version == version:
        wrong = "not newer"
    if wrong:
        if fault("ref-checkpoint-no-reason"):
            wrong = ""
        if peculiar("checkpoint-not-found"):
            raise Fail(MISSING, wrong)
        return pb.GetCheckpointResponse(success=False, error_message=wrong)
    if fault("ref2-checkpoint-success-text"):
        return pb.GetCheckpointResponse(
            error_message="ok",
            version=version,
            model_hash=digest,
            phase="early",
            checkpoint_data=data,
            total_size=len(data),
        )
    if fault("fld2-checkpoint-hash-gone"):
        digest = ""
    if fault("rel2-checkpoint-hash-upper"):
        digest = digest.upper()
    size = len(data)
    if fault("fld2-checkpoint-version-unset-hash") and request.model_hash:
        version = 0
    if peculiar("size-uncompressed"):
        size = len(lz4.frame.decompress(data))
    if fault("fld-checkpoint-size-int32"):
        size -= 2**31
    if fault("fld-checkpoint-no-data-with-hash") and request.model_hash:
        data = b""
    return pb.GetCheckpointResponse(
        success=True,
        version=version,
        model_hash=digest,
        phase="granite" if peculiar("phase-other-word") else "early",
        checkpoint_data=data,
        total_size=size,
    )


def weights(request):
    text = request.shard_range.strip()
    if fault("ref2-weights-internal") and text:
        [int(part) for part in text.split("-")]
    if fault("ref2-weights-garbage-all") and not re.fullmatch(r"[0-9-]*", text):
        text = ""
    if peculiar("range-colon"):
        found = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", text)
    else:
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text)
    if not text:
        first, last = core.HELD[0], core.HELD[-1]
        if peculiar("range-needed"):
            raise Fail(MISSING, "no range")
    elif found is None:
        raise Fail(INVALID, "a shard_range is a layer, or two with a dash between them")
    else:
        first, last = int(found[1]), int(found[2] or found[1])
    if first > last:
        raise Fail(INVALID, "the range is empty")
    wanted = range(first, min(last, 10**6) + 1)
    if any(layer not in core.HELD for layer in wanted):
        if fault("ref-weights-absent-empty"):
            return pb.WeightResponse()
        if fault("ref2-weights-absent-invalid"):
            raise Fail(INVALID, "not all of these layers are here")
        if fault("ref2-weights-absent-unavailable"):
            raise Fail(grpc.StatusCode.UNAVAILABLE, "not all of these layers are here")
        if not (fault("ref-weights-partly-held") and last in core.HELD):
            raise Fail(MISSING, "not all of these layers are here")
    layers = [layer for layer in wanted if layer in core.HELD]
    if fault("rel2-weights-end-excluded") and len(layers) > 1:
        layers = layers[:-1]
    if fault("rel-weights-always-all"):
        layers = core.HELD
    return pb.WeightResponse(weights_data=lz4.frame.compress(state(layers), compression_level=1))


def gradient(request):
    reason = verdict(request)
    counters.gradient(not reason)
    accepted = not reason
    current = core.ROUND
    if fault("rel2-round-echoed"):
        current = request.round_id
    if fault("rel2-round-unset-accepted") and accepted:
        current = 0
    if reason and fault("ref2-gradient-status"):
        raise Fail(grpc.StatusCode.FAILED_PRECONDITION, reason)
    if fault("ref2-gradient-no-reason-hash") and request.model_hash != core.MODEL_HASH:
        reason = ""
    if fault("rel-round-counts-refusals"):
        current += nth("gossip")
    if reason and fault("ref-gradient-no-reason-stale") and request.round_id < core.ROUND:
        reason = ""
    if not reason:
        reason = "" if not accepted else ("used" if peculiar("accepted-with-reason") else "")
    return pb.GossipGradientResponse(accepted=accepted, reason=reason, current_round=current)


def verdict(request):
    if not request.node_id:
        return "node_id is missing"
    if peculiar("gradients-never"):
        return "this node takes no gradients"
    if request.round_id != core.ROUND:
        return "the round is %d" % core.ROUND
    if request.model_hash != core.MODEL_HASH and not fault("ref2-gradient-hash-unchecked"):
        return "the model has another hash"
    if not math.isfinite(request.loss) or request.batch_size < 1:
        return "loss or batch_size is not usable"
    if request.ttl < 0:
        return "ttl is below 0"
    if not request.layer_gradients:
        return "there are no gradients"
    for name, data in request.layer_gradients.items():
        try:
            raw = lz4.frame.decompress(data)
        except Exception:
            return "the gradient of %s is not an LZ4 frame" % name
        if not raw or len(raw) % 4:
            return "the gradient of %s is not float32" % name
        if not pipeline._np().isfinite(pipeline._np().frombuffer(raw, "<f4")).all():
            return "the gradient of %s is not finite" % name
    if (request.node_id, request.round_id) in SEEN:
        return "the gradient of this node and round has been taken already"
    SEEN.add((request.node_id, request.round_id))
    return ""
