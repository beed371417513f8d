"""Passes through the layers that this node holds."""

import threading

import grpc

import core
import node_pb2 as pb
import outgoing
from core import fault, nth, peculiar
from fail import Fail

LOCK = threading.Lock()
KEPT = {}
INVALID, MISSING = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


def _np():
    import numpy

    return numpy


_WEIGHTS = {}


def weight(layer):
    """The matrix of a layer, and of the head under the name of the model's size."""
    if layer not in _WEIGHTS:
        np = _np()
        columns = core.HIDDEN if layer < core.TOTAL_LAYERS else core.VOCAB
        grid = np.arange(core.HIDDEN * columns, dtype=np.float64).reshape(core.HIDDEN, columns)
        _WEIGHTS[layer] = (np.sin(grid * (0.37 + 0.11 * layer)) * 0.3).astype(np.float32)
    return _WEIGHTS[layer]


def check_layer(shard, backward=False):
    held = list(core.HELD)
    if fault("ref-last-held-absent") and shard == held[-1]:
        raise Fail(MISSING, "layer %d is not here" % shard)
    if shard in held:
        return True
    if fault("ref-absent-unavailable"):
        raise Fail(grpc.StatusCode.UNAVAILABLE, "layer %d is not here" % shard)
    if fault("ref-absent-passes-through") or (fault("ref-absent-backward-succeeds") and backward):
        return True
    if fault("ref-absent-below-only") and shard < held[0]:
        return True
    if fault("ref2-absent-above-last") and shard > held[-1]:
        return True
    if fault("ref2-absent-internal"):
        raise KeyError(shard)
    if fault("ref2-absent-backward-code") and backward:
        raise Fail(grpc.StatusCode.FAILED_PRECONDITION, "layer %d is not here" % shard)
    if fault("ref2-absent-exhausted"):
        raise Fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "layer %d is not loaded" % shard)
    raise Fail(MISSING, "layer %d is not here" % shard)


def plausible(data, shape, what):
    """Refuses what cannot be a tensor of this shape in any format, whatever the layer."""
    if fault("ref2-tensor-internal") and what == "hidden_states":
        _np().frombuffer(data, "<f4").reshape(shape)
    if fault("ref2-grad-unknown") and what == "grad_output" and len(data) != 4 * _np().prod(shape):
        raise Fail(grpc.StatusCode.UNKNOWN, "Exception calling application: cannot reshape array")
    if len(shape) != 3 or len(data) % (shape[0] * shape[1] * shape[2]):
        raise Fail(INVALID, "%s has not the size of its shape" % what)


def tensor(data, shape, dims, what):
    if not data or not shape:
        raise Fail(INVALID, "%s is missing" % what)
    if any(size < 1 for size in shape) or len(shape) != 3:
        raise Fail(INVALID, "%s has not three dimensions" % what)
    if shape[2] not in dims:
        raise Fail(INVALID, "%s has not %s values in its last dimension" % (what, dims))
    size = shape[0] * shape[1] * shape[2] * 4
    if size != len(data):
        raise Fail(INVALID, "%s has %d bytes, not %d" % (what, len(data), size))
    np = _np()
    out = np.frombuffer(data, "<f4").reshape(shape)
    if not np.isfinite(out).all():
        raise Fail(INVALID, "%s has values that are not finite" % what)
    return out


def forward(request):
    shape = list(request.hidden_shape)
    if not request.hidden_states or not shape or any(size < 1 for size in shape):
        raise Fail(INVALID, "hidden_states is missing")
    plausible(request.hidden_states, shape, "hidden_states")
    if not check_layer(request.target_shard):
        return pb.PipelineForwardResponse(request_id=request.request_id, success=False, error_message="not here")
    if fault("ref-forward-no-reason") and len(shape) == 3 and shape[2] != core.HIDDEN:
        return pb.PipelineForwardResponse(request_id=request.request_id, success=False)
    if peculiar("forward-success-false"):
        try:
            states = tensor(request.hidden_states, shape, (core.HIDDEN,), "hidden_states")
        except Fail as error:
            return pb.PipelineForwardResponse(request_id=request.request_id, success=False, error_message=error.text)
    else:
        states = tensor(request.hidden_states, shape, (core.HIDDEN,), "hidden_states")
    if fault("lim2-forward-batch-one") and shape[0] > 1:
        raise Fail(INVALID, "hidden_states has more than one sequence")
    np = _np()
    labels = None
    if request.training_labels:
        if fault("ref2-labels-internal"):
            np.frombuffer(request.training_labels, "<i4").reshape(shape[:2])
        if len(request.training_labels) != shape[0] * shape[1] * 4:
            raise Fail(INVALID, "training_labels has not one int32 for each position")
        labels = np.frombuffer(request.training_labels, "<i4")
        if ((labels < 0) | (labels >= core.VOCAB)).any():
            raise Fail(INVALID, "a label is not in the vocabulary")
    caches = []
    for layer in [one for one in core.HELD if one >= request.target_shard]:
        states = np.tanh(states @ weight(layer) + states)
        caches.append(states[:, -1].astype("<f4").tobytes())
    logits = states @ weight(core.TOTAL_LAYERS)
    answer = pb.PipelineForwardResponse(
        request_id=request.request_id,
        success=True,
        is_final=True,
        logits=logits.astype("<f4").tobytes(),
        logits_shape=logits.shape,
    )
    if request.use_cache and not peculiar("no-kv-cache"):
        answer.past_key_values.extend(caches)
    if labels is not None:
        flat = logits.reshape(-1, core.VOCAB).astype(np.float64)
        flat = flat - flat.max(axis=1, keepdims=True)
        chosen = flat[np.arange(len(labels)), labels]
        answer.loss = float((np.log(np.exp(flat).sum(axis=1)) - chosen).mean())
        if fault("fld-forward-loss-unset"):
            answer.loss = 0.0
    bend_answer(answer, request, states)
    with LOCK:
        key = (request.session_id, request.request_id)
        KEPT[key] = (shape, list(logits.shape), request.sender_url, request.target_shard)
        while len(KEPT) > (256 if not fault("lim-one-graph-kept") else 1):
            KEPT.pop(next(iter(KEPT)))
    return answer


def bend_answer(answer, request, states):
    if fault("rel-request-id-first"):
        KEPT.setdefault("first", request.request_id)
        answer.request_id = KEPT.pop("first")
        KEPT["first"] = answer.request_id
    if fault("rel2-request-id-cut"):
        answer.request_id = answer.request_id[:16]
    if fault("rel2-request-id-session"):
        answer.request_id = "%s:%s" % (request.session_id, request.request_id)
    if fault("fld2-forward-request-id-gone"):
        answer.ClearField("request_id")
    if fault("fld2-forward-success-unset"):
        answer.success = False
    if fault("fld2-forward-logits-gone-trained") and request.training_labels:
        answer.ClearField("logits")
        answer.ClearField("logits_shape")
    if fault("rel2-forward-one-layer") and request.target_shard < core.HELD[-1]:
        step = _np().frombuffer(request.hidden_states, "<f4").reshape(list(request.hidden_shape))
        step = _np().tanh(step @ weight(request.target_shard) + step)
        answer.is_final = False
        answer.ClearField("logits")
        answer.ClearField("logits_shape")
        answer.hidden_states = step.astype("<f4").tobytes()
        answer.hidden_shape.extend(step.shape)
    if fault("rel2-forward-first-of-batch") and answer.logits_shape[0] > 1:
        answer.logits = answer.logits[: len(answer.logits) // answer.logits_shape[0]]
        answer.logits_shape[0] = 1
    if fault("rel2-logits-shape-hidden"):
        answer.logits_shape[2] = core.HIDDEN
    if fault("rel-final-unset"):
        answer.is_final = False
    if fault("rel-logits-last-position"):
        answer.logits = answer.logits[-4 * core.VOCAB :]
    if fault("fld-logits-shape-gone"):
        answer.ClearField("logits_shape")


def backward(request):
    shape = list(request.grad_shape)
    if not request.grad_output or not shape or any(size < 1 for size in shape):
        raise Fail(INVALID, "grad_output is missing")
    plausible(request.grad_output, shape, "grad_output")
    check_layer(request.target_shard, True)
    tensor(request.grad_output, shape, (core.HIDDEN, core.VOCAB), "grad_output")
    with LOCK:
        kept = KEPT.get((request.session_id, request.request_id))
    if fault("eff-backward-never-kept") or (fault("eff-backward-small-only") and shape[1] > 1):
        kept = None
    if kept is None:
        text = "no pass of this session and request is kept"
        if fault("ref-backward-no-reason"):
            text = ""
        return pb.PipelineBackwardResponse(success=False, error_message=text)
    if shape not in (kept[0], kept[1]):
        raise Fail(INVALID, "grad_output has not the shape of the pass")
    if kept[2]:
        np = _np()
        grad = np.frombuffer(request.grad_output, "<f4").reshape(shape)
        if shape[2] == core.VOCAB and core.VOCAB != core.HIDDEN:
            grad = grad @ weight(core.TOTAL_LAYERS).T
        for layer in reversed([one for one in core.HELD if one >= kept[3]]):
            grad = grad @ weight(layer).T + grad
        message = pb.PipelineBackwardRequest(
            session_id=request.session_id,
            request_id=request.request_id,
            grad_output=grad.astype("<f4").tobytes(),
            grad_shape=grad.shape,
            target_shard=max(0, kept[3] - 1),
        )
        if fault("rel2-back-shape-stale"):
            message.ClearField("grad_shape")
            message.grad_shape.extend(request.grad_shape)
        if fault("rel2-back-session-gone"):
            message.ClearField("session_id")
        if fault("rel2-back-request-new"):
            message.request_id = core.sha("pass", nth("pass"))[:16]
        if fault("eff2-back-twice"):
            outgoing.later(kept[2], "PipelineBackward", message)
        outgoing.later(kept[2], "PipelineBackward", message)
    nth("backward")
    return pb.PipelineBackwardResponse(success=True)
