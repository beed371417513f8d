"""Each documented field is left out, or given another type: exactly its own requirement fails.

The mutants are made from the catalogue, so no field can be added without one.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from conformance import messages
from conformance.catalogue import Level, Requirement, load
from conformance.shapes import parents
from conformance.tests.conftest import Judge
from conformance.tests.toy import Asked, Response
from conformance.tests.toy_serving import Serving
from conformance.verdict import Outcome, Standing

# Where each resource is answered.
PLACES = {
    "status": ("GET", "/api/v1/status"),
    "metrics": ("GET", "/api/v1/metrics"),
    "health": ("GET", "/api/v1/health"),
    "balance": ("GET", "/api/v1/wallet/balance"),
    "transactions": ("GET", "/api/v1/wallet/transactions"),
    "transfer": ("POST", "/api/v1/wallet/send"),
    "stake": ("POST", "/api/v1/wallet/stake"),
    "unstake": ("POST", "/api/v1/wallet/unstake"),
    "peers": ("GET", "/api/v1/peers"),
    "layers": ("GET", "/api/v1/layers"),
    "network": ("GET", "/api/v1/network"),
    "config": ("GET", "/api/v1/config"),
    "proofs": ("GET", "/api/v1/proofs"),
    "patch": ("PATCH", "/api/v1/config"),
    "inference": ("POST", "/api/v1/inference"),
    "sse-token": ("POST", "/api/v1/inference"),
    "sse-final": ("POST", "/api/v1/inference"),
    "training-global": ("GET", "/api/training/global"),
    "training-verify": ("GET", "/api/training/verify"),
}
WRONG: dict[str, Any] = {
    "string": 7, "int": 1.5, "number": "1", "bool": "true", "array": {}, "object": [],
    "ints": ["a"], "strings": [1],
}  # fmt: skip

FIELDS = [item for item in load().values() if item.field and item.check]


def failed_musts(results: Any) -> set[str]:
    """Give the ids of the MUSTs that failed."""
    return {item.requirement.id for item in results if item.outcome is Outcome.FAIL}


def documents(resource: str, response: Response) -> list[Any]:
    """Give those parts of an answer that hold the resource."""
    if resource == "sse-token":
        return (response.events or [])[:-1]
    if resource == "sse-final":
        return (response.events or [])[-1:]
    return [response.json] if isinstance(response.json, dict) else []


def mutant(requirement: Requirement) -> Callable[[Asked, Response], None]:
    """Make the hook that breaks this requirement and nothing else."""
    rule = requirement.field
    assert rule is not None
    place = PLACES[rule.of]

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path) != place or response.status != 200:
            return
        if rule.when is not None and rule.when.path == "is_working" and not rule.when.equals:
            response.json = {"is_working": False, "reason": "nodes differ", "action": "restart"}
        for document in documents(rule.of, response):
            for holder, key, _ in list(parents(document, rule.path)):
                if rule.aspect == "present":
                    holder.pop(key, None)
                else:
                    holder[key] = copy.deepcopy(WRONG[rule.aspect])

    return hook


@pytest.mark.parametrize("requirement", FIELDS, ids=lambda item: item.id)
def test_a_broken_field_fails_its_requirement_and_no_other(
    requirement: Requirement, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = mutant(requirement)
    run = judge(requirement.id, examples=2)
    assert run.faults == {}
    assert failed_musts(run.results) == {requirement.id}


MESSAGE_FIELDS = [
    item
    for item in load().values()
    if item.message and item.check and not item.message.name.endswith("Request")
]
# A value of each documented type, for fields that the toy leaves at their default.
FILLED: dict[str, Any] = {
    "string": "x", "bytes": b"x", "bool": True, "int32": 3, "int64": 3, "double": 0.5,
}  # fmt: skip


def broken(requirement: Requirement, data: bytes) -> bytes:
    """Give the message with the field on another wire type; all the others stay."""
    rule = requirement.message
    assert rule is not None
    if rule.name == "DHTNodeInfo":
        return data
    kept = b"".join(
        encode(field.number, field.wire_type, field.value)
        for field in messages.wire_fields(data)
        if field.number != rule.number
    )
    return kept + encode(rule.number, messages.FIXED32, b"\1\2\3\4")


def encode(number: int, wire_type: int, value: int | bytes) -> bytes:
    """Write one field."""
    key = varint(number << 3 | wire_type)
    if isinstance(value, int):
        return key + varint(value)
    return key + (varint(len(value)) if wire_type == messages.LENGTH else b"") + value


def varint(value: int) -> bytes:
    """Write one number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message_mutant(requirement: Requirement) -> Callable[[str, Any, Any], Any]:
    """Make the hook that gives one field of one message another wire type."""
    rule = requirement.message
    assert rule is not None

    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation not in messages.OPERATIONS:
            return answer
        name = messages.OPERATIONS[operation][1]
        if rule.name == "DHTNodeInfo" and "responder" in answer:
            inner = answer["responder"].SerializeToString()
            kept = b"".join(
                encode(field.number, field.wire_type, field.value)
                for field in messages.wire_fields(inner)
                if field.number != rule.number
            ) + encode(rule.number, messages.FIXED32, b"\1\2\3\4")
            outer = messages.make(name, **{**answer, "responder": None}).SerializeToString()
            return outer + encode(1, messages.LENGTH, kept)
        if name != rule.name:
            return answer
        return broken(requirement, messages.make(name, **answer).SerializeToString())

    return hook


@pytest.mark.parametrize("requirement", MESSAGE_FIELDS, ids=lambda item: item.id)
def test_a_message_field_of_another_wire_type_fails_its_requirement_and_no_other(
    requirement: Requirement, toy: Serving, judge: Judge
) -> None:
    toy.node.grpc_hook = message_mutant(requirement)
    run = judge(requirement.id, examples=2)
    assert run.faults == {}
    assert failed_musts(run.results) == {requirement.id}


@pytest.mark.parametrize("requirement", MESSAGE_FIELDS, ids=lambda item: item.id)
def test_a_message_field_with_a_value_of_its_type_is_proved(
    requirement: Requirement, toy: Serving, judge: Judge
) -> None:
    rule = requirement.message
    assert rule is not None
    if rule.type not in FILLED:
        return
    value = FILLED[rule.type]

    def hook(operation: str, request: Any, answer: Any) -> Any:
        fits = operation in messages.OPERATIONS and messages.OPERATIONS[operation][1] == rule.name
        return {**answer, rule.field: [value] if rule.repeated else value} if fits else answer

    toy.node.grpc_hook = hook
    run = judge(requirement.id, examples=2)
    proved = {item.requirement.id: item.standing for item in run.results}
    assert proved[requirement.id] is Standing.PROVED


def test_there_are_at_least_150_mutants() -> None:
    musts = [item for item in (*FIELDS, *MESSAGE_FIELDS) if item.level is Level.MUST]
    assert len(musts) >= 150
