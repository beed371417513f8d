"""Each documented field is left out, or given another type: exactly its own requirement fails."""

from typing import Any

import pytest

from conformance import messages
from conformance.catalogue import Level, Requirement
from conformance.judging.mutants.fields import FIELDS, MESSAGE_FIELDS, message_mutant, mutant
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome, Standing

# A value for each documented type, for fields that the toy leaves at their default.
FILLED: dict[str, Any] = {
    "string": "x", "bytes": b"x", "bool": True, "int32": 3, "int64": 3, "double": 0.5,
}  # fmt: skip


# What else a broken field contradicts: a relation between fields, or an effect.
ALSO = {
    **dict.fromkeys(
        ("NA-STATUS-028", "NA-INF-RESULT-016", "NA-LAYERS-004", "NA-PROOFS-018"), "NA-SANE-015"
    ),
    **dict.fromkeys(("NA-PROOFS-013", "NA-PROOFS-014", "NA-PROOFS-020"), "NA-SANE-018"),
    **dict.fromkeys(("NA-SEND-006", "NA-SEND-008", "NA-SEND-012"), "NA-WALLET-001"),
    **dict.fromkeys(
        ("NA-HISTORY-001", "NA-HISTORY-002", "NA-HISTORY-009", "NA-HISTORY-010"), "NA-WALLET-006"
    ),
    **dict.fromkeys(
        ("NA-STAKE-008", "NA-STAKE-010", "NA-STAKE-012", "NA-STAKE-014"), "NA-WALLET-022"
    ),
    "NA-UNSTAKE-006": "NA-WALLET-004",
}
# A history without a list lists no transfer, whoever it goes to.
UNLISTED = {"NA-HISTORY-001", "NA-HISTORY-002"}


def failed_musts(results: Any) -> set[str]:
    """Return the ids of the MUSTs that failed."""
    return {item.requirement.id for item in results if item.outcome is Outcome.FAIL}


@pytest.mark.parametrize("requirement", FIELDS, ids=lambda item: item.id)
def test_a_broken_field_fails_its_requirement_and_no_other(
    requirement: Requirement, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = mutant(requirement)
    run = judge(requirement.id, examples=2)
    assert run.faults == {}
    also = {ALSO.get(requirement.id, requirement.id)}
    also |= {"NA-WALLET-047"} if requirement.id in UNLISTED else set()
    assert failed_musts(run.results) == {requirement.id, *also}


# What cannot be read is not there: an answer without a responder breaks a rule of its own.
BESIDE = {"GR-DHT-FIND-VALUE-RESPONSE-04": {"DH-008"}}


@pytest.mark.parametrize("requirement", MESSAGE_FIELDS, ids=lambda item: item.id)
def test_a_message_field_of_another_wire_type_fails_its_requirement_and_no_other(
    requirement: Requirement, toy: Serving, judge: Judge
) -> None:
    toy.node.grpc_hook = message_mutant(requirement)
    run = judge(requirement.id, examples=2)
    assert run.faults == {}
    assert failed_musts(run.results) == {requirement.id} | BESIDE.get(requirement.id, set())


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
