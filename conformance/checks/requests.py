"""Interface 2.3: the numbers under which a target reads the fields of its requests.

An answer does not say which fields were read. These checks change one field of a good request and
see whether the outcome changes: an invalid value is refused, and another tensor gives another
result. A target may ignore a field, so an unchanged outcome proves nothing, and these checks never
report a violation. A field is tried only when the target cannot mistake it for another one of the
message: no other field has its type, or no other field has this effect.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance import messages
from conformance.catalogue import load
from conformance.checks.dht import NODE_ID_BYTES, SENDER
from conformance.checks.kept_passes import labels
from conformance.checks.passes import (
    BUSY,
    fresh_id,
    hidden_shape,
    pipeline_of,
    send_forward,
    tensor_of,
)
from conformance.checks.pipeline import FAR_AHEAD, positions
from conformance.context import Context
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement

# No documented message has a field with this number, so a reader skips it.
UNUSED = 15
# NO_MESSAGE is valid text, but not a valid message. NO_TEXT is a valid message and valid packed
# numbers, but not valid text. NO_NUMBERS is valid text, but ends within a packed number.
NO_MESSAGE, NO_TEXT, NO_NUMBERS = b"\x0a\x7f", b"\x08\xff\x01", b"\xc3\xa9"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a forward pass."""

    code: str
    success: bool = False
    request_id: str = ""
    tensor: bytes = b""
    loss: float = 0.0


def _length_field(number: int, content: bytes) -> bytes:
    """Write one short field of bytes."""
    return bytes([number << 3 | messages.LENGTH, len(content)]) + content


def _outcome(reply: Reply) -> Outcome:
    """Return the parts of an answer that are compared between two forward passes."""
    answer = reply.message
    if answer is None:
        return Outcome(reply.code)
    tensor = bytes(answer.logits or answer.hidden_states)
    return Outcome(reply.code, answer.success, answer.request_id, tensor, answer.loss)


def _read_under(
    context: Context, ident: str, operation: str, content: bytes, **fields: Any
) -> None:
    """Send invalid content under the number of the field, and under an unused number."""
    rule = load()[ident].message
    if rule is None:
        raise ValueError(f"{ident} is not about a field")
    good = messages.make(rule.name, **fields).SerializeToString()
    skipped = context.grpc.call(operation, good + _length_field(UNUSED, content))
    refused = context.grpc.call(operation, good + _length_field(rule.number, content))
    if skipped.code in BUSY or refused.code in BUSY:
        return
    if refused.code not in ("OK", skipped.code):
        context.holds(ident, skipped, refused)


@requirement(
    "GR-DHT-PING-REQUEST-01", "GR-DHT-FIND-NODE-REQUEST-01", "GR-DHT-FIND-VALUE-REQUEST-01"
)
def dht_requests(context: Context) -> None:
    """Call the reading operations of the DHT with a sender that is not a DHTNodeInfo."""
    key = uuid.uuid4().bytes.ljust(NODE_ID_BYTES, b"\0")
    for ident, operation, fields in (
        ("GR-DHT-PING-REQUEST-01", "DHTPing", {}),
        ("GR-DHT-FIND-NODE-REQUEST-01", "DHTFindNode", {"target_id": key}),
        ("GR-DHT-FIND-VALUE-REQUEST-01", "DHTFindValue", {"key": key}),
    ):
        _read_under(context, ident, operation, NO_MESSAGE, sender=SENDER, **fields)


@requirement("GR-DHT-STORE-REQUEST-01")
def dht_store_request(context: Context) -> None:
    """Call DHTStore with a sender that is not a DHTNodeInfo."""
    key = uuid.uuid4().bytes.ljust(NODE_ID_BYTES, b"\0")
    ident, value = "GR-DHT-STORE-REQUEST-01", "192.0.2.1:9000"
    _read_under(context, ident, "DHTStore", NO_MESSAGE, sender=SENDER, key=key, value=value)


@requirement("GR-WEIGHT-REQUEST-01")
def weight_request(context: Context) -> None:
    """Call GetWeights with a shard_range that is not valid text."""
    # "0" may be a valid range; of two fields with the same number the last one counts.
    _read_under(context, "GR-WEIGHT-REQUEST-01", "GetWeights", NO_TEXT, shard_range="0")


@requirement("GR-GOSSIP-GRADIENT-REQUEST-07")
def gossip_request(context: Context) -> None:
    """Gossip a gradient for an unknown model, with layer_gradients that are not a map."""
    ident, other = "GR-GOSSIP-GRADIENT-REQUEST-07", "0" * 64
    _read_under(context, ident, "GossipGradient", NO_MESSAGE, model_hash=other)


@requirement("GR-PIPELINE-BACKWARD-REQUEST-04")
def backward_request(context: Context) -> None:
    """Send a backward pass for an unknown session, whose grad_shape is not a list of numbers."""
    ident, session = "GR-PIPELINE-BACKWARD-REQUEST-04", f"conformance-{uuid.uuid4().hex}"
    _read_under(context, ident, "PipelineBackward", NO_NUMBERS, session_id=session)


_FORWARD = "GR-PIPELINE-FORWARD-REQUEST-{:02d}"
_TRIED = tuple(_FORWARD.format(number) for number in (2, 3, 4, 6, 7, 10, 11))


@requirement(*_TRIED)
def forward_request(context: Context) -> None:
    """Send an accepted tensor forward, with one field changed at a time."""
    known = pipeline_of(context)
    ident = fresh_id()
    base_reply = send_forward(context, request_id=ident)
    base = _outcome(base_reply)
    if not base.success:
        raise Skipped(f"the forward pass ends with {base.code}")
    if base.request_id == ident:
        # The session id has another value, so the target must have read the id from this field.
        context.holds(_FORWARD.format(2), base_reply)

    def changed(number: int, held: Callable[[Outcome], bool], **fields: Any) -> None:
        reply = send_forward(context, **fields)
        if reply.code not in BUSY and held(_outcome(reply)):
            context.holds(_FORWARD.format(number), base_reply, reply)

    def refused(found: Outcome) -> bool:
        return not found.success

    if _outcome(send_forward(context)).tensor == base.tensor:
        other = tensor_of(context, scale=2.0)
        changed(3, lambda found: bool(found.tensor) and found.tensor != base.tensor,
                hidden_states=other)  # fmt: skip
    shape = hidden_shape(context)
    changed(4, refused, hidden_shape=[*shape[:-1], shape[-1] + 1])
    if _outcome(send_forward(context, position_ids=positions(shape[1], 0))).success:
        changed(6, refused, position_ids=positions(shape[1], FAR_AHEAD), use_cache=True)
    entries = int(known.get("past_entries", 0))
    if entries and _outcome(send_forward(context, past_key_values=[b""] * entries)).success:
        changed(7, refused, past_key_values=[b""] * (entries + 1))
    if "absent_shard" in known:
        changed(10, lambda found: found.code == "NOT_FOUND", target_shard=known["absent_shard"])
    if known.get("training") and not base.loss:
        changed(11, lambda found: found.loss > 0, training_labels=labels(shape[0] * shape[1]))
