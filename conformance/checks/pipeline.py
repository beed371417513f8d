"""Interface 2.3, 4.3 and 7.3: a valid forward pass, one that is too far ahead, and an absent layer.

The pass is the one that the target declares, or one that it accepts of the usual forms (`passes`).
The suite sends small numbers, so that any model accepts them, and judges shapes, never values. A
refusal of a pass that was only found is never at fault.
"""

import json
import math
import struct
from typing import Any

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.checks.answers import (
    DOCUMENTED_CODES,
    OF_AUTHENTICATION,
    UNKNOWN,
    judge_failure_reason,
    judge_message,
    judge_pass_reason,
)
from conformance.checks.forms import WIDTHS, encode
from conformance.checks.kept_passes import labels, metadata_of, way_back
from conformance.checks.numbers import judge_necessary
from conformance.checks.passes import (
    BUSY,
    FOUND_SINCE,
    Layers,
    form_of,
    fresh_id,
    gradient_shape,
    hidden_shape,
    is_found,
    layers_of,
    pipeline_of,
    send_backward,
    send_forward,
)
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.findings import Skipped
from conformance.frames import is_framed
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

_FIELDS = fields_of_message("PipelineForwardResponse")
FAR_AHEAD = 3
# The first edition in which a pass has a shape that its values do not fill.
MISSHAPEN_SINCE = 4
# Models of more layers are not tried layer by layer.
MOST_LAYERS = 128
# The node cannot serve the call now, or no longer has the layer: its answers are not at fault.
ELSEWHERE = (*BUSY, "NOT_FOUND")


def positions(count: int, first: int) -> bytes:
    """Make position_ids of one row, starting at `first`."""
    return struct.pack(f"<{count}q", *range(first, first + count))


@requirement(
    "PL-FWD-001",
    "PL-FWD-002",
    "PL-FWD-003",
    "PL-FWD-004",
    "PL-FWD-005",
    "PL-FWD-007",
    "PL-FWD-008",
    "PL-FWD-009",
    "GR-NUM-001",
    "GR-CODE-015",
    *_FIELDS,
)
def pipeline_pass(context: Context) -> None:
    """Send a tensor forward: alone, with a KV cache, and with training labels."""
    try:
        known = pipeline_of(context)
    finally:
        _judge_tries(context)
    reply = send_forward(context)
    answer = _answer(context, reply)
    if reply.ok and answer is None:
        # A field is wrong, which has been recorded; nothing can be said about the rest.
        return
    if reply.code in ELSEWHERE:
        raise Skipped(f"the declared forward pass ends with {reply.code}")
    if answer is None or not answer.success:
        why = f"status {reply.code} {reply.details}" if answer is None else answer.error_message
        if is_found(context):
            raise Skipped(f"a tensor that was accepted is refused later: {brief(why, 120)}")
        context.fails("PL-FWD-004", f"the declared tensor is not accepted: {why}", reply)
        return
    _judge_result(context, answer, reply)
    if context.edition >= FOUND_SINCE:
        # To the same layers, so that nothing but the tensor is at fault.
        _judge_refusal(context, send_forward(context, hidden_states=b"not a tensor"))
    session = fresh_id()
    _answer(context, send_forward(context, use_cache=True, session_id=session))
    _close(context, session)
    entries = known.get("past_entries")
    if entries:
        # A cache without positions: an empty entry for every layer.
        _answer(context, send_forward(context, past_key_values=[b""] * entries))
    if known.get("training"):
        _judge_trained(context, last=bool(known.get("last")))


def _judge_trained(context: Context, *, last: bool) -> None:
    """Rule on a pass with labels, of whichever width the node takes."""
    rows, length = hidden_shape(context)[:2]
    for form in "qi" if context.edition >= MISSHAPEN_SINCE else "q":
        trained = send_forward(context, training_labels=labels(rows * length, form))
        found = _answer(context, trained)
        if found is not None and found.success:
            good = math.isfinite(found.loss) and found.loss > 0
            if last:
                context.judge("PL-FWD-008", good, f"loss is {found.loss}", trained)
            if context.edition >= MISSHAPEN_SINCE:
                odd = send_forward(context, training_labels=labels(rows * length + 1, form))
                _judge_bad_request(context, "labels of another number than positions", odd)
            break


def _judge_tries(context: Context) -> None:
    """Rule on the answers to tensors that were tried: each fails, if it does, as documented."""
    for reply in context.service.tries:
        _judge_refusal(context, reply)


def _judge_refusal(context: Context, reply: Reply) -> None:
    answer = _answer(context, reply)
    if answer is not None:
        judge_pass_reason(context, answer, reply)


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
        needed = ["request_id"] if answer.success else ["request_id", "error_message"]
        _judge_numbers(context, needed, answer, reply)
    return answer


def _judge_numbers(context: Context, needed: list[str], answer: Any, reply: Reply) -> None:
    """Rule on the numbers of fields that this answer has to have."""
    if context.may_rule_on("GR-NUM-001"):
        present = {name: bool(getattr(answer, name)) for name in needed}
        judge_necessary(context, "PipelineForwardResponse", present, reply.body, reply)


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
        why = f"{named} has {len(data)} bytes for the shape {list(shape)}"
        held = count > 0 and _fits(context, bytes(data), count)
        context.judge("PL-FWD-007", held, why, reply)


def _fits(context: Context, data: bytes, count: int) -> bool:
    """Return whether bytes can be a tensor of so many values."""
    if is_framed(data):
        return True
    width = WIDTHS.get(form_of(context))
    if not is_found(context):
        return len(data) == count * (width or 0)
    if width is None or len(data) % count == 0:
        return True
    # The form of the input is known, that of the output is not: too few bytes for it are wrong,
    # and so is a value that is cut off.
    cut = any(0 < count * known - len(data) < known for known in set(WIDTHS.values()))
    return not cut and len(data) > count * width


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
    of_logits = answer.is_final or answer.logits
    parts = ["logits", "logits_shape"] if of_logits else ["hidden_states", "hidden_shape"]
    _judge_numbers(context, parts, answer, reply)
    if not answer.is_final and answer.hidden_shape and context.may_rule_on("PL-FWD-009"):
        shape = hidden_shape(context)
        why = f"hidden_states of {shape} became {list(answer.hidden_shape)}"
        context.judge("PL-FWD-009", list(answer.hidden_shape) == shape, why, reply)
    last = pipeline_of(context).get("last")
    if isinstance(last, bool):
        context.judge(
            "PL-FWD-005", answer.is_final == last, f"is_final is {answer.is_final}", reply
        )


def _close(context: Context, ident: str) -> None:
    """Close the session in the way of the reference node; other targets ignore the message."""
    closing = messages.make("PipelineForwardRequest", session_id=ident)
    context.grpc.call("PipelineForward", closing)


_AHEAD = ("PL-FWD-006", "PL-FWD-007", "PL-FWD-001", "PL-FWD-002", "PL-FWD-003", "GR-CODE-001",
          "GR-CODE-002", "GR-CODE-015")  # fmt: skip


@requirement(*_AHEAD, *_FIELDS)
def pipeline_ahead(context: Context) -> None:
    """Continue a session that was never started, far ahead; send values that fill no such shape."""
    shape = hidden_shape(context)
    if context.edition >= MISSHAPEN_SINCE:
        _judge_misshapen(context, [*shape[:-1], shape[-1] + 1])
        if context.edition >= FOURTH:
            # Libraries work out a size that is -1.
            _judge_misshapen(context, [shape[0], -1, *shape[2:]])
        # If it fails within the answer, that has the reason.
        shard, ids = int(pipeline_of(context).get("shard", 0)), (fresh_id(), fresh_id())
        lost = send_backward(context, shape, shard, session_id=ids[0], request_id=ids[1])
        _judge_bad_request(context, "gradients of a pass that nobody has made", lost)
    if context.edition >= FOURTH:
        # Computed with or refused; if it fails within the answer, that has the reason.
        states = encode(form_of(context), shape, math.nan)
        odd = send_forward(context, hidden_states=states)
        if (refused := _answer(context, odd)) is not None:
            judge_pass_reason(context, refused, odd)
    count = shape[1]
    reply = send_forward(context, use_cache=True, position_ids=positions(count, FAR_AHEAD))
    answer = _answer(context, reply)
    if answer is None:
        context.observe("PL-FWD-006", f"status {reply.code}", reply)
        return
    judge_pass_reason(context, answer, reply)
    context.observe("PL-FWD-006", f"success {answer.success}: {answer.error_message}", reply)


def _judge_misshapen(context: Context, shape: list[int]) -> None:
    reply = send_forward(context, hidden_shape=shape)
    if reply.code not in (UNKNOWN, *OF_AUTHENTICATION):
        why = f"values that do not fill {shape} end with {reply.code}: {reply.details}"
        context.judge("GR-CODE-001", reply.code in DOCUMENTED_CODES, why, reply)
        why = f"values that do not fill {shape} are computed with"
        context.judge("GR-CODE-002", not _served(reply), why, reply)
        _judge_bad_request(context, f"values that do not fill {shape}", reply)
        # A whole tensor of another size: if it fails within the answer, that has the reason.
        if min(shape) > 0:
            states = encode(form_of(context), shape)
            send_forward(context, hidden_states=states, hidden_shape=shape)


def _judge_bad_request(context: Context, what: str, reply: Reply) -> None:
    """Rule on the status of a request whose parts do not fit: it is no failure of the server."""
    why = f"{what} end with {reply.code}: {reply.details}"
    context.judge("GR-CODE-015", reply.code not in ("INTERNAL", "UNKNOWN"), why, reply)


_BACK = ("PL-BWD-003", "PL-BWD-001", *fields_of_message("PipelineBackwardResponse"))


@requirement(
    *_BACK,
    "GR-CODE-001",
    "GR-CODE-015",
    "PL-FWD-004",
    "PL-FWD-007",
    "PL-FWD-002",
    "PL-FWD-003",
    *_FIELDS,
)
def pipeline_back(context: Context) -> None:
    """Send a forward pass that asks the target to keep its graph, then a gradient backward."""
    if "backward_metadata" not in context.target.pipeline:
        raise Skipped("[target.pipeline] declares no backward_metadata")
    way = way_back(context)
    ids = {"session_id": fresh_id(), "request_id": fresh_id()}
    reply = send_forward(context, metadata_of(context), **ids, **way)
    answer = _answer(context, reply)
    shape = [] if answer is None else gradient_shape(context, answer)
    if answer is not None and answer.success and not shape:
        context.wrong("PL-FWD-004", "a forward pass for a backward one has no hidden_states", reply)
    if answer is None or not answer.success or not shape:
        raise Skipped(f"no hidden states for a backward pass: {reply.code} {reply.details}")
    shard = context.target.pipeline["shard"]
    back = send_backward(context, shape, shard, **ids)
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
    if context.edition >= MISSHAPEN_SINCE:
        short = encode(form_of(context), shape)[:-1]
        ids = {"session_id": fresh_id(), "request_id": fresh_id()}
        cut = messages.make("PipelineBackwardRequest", grad_output=short, grad_shape=shape,
                            target_shard=shard, **ids)  # fmt: skip
        reply = context.grpc.call("PipelineBackward", cut)
        why = f"a gradient that does not fill {shape} ends with {reply.code}: {reply.details}"
        if reply.code not in (UNKNOWN, *OF_AUTHENTICATION):
            context.judge("GR-CODE-001", reply.code in DOCUMENTED_CODES, why, reply)
            _judge_bad_request(context, f"gradients that do not fill {shape}", reply)


@requirement("GR-CODE-004")
def pipeline_absent(context: Context) -> None:
    """Send a forward pass to a layer that the node does not hold, by what is declared or shown."""
    known = pipeline_of(context)
    shard = known.get("absent_shard")
    if shard is None:
        raise Skipped("[target.pipeline] declares no absent_shard")
    reply = send_forward(context, target_shard=shard)
    if reply.code in BUSY:
        raise Skipped(f"the peer is overloaded: {reply.code}")
    if not is_found(context):
        context.judge("GR-CODE-004", reply.code == "NOT_FOUND", f"status {reply.code}", reply)
        if context.edition >= MISSHAPEN_SINCE and reply.code == "NOT_FOUND":
            _judge_count(context, layers_of(context))
        return
    layers = known["layers"]
    first = layers.absent if isinstance(layers, Layers) else None
    others = [] if first is None else [send_forward(context, target_shard=first)]
    _judge_far(context, int(shard), reply, [*context.service.tries, *others])
    if others and others[0].code not in BUSY and not _served(others[0]):
        # Where it serves the number, this is that of a part of the model.
        why = f"layer {first}, which the node does not list, ends with {_ended(others[0])}"
        context.judge("GR-CODE-004", others[0].code == "NOT_FOUND", why, others[0])


def _judge_count(context: Context, layers: Layers) -> None:
    """Rule on how many numbers are served: no more than there are layers here.

    Whether they are those of layers or of parts of the model, each has a layer at least.
    """
    if not layers.held or not layers.total or layers.total > MOST_LAYERS:
        return
    served = [
        at for at in range(layers.total + 1) if _served(send_forward(context, target_shard=at))
    ]
    if served:
        why = f"target_shard {brief(served)} are served, by a node with the layers {layers.held}"
        last = send_forward(context, target_shard=served[0])
        context.judge("GR-CODE-004", len(served) <= len(layers.held), why, last)


def _judge_far(context: Context, shard: int, reply: Reply, others: list[Reply]) -> None:
    """Rule on the answer for a number that no model has; `others` were for other numbers."""
    # It may be called a bad request, and a node may read no number at all.
    if reply.code == "INVALID_ARGUMENT":
        return
    reads = [other for other in others if other.code == "NOT_FOUND"]
    if not _served(reply) or reads:
        why = f"target_shard {shard} ends with {_ended(reply)}"
        context.judge("GR-CODE-004", reply.code == "NOT_FOUND", why, reply, *reads[:1])


def _served(reply: Reply) -> bool:
    """Return whether a forward pass was answered with success."""
    answer = reply.message
    return answer is not None and bool(answer.success)


def _ended(reply: Reply) -> str:
    if not reply.ok:
        return f"status {reply.code}"
    answer = reply.message
    return "OK and no answer" if answer is None else f"OK and success {answer.success}"
