"""Interface 2.3 and 4.3: kept passes, which are those whose gradients the node accepts.

How a node is asked to keep a pass is open, so one is tried with what the target declares, alone and
with labels.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance import messages
from conformance.checks.forms import encode
from conformance.checks.passes import (
    form_of,
    fresh_id,
    gradient_shape,
    hidden_shape,
    pipeline_of,
    send_forward,
)
from conformance.context import Context
from conformance.findings import Skipped
from conformance.grpcwire import Reply

BACKWARD = "PipelineBackward"
Fields = dict[str, Any]


def labels(count: int, form: str = "q") -> bytes:
    """Make training_labels: the same small token at every position, in 64 bits or in 32 (`i`)."""
    return struct.pack(f"<{count}{form}", *(1 for _ in range(count)))


@dataclass(frozen=True)
class Kept:
    """A forward pass, and what its gradients have to have."""

    reply: Reply
    fields: Fields


def metadata_of(context: Context) -> tuple[tuple[str, str], ...]:
    """Return the metadata that the target declares for passes that are kept."""
    declared = context.target.pipeline.get("backward_metadata", {})
    return tuple((str(name), str(value)) for name, value in declared.items())


def ways(context: Context) -> Iterator[Fields]:
    """Yield what a forward pass has besides, so that the node may keep it."""
    rows, length = hidden_shape(context)[:2]
    yield {}
    for form in "qi":
        yield {"training_labels": labels(rows * length, form)}


def send_kept(context: Context, way: Fields, **named: str) -> Kept | None:
    """Send a forward pass; None if it is refused, or returns nothing that has a gradient.

    It has the IDs that are `named`, and fresh ones besides.
    """
    ids = {"session_id": fresh_id(), "request_id": fresh_id(), **named}
    reply = send_forward(context, metadata_of(context), **ids, **way)
    answer = reply.message
    made = answer is not None and answer.success
    shape = gradient_shape(context, answer, way.get("hidden_shape")) if made else []
    if not shape:
        return None
    shard = pipeline_of(context)["shard"]
    data = encode(form_of(context), shape)
    return Kept(reply, {**ids, "grad_output": data, "grad_shape": shape, "target_shard": shard})


def send_back(context: Context, fields: Fields) -> Reply:
    """Send gradients backward."""
    message = messages.make(f"{BACKWARD}Request", **fields)
    return send_bytes_back(context, message.SerializeToString())


def send_bytes_back(context: Context, message: bytes) -> Reply:
    """Send a message with gradients backward, whatever it has."""
    timeout_s = context.target.inference_timeout_s
    return context.grpc.call(BACKWARD, message, timeout_s=timeout_s, metadata=metadata_of(context))


def is_taken(reply: Reply) -> bool:
    """Whether gradients were accepted."""
    answer = reply.message
    return answer is not None and bool(answer.success)


def kept_way(context: Context) -> Fields:
    """Return with what a pass is kept; raise `Skipped` if no gradients are accepted."""
    ended, known = "no pass is made", context.service
    kinds = [False, True] if known.other_gradients is None else [known.other_gradients]
    taken = False
    try:
        for other in kinds:
            known.other_gradients, logits = other, False
            for way in ways(context):
                kept = send_kept(context, way)
                if kept is None:
                    continue
                reply = send_back(context, kept.fields)
                taken = is_taken(reply)
                if taken:
                    return way
                ended = f"PipelineBackward ends with {reply.code}"
                passed: Any = kept.reply.message
                logits = logits or bool(passed.logits)
            if not logits:
                # There is no other shape.
                break
    finally:
        if not taken:
            # Also where a call was not answered: nothing is known then.
            known.other_gradients = None
    raise Skipped(f"no gradients are accepted: {ended}")


def way_back(context: Context) -> Fields:
    """Return with what a pass is kept; nothing if no gradients are accepted."""
    try:
        return kept_way(context)
    except Skipped:
        return {}
