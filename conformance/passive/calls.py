"""Interface 2.3 and 7.3: whatever an answer over gRPC holds, judged whichever check asked for it.

As in `resources`, every answer of a documented operation is judged: the numbers and types of its
fields, and that a failure inside it gives its reason. How a call ends is judged of all operations.
"""

import math
from functools import cache
from typing import Any

from conformance import messages
from conformance.catalogue import fields_of_message, load
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Findings
from conformance.grpcwire import Reply
from conformance.passive import passes
from conformance.strictjson import brief

SINCE = 4
LOSSES = ("GetCheckpointInfoResponse", "PipelineForwardResponse")
NODE_ID_BYTES = 20
# Where a node names itself, whatever else it answers.
ANSWERS_OF_DHT = ("DHTStoreResponse", "DHTFindNodeResponse", "DHTFindValueResponse")
RESPONDER = "DH-017"
# Whether what has failed is described besides, what was done has an error, and a loss is below 0.
NO_ERROR, NO_TENSOR, ABOVE = "GR-SANE-010", "GR-SANE-011", "GR-SANE-012"
ENDS = "GR-CODE-001"
# The statuses of interface 7.3.
DOCUMENTED_CODES = frozenset(
    {
        "OK", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "NOT_FOUND",
        "INVALID_ARGUMENT", "INTERNAL",
    }
)  # fmt: skip
# The status that a server's gRPC library returns for an operation that it does not know.
UNKNOWN = "UNIMPLEMENTED"
# Authentication over gRPC is not specified, and neither are its statuses.
OF_AUTHENTICATION = ("UNAUTHENTICATED", "PERMISSION_DENIED")
# The field that says whether it was done, that of the reason, and the requirement.
REASONS = {
    "PipelineForwardResponse": ("success", "error_message", "PL-FWD-001"),
    "PipelineBackwardResponse": ("success", "error_message", "PL-BWD-001"),
    "GetCheckpointResponse": ("success", "error_message", "GR-CKPT-003"),
    "GossipGradientResponse": ("accepted", "reason", "GR-GOSSIP-001"),
}


@cache
def ids() -> frozenset[str]:
    """Return the requirements that any answer may prove or violate."""
    names = {response for _, response in messages.OPERATIONS.values()} | {"DHTNodeInfo"}
    found = {ident for name in names for ident in fields_of_message(name)}
    reasons = {ident for _, _, ident in REASONS.values()}
    return frozenset(
        found
        | reasons
        | {"GR-CKPT-005", "GR-CKPT-013", "DH-003", RESPONDER, "GR-SANE-001", "GR-SANE-002"}
        | {NO_ERROR, NO_TENSOR, ABOVE}
        | passes.IDS
    )


def judge_reply(findings: Findings, known: passes.Passes, reply: Reply) -> None:
    """Rule on the answer of a documented operation, if it has one that can be read.

    `known` is what the answers to passes have shown so far. Editions before ``SINCE`` do not.
    """
    if findings.edition >= SIXTH:
        _judge_status(findings, reply)
    name = messages.OPERATIONS.get(reply.operation, ("", ""))[1]
    if findings.edition < SINCE or not reply.ok or name not in messages.MESSAGES:
        return
    try:
        fields = messages.wire_fields(reply.body)
    except messages.BadMessage:
        return
    if not judge_fields(findings, name, fields, reply):
        return
    answer = messages.parse(name, reply.body)
    if name in LOSSES:
        why = f"loss is {answer.loss}"
        findings.judge("GR-SANE-002", math.isfinite(answer.loss), why, reply)
        if findings.edition >= SIXTH:
            findings.judge(ABOVE, not answer.loss < 0, why, reply)
    if findings.edition >= SIXTH:
        _judge_outcome(findings, name, answer, reply)
    if reply.operation == passes.OPERATION and findings.edition >= SIXTH:
        known.judge(findings, answer, reply)
    if name in REASONS:
        done, reason, ident = REASONS[name]
        if not getattr(answer, done):
            given = bool(getattr(answer, reason).strip())
            findings.judge(ident, given, f"{reason} is empty", reply)
            if name == "GetCheckpointResponse":
                size = len(answer.checkpoint_data)
                why = f"success is false, with {size} bytes of a checkpoint"
                findings.judge("GR-CKPT-013", not size, why, reply)
        elif name == "GetCheckpointResponse":
            why = "checkpoint_data is empty"
            findings.judge("GR-CKPT-005", bool(answer.checkpoint_data), why, reply)
    if name in ANSWERS_OF_DHT and findings.edition >= FIFTH:
        named = answer.HasField("responder") and bool(answer.responder.node_id)
        findings.judge(RESPONDER, named, f"{name} has no responder", reply)
    if name in ("DHTFindNodeResponse", "DHTFindValueResponse") and answer.nodes:
        lengths = sorted({len(node.node_id) for node in answer.nodes})
        findings.judge("DH-003", lengths == [NODE_ID_BYTES], f"lengths {lengths}", reply)


def _judge_status(findings: Findings, reply: Reply) -> None:
    """Rule on how a call with a message ends; what was sent as bytes need not be one."""
    expected = reply.code in (*DOCUMENTED_CODES, UNKNOWN, *OF_AUTHENTICATION)
    if not expected and reply.exchange.request.get("message") is not None:
        findings.fails(ENDS, f"status {reply.code}: {reply.details}", reply)


def _judge_outcome(findings: Findings, name: str, answer: Any, reply: Reply) -> None:
    """Rule on what an answer has that does not go with its outcome."""
    if REASONS.get(name, ("", "", ""))[1] != "error_message":
        return
    if answer.success:
        why = f"success with the error_message {brief(answer.error_message, 120)}"
        findings.judge(NO_ERROR, not answer.error_message.strip(), why, reply)
    elif name == "PipelineForwardResponse":
        size = len(answer.hidden_states) + len(answer.logits)
        why = f"success is false, with {size} bytes of a tensor"
        findings.judge(NO_TENSOR, not size, why, reply)


def judge_fields(
    findings: Findings, name: str, fields: list[messages.WireField], reply: Reply
) -> bool:
    """Rule on the fields of one message and its nested ones; return whether all are valid."""
    catalogue = load()
    valid = True
    for ident in fields_of_message(name):
        rule = catalogue[ident].message
        found = [field for field in fields if rule and field.number == rule.number]
        # A field with its default value is not on the wire, so its absence shows nothing.
        if rule is None or not found:
            continue
        faults = [fault for field in found if (fault := messages.field_fault(rule, field))]
        if rule.type in ("int32", "int64") and not faults:
            negative = [field for field in found if _is_negative(field)]
            why = f"{name} field {rule.number} ({rule.field}) is negative"
            findings.judge("GR-SANE-001", not negative, why, reply)
            # Other rules would fail for the same reason.
            valid &= not negative
        why = f"field {rule.number}: {'; '.join(faults[:2])}"
        valid &= findings.judge(ident, not faults, why, reply)
        if rule.type in messages.MESSAGES:
            inner = [_nested(findings, ident, rule.type, field, reply) for field in found]
            valid &= all(inner)
    return valid


def _is_negative(field: messages.WireField) -> bool:
    return isinstance(field.value, int) and field.value >> 63 == 1


def _nested(
    findings: Findings, ident: str, name: str, field: messages.WireField, reply: Reply
) -> bool:
    if not isinstance(field.value, bytes):
        return False
    try:
        inner = messages.wire_fields(field.value)
    except messages.BadMessage as error:
        findings.fails(ident, f"field {field.number} is not a {name}: {error}", reply)
        return False
    return judge_fields(findings, name, inner, reply)
