"""What every call of the tested node is judged by, whatever the peer did: fields, IDs, deadlines.

Interface 2.3, 4.3 and 8. Every check of the peer may rule on these requirements.
"""

from collections.abc import Iterable

from conformance import messages
from conformance.catalogue import MessageRule, Profile, load
from conformance.editions import SEVENTH
from conformance.findings import Findings, Shown
from conformance.peer.watch import BYSTANDER, DHT, Call
from conformance.strictjson import brief

# Fields that no request of this kind does without, so that one that is missing has another number.
EXPECTED = {
    "PipelineForwardRequest": ("session_id", "request_id", "hidden_states", "hidden_shape"),
    "PipelineBackwardRequest": ("session_id", "request_id", "grad_output", "grad_shape"),
    "GossipGradientRequest": ("node_id", "model_hash", "timestamp", "layer_gradients"),
    "DHTPingRequest": ("sender",),
    "DHTFindNodeRequest": ("sender", "target_id"),
    "DHTFindValueRequest": ("sender", "key"),
    "DHTStoreRequest": ("sender", "key", "value"),
    "DHTNodeInfo": ("node_id", "ip", "port"),
}
# The same, which earlier editions did not ask.
EXPECTED_SINCE_7 = {
    "WeightRequest": ("shard_range",),
    "GetCheckpointRequest": ("model_hash",),
}
WHOLE = {
    "PipelineForwardRequest": "CL-MSG-001",
    "PipelineBackwardRequest": "CL-MSG-002",
    "GossipGradientRequest": "CL-MSG-003",
    "DHTPingRequest": "CL-MSG-004",
    "DHTFindNodeRequest": "CL-MSG-005",
    "DHTFindValueRequest": "CL-MSG-006",
    "DHTStoreRequest": "CL-MSG-007",
    "WeightRequest": "CL-MSG-008",
    "GetCheckpointRequest": "CL-MSG-009",
}
ID_BYTES = 20
DEADLINE, ATTEMPTS = "CL-CALL-001", "CL-CALL-002"
MAX_ATTEMPTS = 3
SENDER_ID, SAME_ID, TARGET_ID = "CL-DHT-001", "CL-DHT-002", "CL-DHT-003"
SHAPE, NAMED, PORT = "CL-SHAPE-001", "CL-NAMES-001", "CL-DHT-010"


def _rules() -> dict[str, tuple[tuple[str, MessageRule], ...]]:
    found: dict[str, list[tuple[str, MessageRule]]] = {}
    for item in load().values():
        if item.message is not None:
            found.setdefault(item.message.name, []).append((item.id, item.message))
    return {name: tuple(rules) for name, rules in found.items()}


RULES = _rules()
OWN_FIELDS = frozenset(
    item.id for item in load().values() if item.message and item.profile is Profile.PEER
)
PROVES = (
    *sorted(OWN_FIELDS), *WHOLE.values(), DEADLINE, ATTEMPTS, SENDER_ID, SAME_ID, TARGET_ID, SHAPE,
    NAMED, PORT,
)  # fmt: skip


def judge(findings: Findings, calls: Iterable[Call], known: dict[tuple[str, int], bytes]) -> None:
    """Judge calls of the tested node.

    `known` holds the IDs so far, by the host and the port that go with them: several nodes may call
    from one host.
    """
    for call in calls:
        shown = (call.exchange,) if call.exchange else ()
        if call.post == BYSTANDER:
            why = f"{call.operation} was sent to an address that only a DHT answer named"
            findings.judge(NAMED, call.operation in DHT, why, *shown)
        timed = call.deadline_s is not None
        findings.judge(DEADLINE, timed, f"{call.operation} has no deadline", *shown)
        asked = messages.OPERATIONS.get(call.operation, ("",))[0]
        if asked in WHOLE:
            _judge_fields(findings, asked, call, shown)
        if call.message is not None:
            _judge_meaning(findings, call, known, shown)


def _judge_fields(findings: Findings, name: str, call: Call, shown: tuple[Shown, ...]) -> None:
    faults = list(_faults(findings, name, call.body, shown))
    findings.judge(WHOLE[name], not faults, "; ".join(faults), *shown)


def _faults(
    findings: Findings, name: str, body: bytes, shown: tuple[Shown, ...]
) -> Iterable[str]:  # fmt: skip
    try:
        wire = messages.wire_fields(body)
    except messages.BadMessage as error:
        yield f"{name} is not a message: {error}"
        return
    numbers = {rule.number for _, rule in RULES[name]}
    strange = sorted({field.number for field in wire} - numbers)
    later = EXPECTED_SINCE_7 if findings.edition >= SEVENTH else {}
    expected = {**EXPECTED, **later}.get(name, ())
    for ident, rule in RULES[name]:
        present = [field for field in wire if field.number == rule.number]
        wrong = [why for field in present if (why := messages.field_fault(rule, field))]
        missing = not present and strange and rule.field in expected
        why = f"{rule.field}, number {rule.number}: {wrong[0]}" if wrong else ""
        if missing:
            why = f"{rule.field} is missing; field {strange[0]} is not in {name}"
        if ident in OWN_FIELDS and (present or missing):
            findings.judge(ident, not why, why, *shown)
        if why:
            yield why
        if rule.type == "DHTNodeInfo" and not why:
            for field in present:
                inner = field.value if isinstance(field.value, bytes) else b""
                yield from _faults(findings, "DHTNodeInfo", inner, shown)


def _judge_meaning(
    findings: Findings, call: Call, known: dict[tuple[str, int], bytes], shown: tuple[Shown, ...]
) -> None:
    request = call.message
    if request is None:
        return
    if call.operation in DHT:
        port = int(request.sender.port)
        why = f"the sender of {call.operation} has the port {port}"
        findings.judge(PORT, 0 <= port < 2**16, why, *shown)
        ident = bytes(request.sender.node_id)
        why = f"the sender of {call.operation} has an ID of {len(ident)} bytes"
        if findings.judge(SENDER_ID, len(ident) == ID_BYTES, why, *shown):
            where = (call.caller, port)
            before = known.setdefault(where, ident)
            why = f"{ident.hex()} after {before.hex()} of {where[0]} with port {where[1]}"
            findings.judge(SAME_ID, before == ident, why, *shown)
    if call.operation == "DHTFindNode":
        length = len(request.target_id)
        why = f"target_id has {length} bytes"
        findings.judge(TARGET_ID, length == ID_BYTES, why, *shown)
    if call.operation == "PipelineForward" and request.hidden_states:
        shape = list(request.hidden_shape)
        good = len(shape) == 3 and all(size > 0 for size in shape)
        why = f"hidden_shape is {brief(shape)}, not [batch, seq, hidden]"
        findings.judge(SHAPE, good, why, *shown)


def judge_attempts(findings: Findings, failed: Iterable[Call]) -> None:
    """Judge how often a request was sent to the peer that had failed it."""
    attempts: dict[tuple[str, str], list[Call]] = {}
    for call in failed:
        attempts.setdefault(call.identity, []).append(call)
    for (operation, _), same in attempts.items():
        shown = tuple(call.exchange for call in same[: MAX_ATTEMPTS + 1] if call.exchange)
        why = f"one {operation} was sent {len(same)} times"
        findings.judge(ATTEMPTS, len(same) <= MAX_ATTEMPTS, why, *shown)
