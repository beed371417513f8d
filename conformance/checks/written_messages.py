"""Interface 2.3 and 4.3: messages that say the same and are written in another way.

A writer of protobuf may put the fields in any order, write out a value that is the default, and
pack repeated numbers or not; and a message of a later version has fields that a reader skips.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from conformance import messages
from conformance.catalogue import Effect
from conformance.checks.dht import NODE_ID_BYTES, SENDER
from conformance.checks.kept_passes import kept_way, send_kept
from conformance.checks.mixed_passes import output_of
from conformance.checks.passes import forward_request, layers_of
from conformance.checks.weights import served_notations
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.messages import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    WireField,
    encode_field,
    encode_varint,
)
from conformance.registry import requirement
from conformance.strictjson import brief

FORM, PACKED, LAST = "GR-FORM-001", "GR-FORM-002", "GR-SANE-013"
# Weights of more bytes are not asked for so often.
LARGE_BYTES = 4 << 20
# No documented message has a field with one of these numbers.
UNUSED = range(1990, 1994)
SHAPE_NUMBERS = "hidden_shape"
# Statuses of a node that cannot serve the call now.
BUSY = ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED")


def _forms(message: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the forms of a message, by what is unusual about them."""
    fields = messages.wire_fields(message.SerializeToString())
    yield "its fields in another order", b"".join(map(encode_field, _turned(fields)))
    more = b"".join(map(encode_field, (
        WireField(UNUSED[0], VARINT, 300), WireField(UNUSED[1], LENGTH, b"later"),
        WireField(UNUSED[2], FIXED32, b"late"), WireField(UNUSED[3], FIXED64, b"muchlate"),
    )))  # fmt: skip
    plain = b"".join(map(encode_field, fields))
    yield "unknown fields before and after the others", more + plain + more
    defaults = b"".join(map(encode_field, _defaults(message)))
    if defaults:
        yield "its default values written out", defaults + plain


def _turned(fields: list[WireField]) -> list[WireField]:
    """Return the fields with the highest numbers first; what is repeated keeps its own order."""
    return sorted(fields, key=lambda field: -field.number)


def _defaults(message: Any) -> Iterator[WireField]:
    """Yield what a message leaves out because it is the default."""
    there = {found.name for found, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        if field.name in there or field.message_type or field.is_repeated:
            continue
        if field.cpp_type == field.CPPTYPE_DOUBLE:
            yield WireField(field.number, FIXED64, bytes(8))
        elif field.cpp_type == field.CPPTYPE_STRING:
            yield WireField(field.number, LENGTH, b"")
        else:
            yield WireField(field.number, VARINT, 0)


def _doubled(message: Any) -> bytes:
    """Write a message behind other values of its fields, of which its own are the last."""
    others = b""
    for field, value in message.ListFields():
        if field.message_type or field.is_repeated or (not field.has_presence and not value):
            continue
        if isinstance(value, str | bytes):
            others += encode_field(WireField(field.number, LENGTH, b"another"))
        elif isinstance(value, int):
            others += encode_field(WireField(field.number, VARINT, 1 if value != 1 else 2))
    return others + bytes(message.SerializeToString()) if others else b""


@dataclass(frozen=True)
class Call:
    """An operation with a message, and what its answer has to say whatever form that has.

    A message that counts once is made anew each time.
    """

    operation: str
    message: Any
    says: Callable[[Any], Any]
    anew: Callable[[], Any] | None = None

    def fresh(self) -> Any:
        """Return a message to send."""
        return self.anew() if self.anew is not None else self.message


def _calls(context: Context) -> Iterator[Call]:
    key = os.urandom(NODE_ID_BYTES)
    known = {"sender": SENDER, "key": key}
    # A node may refuse to store under the same key again.
    context.grpc.call("DHTStore", messages.make("DHTStoreRequest", value="192.0.2.9:9000", **known))
    yield Call("DHTPing", messages.make("DHTPingRequest", sender=SENDER),
               lambda answer: bytes(answer.responder.node_id))  # fmt: skip
    yield Call("DHTFindValue", messages.make("DHTFindValueRequest", **known),
               lambda answer: (answer.found, answer.value))  # fmt: skip
    yield Call("DHTFindNode", messages.make("DHTFindNodeRequest", sender=SENDER, target_id=key),
               lambda answer: bytes(answer.responder.node_id))  # fmt: skip
    yield Call("GetCheckpoint", messages.make("GetCheckpointRequest", min_version=1),
               lambda answer: answer.success)  # fmt: skip
    if context.edition >= SIXTH:
        yield from _later_calls(context, known)
    try:
        request = forward_request(context)
    except Skipped:
        return
    yield Call("PipelineForward", request, lambda answer: (answer.request_id, answer.success))
    if context.edition >= SIXTH and context.target.allows(Effect.INTRUSIVE):
        with suppress(Skipped):
            way = kept_way(context)

            def kept() -> Any:
                found = send_kept(context, way)
                if found is None:
                    raise Skipped("a pass that was kept before is refused")
                return messages.make("PipelineBackwardRequest", **found.fields)

            yield Call("PipelineBackward", None, lambda answer: answer.success, kept)


def _later_calls(context: Context, known: dict[str, Any]) -> Iterator[Call]:
    yield Call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"),
               lambda answer: (answer.version, answer.model_hash))  # fmt: skip
    yield Call("DHTStore", messages.make("DHTStoreRequest", value="192.0.2.9:9000", **known),
               lambda answer: answer.success)  # fmt: skip
    held = layers_of(context).held if context.target.allows(Effect.INTRUSIVE) else ()
    found = next(served_notations(context, held[0]), None) if held else None
    if found is not None and len(found[1].body) < LARGE_BYTES:
        named = found[0].format(at=held[0], after=held[0] + 1)
        yield Call("GetWeights", messages.make("WeightRequest", shard_range=named),
                   lambda answer: bool(answer.weights_data))  # fmt: skip


@requirement(FORM, LAST)
def message_forms(context: Context) -> None:
    """Call operations with the same messages in several forms."""
    for call in _calls(context):
        message = call.fresh()
        control = context.grpc.call(call.operation, message)
        if not control.ok or control.message is None:
            continue
        expected = call.says(control.message)
        doubled = _doubled(message) if context.edition >= SIXTH else b""
        for name, content in _forms(message):
            sent = content if call.anew is None else _form_of(call.fresh(), name)
            reply = _again(context, call.operation, sent)
            _judge_form(context, FORM, call, (name, expected), control, reply)
        if doubled:
            sent = doubled if call.anew is None else _doubled(call.fresh())
            reply = _again(context, call.operation, sent)
            named = "its fields behind others of the same numbers"
            _judge_form(context, LAST, call, (named, expected), control, reply)


def _form_of(message: Any, name: str) -> bytes:
    return dict(_forms(message))[name]


def _judge_form(
    context: Context, ident: str, call: Call, form: tuple[str, Any], control: Reply, reply: Reply
) -> None:
    """Rule on the answer to a message in a form, which has to say what is expected."""
    (name, expected), answer = form, reply.message
    found = call.says(answer) if answer is not None else None
    why = f"{call.operation} with {name}: {reply.code} {brief(repr(found))}"
    why += f", in the usual form {brief(repr(expected))}"
    if reply.code not in BUSY and (found == expected or _still(context, call, expected)):
        context.judge(ident, found == expected, why, control, reply)


def _still(context: Context, call: Call, expected: Any) -> bool:
    """Whether the usual form still says the same: training may have gone on, or a value be gone."""
    reply = context.grpc.call(call.operation, call.fresh())
    return reply.message is not None and bool(call.says(reply.message) == expected)


def _again(context: Context, operation: str, content: bytes) -> Reply:
    timeout_s = context.target.inference_timeout_s
    return context.grpc.call(operation, content, timeout_s=timeout_s)


@requirement(PACKED)
def message_packed(context: Context) -> None:
    """Send a pass whose shape is packed, and one whose shape is not."""
    shape = list(forward_request(context).hidden_shape)
    forms: dict[str, Callable[[int], bytes]] = {
        "packed": lambda at: encode_field(
            WireField(at, LENGTH, b"".join(map(encode_varint, shape)))
        ),
        "not packed": lambda at: b"".join(
            encode_field(WireField(at, VARINT, size)) for size in shape
        ),
    }
    replies = dict[str, Reply]()
    for name, form in forms.items():
        # A node may refuse a second pass with the same identifiers.
        request = forward_request(context)
        field = request.DESCRIPTOR.fields_by_name[SHAPE_NUMBERS].number
        request.ClearField(SHAPE_NUMBERS)
        content = request.SerializeToString() + form(field)
        replies[name] = _again(context, "PipelineForward", content)
    taken = [name for name, reply in replies.items() if output_of(reply)]
    if any(reply.code in BUSY for reply in replies.values()) or not taken:
        raise Skipped(f"a pass ends with {replies['packed'].code}")
    why = f"a pass is made if its hidden_shape is {taken[0]}, and not otherwise"
    context.judge(PACKED, len(taken) == len(forms), why, *replies.values())
