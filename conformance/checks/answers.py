"""How an answer of a documented gRPC operation is judged, field by field, from the wire."""

from typing import Any

from conformance import messages
from conformance.catalogue import load
from conformance.context import Context
from conformance.grpcwire import Reply
from conformance.registry import fields_of_message

# What the library of a server answers when it does not know the operation.
UNKNOWN = "UNIMPLEMENTED"
DOCUMENTED_CODES = frozenset(
    {
        "OK", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "NOT_FOUND",
        "INVALID_ARGUMENT", "INTERNAL",
    }
)  # fmt: skip


def judge_operation(context: Context, ident: str, reply: Reply) -> bool:
    """Rule on whether the service has the operation; give whether it answered OK."""
    present = context.judge(
        ident, reply.code != UNKNOWN, f"status {UNKNOWN}: {reply.details}", reply
    )
    return present and reply.ok


def judge_message(context: Context, name: str, reply: Reply) -> Any | None:
    """Rule on every field that the answer carries; the parsed message, or None where it is none."""
    try:
        fields = messages.wire_fields(reply.body)
    except messages.BadMessage as error:
        for ident in fields_of_message(name):
            context.unclear(ident, f"the answer is no {name}: {error}", reply)
        return None
    if not _judge_fields(context, name, fields, reply):
        # A library would read a default instead of a broken field, and that breaks other rules.
        return None
    return messages.parse(name, reply.body)


def _judge_fields(
    context: Context, name: str, fields: list[messages.WireField], reply: Reply
) -> bool:
    """Rule on the fields of one message and of those in it; give whether all are well."""
    catalogue = load()
    well = True
    for ident in fields_of_message(name):
        rule = catalogue[ident].message
        found = [field for field in fields if rule and field.number == rule.number]
        # A field with its default value is not on the wire: nothing is shown by its absence.
        if rule is None or not found:
            continue
        faults = [fault for field in found if (fault := messages.field_fault(rule, field))]
        why = f"field {rule.number}: {'; '.join(faults[:2])}"
        well &= context.judge(ident, not faults, why, reply)
        if rule.type in messages.MESSAGES:
            inner = [_nested(context, ident, rule.type, field, reply) for field in found]
            well &= all(inner)
    return well


def _nested(
    context: Context, ident: str, name: str, field: messages.WireField, reply: Reply
) -> bool:
    if not isinstance(field.value, bytes):
        return False
    try:
        inner = messages.wire_fields(field.value)
    except messages.BadMessage as error:
        context.fails(ident, f"field {field.number} is no {name}: {error}", reply)
        return False
    return _judge_fields(context, name, inner, reply)


def judge_excuse(
    context: Context, ident: str, reply: Reply, *, refused: bool, reason: str, key: str
) -> None:
    """Rule on 7.3: a failure inside a normal answer says why."""
    if refused:
        context.judge(ident, bool(reason.strip()), f"{key} is empty", reply)
