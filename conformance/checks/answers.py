"""Judges the answer of a documented gRPC operation, field by field, as it is on the wire."""

from typing import Any

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.context import Context
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.passive import calls
from conformance.passive.calls import judge_fields

# What any answer is judged by.
UNKNOWN, OF_AUTHENTICATION = calls.UNKNOWN, calls.OF_AUTHENTICATION
DOCUMENTED_CODES = calls.DOCUMENTED_CODES


def judge_operation(context: Context, ident: str, reply: Reply) -> bool:
    """Rule on whether the service has the operation; return whether it answered OK."""
    if reply.code == UNKNOWN and context.edition > 1 and not is_named(context):
        raise Skipped("the service has another name, which GR-NAME-001 reports")
    present = context.judge(
        ident, reply.code != UNKNOWN, f"status {UNKNOWN}: {reply.details}", reply
    )
    if context.edition > 1 and reply.code not in (UNKNOWN, *DOCUMENTED_CODES, *OF_AUTHENTICATION):
        context.fails("GR-CODE-001", f"status {reply.code}: {reply.details}", reply)
    return present and reply.ok


# Operations that show whether the service has its name, and names that it might have instead.
SHOWING = ("DHTPing", "GetCheckpointInfo", "DHTFindNode", "GetWeights")
OTHER_NAMES = (
    "NodeService", "node.Node", "node.v1.NodeService", "node.NodeServicer", "nodeservice",
    "neuroshard.NodeService", "neuroshard.NeuroShardService", "meshnode.NodeService",
    "grpc.NodeService",
)  # fmt: skip


def is_named(context: Context) -> bool:
    """Return whether the service is known by its documented name; asks once in a run."""
    if context.service.named is None:
        codes = {context.grpc.call(name, b"").code for name in SHOWING}
        context.service.named = codes != {UNKNOWN}
    return context.service.named


def other_name(context: Context) -> tuple[str, Reply] | None:
    """Return another name under which the service answers, and the answer, or None."""
    for name in OTHER_NAMES:
        reply = context.grpc.call(f"/{name}/DHTPing", b"")
        if reply.code != UNKNOWN:
            return name, reply
    return None


def judge_message(context: Context, name: str, reply: Reply) -> Any | None:
    """Rule on every field in the answer; return the parsed message, or None if it is invalid."""
    try:
        fields = messages.wire_fields(reply.body)
    except messages.BadMessage as error:
        for ident in fields_of_message(name):
            context.unclear(ident, f"the answer is not a {name}: {error}", reply)
        return None
    if not judge_fields(context, name, fields, reply):
        # A library would read a default value instead of a broken field, and other rules would
        # fail.
        return None
    return messages.parse(name, reply.body)


def judge_failure_reason(
    context: Context, ident: str, reply: Reply, *, refused: bool, reason: str, key: str
) -> None:
    """Rule on interface 7.3: a failure inside a normal answer gives its reason."""
    if refused:
        context.judge(ident, bool(reason.strip()), f"{key} is empty", reply)


def judge_pass_reason(context: Context, answer: Any, reply: Reply) -> None:
    """Rule on the reason in a PipelineForwardResponse that says that the pass failed."""
    judge_failure_reason(
        context,
        "PL-FWD-001",
        reply,
        refused=not answer.success,
        reason=answer.error_message,
        key="error_message",
    )
