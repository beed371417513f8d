"""Interface 2.3, 4.3 and 7.3: a valid forward pass, one that is too far ahead, and an absent layer.

The document specifies neither the encoding of tensors nor the number of a layer; a target that
wants to be judged declares them in `[target.pipeline]`. The suite sends small numbers, so that any
model accepts them, and judges shapes, never values.
"""

import json
import math
import struct
import uuid
from typing import Any

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.checks.answers import UNKNOWN, is_named, judge_failure_reason, judge_message
from conformance.context import Context
from conformance.findings import Skipped
from conformance.grpcwire import Metadata, Reply
from conformance.registry import requirement
from conformance.strictjson import brief, is_int

_FIELDS = fields_of_message("PipelineForwardResponse")
WIDTHS = {"float32": 4, "bfloat16": 2}
FAR_AHEAD = 3
BUSY = ("RESOURCE_EXHAUSTED", "UNAVAILABLE")
# The node cannot serve the call now, or no longer has the layer: its answers are not at fault.
ELSEWHERE = (*BUSY, "NOT_FOUND")


def _tensor(shape: list[int], kind: str, scale: float = 1.0) -> bytes:
    count = 1
    for size in shape:
        count *= size
    values = struct.pack(f"<{count}f", *(scale * (index % 7 - 3) / 8 for index in range(count)))
    if kind == "float32":
        return values
    # bfloat16 is the upper half of a float32.
    return b"".join(values[at + 2 : at + 4] for at in range(0, len(values), 4))


def _format(context: Context) -> str:
    return str(context.target.pipeline.get("format", "float32"))


def _ident() -> str:
    return f"conformance-{uuid.uuid4().hex}"


def tensor_of(context: Context, scale: float = 1.0) -> bytes:
    """Make hidden states of the declared shape and format."""
    shape = [int(size) for size in context.target.pipeline["hidden_shape"] if is_int(size)]
    return _tensor(shape, _format(context), scale)


def positions(count: int, first: int) -> bytes:
    """Make position_ids of one row, starting at `first`."""
    return struct.pack(f"<{count}q", *range(first, first + count))


def labels(count: int) -> bytes:
    """Make training_labels: the same small token at every position."""
    return struct.pack(f"<{count}q", *(1 for _ in range(count)))


def send_forward(context: Context, metadata: Metadata = (), **fields: Any) -> Reply:
    """Send the declared forward pass, with some fields changed."""
    declared = context.target.pipeline
    shape = [int(size) for size in declared["hidden_shape"] if is_int(size)]
    request = {
        "session_id": _ident(),
        "request_id": _ident(),
        "hidden_states": tensor_of(context),
        "hidden_shape": shape,
        "target_shard": declared["shard"],
        "source_shard": -1,
        **fields,
    }
    message = messages.make("PipelineForwardRequest", **request)
    reply = context.grpc.call(
        "PipelineForward",
        message,
        timeout_s=context.target.inference_timeout_s,
        metadata=metadata,
    )
    if reply.code == UNKNOWN and context.edition > 1 and not is_named(context):
        raise Skipped("the service has another name, which GR-NAME-001 reports")
    return reply


@requirement(
    "PL-FWD-001",
    "PL-FWD-002",
    "PL-FWD-003",
    "PL-FWD-004",
    "PL-FWD-005",
    "PL-FWD-007",
    "PL-FWD-008",
    *_FIELDS,
)
def pipeline_pass(context: Context) -> None:
    """Send the declared tensor forward: alone, with a KV cache, and with training labels."""
    reply = send_forward(context)
    answer = _answer(context, reply)
    if reply.ok and answer is None:
        # A field is wrong, which has been recorded; nothing can be said about the rest.
        return
    if reply.code in ELSEWHERE:
        raise Skipped(f"the declared forward pass ends with {reply.code}")
    if answer is None or not answer.success:
        why = f"status {reply.code} {reply.details}" if answer is None else answer.error_message
        context.fails("PL-FWD-004", f"the declared tensor is not accepted: {why}", reply)
        return
    _judge_result(context, answer, reply)
    session = _ident()
    _answer(context, send_forward(context, use_cache=True, session_id=session))
    _close(context, session)
    entries = context.target.pipeline.get("past_entries")
    if entries:
        # A cache without positions: an empty entry for every layer.
        _answer(context, send_forward(context, past_key_values=[b""] * entries))
    if context.target.pipeline.get("training"):
        rows, length = context.target.pipeline["hidden_shape"][:2]
        trained = send_forward(context, training_labels=labels(rows * length))
        found = _answer(context, trained)
        if found is not None and found.success and context.target.pipeline.get("last"):
            good = math.isfinite(found.loss) and found.loss > 0
            context.judge("PL-FWD-008", good, f"loss is {found.loss}", trained)


def _answer(context: Context, reply: Reply) -> Any | None:
    answer = judge_message(context, "PipelineForwardResponse", reply) if reply.ok else None
    if answer is not None:
        context.judge(
            "PL-FWD-002", answer.is_final or not answer.logits, "logits without is_final", reply
        )
        sent = json.loads(str(reply.exchange.request["message"]))
        if answer.success and context.edition > 1:
            _judge_sizes(context, answer, reply)
        held = answer.request_id == sent["request_id"]
        context.judge("PL-FWD-003", held, f"it is {brief(answer.request_id)}", reply)
    return answer


# How files and frames of tensors begin; their length is not that of the raw values.
MAGIC = (b"\x04\x22\x4d\x18", b"\x93NUMPY", b"PK\x03\x04", b"\x80")


def _judge_sizes(context: Context, answer: Any, reply: Reply) -> None:
    """Rule on tensors in a successful answer: each has a shape, and is as long as it says."""
    for named, data, shape in (
        ("logits", answer.logits, answer.logits_shape),
        ("hidden_states", answer.hidden_states, answer.hidden_shape),
    ):
        if not data:
            continue
        if not context.judge("PL-FWD-007", bool(shape), f"{named} without a shape", reply):
            continue
        count = math.prod(shape)
        raw = count > 0 and len(data) == count * WIDTHS[_format(context)]
        framed = bytes(data).startswith(MAGIC) or b"{" in bytes(data[8:10])
        why = f"{named} has {len(data)} bytes for the shape {list(shape)}"
        context.judge("PL-FWD-007", raw or framed, why, reply)


def _judge_result(context: Context, answer: Any, reply: Reply) -> None:
    data, shape = (
        (answer.logits, answer.logits_shape)
        if answer.is_final
        else (answer.hidden_states, answer.hidden_shape)
    )
    named = "logits" if answer.is_final else "hidden_states"
    context.judge(
        "PL-FWD-004",
        bool(data) and bool(shape),
        f"success without {named}: {len(data)} bytes, shape {list(shape)}",
        reply,
    )
    last = context.target.pipeline.get("last")
    if isinstance(last, bool):
        context.judge(
            "PL-FWD-005", answer.is_final == last, f"is_final is {answer.is_final}", reply
        )


def _close(context: Context, ident: str) -> None:
    """Close the session in the way of the reference node; other targets ignore the message."""
    closing = messages.make("PipelineForwardRequest", session_id=ident)
    context.grpc.call("PipelineForward", closing)


@requirement("PL-FWD-006", "PL-FWD-007", "PL-FWD-001", "PL-FWD-002", "PL-FWD-003", *_FIELDS)
def pipeline_ahead(context: Context) -> None:
    """Continue a session that was never started, at a position far ahead."""
    count = int(context.target.pipeline["hidden_shape"][1])
    reply = send_forward(context, use_cache=True, position_ids=positions(count, FAR_AHEAD))
    answer = _answer(context, reply)
    if answer is None:
        context.observe("PL-FWD-006", f"status {reply.code}", reply)
        return
    judge_failure_reason(
        context,
        "PL-FWD-001",
        reply,
        refused=not answer.success,
        reason=answer.error_message,
        key="error_message",
    )
    context.observe("PL-FWD-006", f"success {answer.success}: {answer.error_message}", reply)


_BACK = ("PL-BWD-003", "PL-BWD-001", *fields_of_message("PipelineBackwardResponse"))


@requirement(*_BACK, "PL-FWD-004", "PL-FWD-007", "PL-FWD-002", "PL-FWD-003", *_FIELDS)
def pipeline_back(context: Context) -> None:
    """Send a forward pass that asks the target to keep its graph, then a gradient backward."""
    declared = context.target.pipeline.get("backward_metadata")
    if not declared:
        raise Skipped("[target.pipeline] declares no backward_metadata")
    session, ident = _ident(), _ident()
    metadata = tuple((str(name), str(value)) for name, value in declared.items())
    reply = send_forward(context, metadata, session_id=session, request_id=ident)
    answer = _answer(context, reply)
    if answer is not None and answer.success and not answer.hidden_states:
        context.wrong("PL-FWD-004", "a forward pass for a backward one has no hidden_states", reply)
    if answer is None or not answer.success or not answer.hidden_states:
        raise Skipped(f"no hidden states for a backward pass: {reply.code} {reply.details}")
    gradient = messages.make(
        "PipelineBackwardRequest",
        session_id=session,
        request_id=ident,
        grad_output=_tensor(list(answer.hidden_shape), _format(context)),
        grad_shape=answer.hidden_shape,
        target_shard=context.target.pipeline["shard"],
    )
    back = context.grpc.call(
        "PipelineBackward", gradient, timeout_s=context.target.inference_timeout_s
    )
    if back.code in ELSEWHERE:
        raise Skipped(f"the backward pass ends with {back.code}")
    found = judge_message(context, "PipelineBackwardResponse", back) if back.ok else None
    if back.ok and found is None:
        return
    why = f"status {back.code} {back.details}" if found is None else found.error_message
    context.judge("PL-BWD-003", found is not None and found.success, why, reply, back)
    if found is not None:
        judge_failure_reason(
            context,
            "PL-BWD-001",
            back,
            refused=not found.success,
            reason=found.error_message,
            key="error_message",
        )


@requirement("GR-CODE-004")
def pipeline_absent(context: Context) -> None:
    """Send a forward pass to a layer that no node holds, according to the target's declaration."""
    shard = context.target.pipeline.get("absent_shard")
    if shard is None:
        raise Skipped("[target.pipeline] declares no absent_shard")
    reply = send_forward(context, target_shard=shard)
    if reply.code in BUSY:
        raise Skipped(f"the peer is overloaded: {reply.code}")
    context.judge("GR-CODE-004", reply.code == "NOT_FOUND", f"status {reply.code}", reply)
