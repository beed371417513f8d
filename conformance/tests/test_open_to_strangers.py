"""Unfamiliar behaviour that violates no sentence is not judged or stays open, but never fails."""

from typing import Any

import pytest

from conformance import httpbody
from conformance.ended import Run
from conformance.judging.hooks import INFERENCE, grpc_status, on
from conformance.judging.toy.answers import Asked, Response, error
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Standing


def standings(run: Run) -> dict[str, Standing]:
    """Return the standing of each requirement."""
    assert run.faults == {}
    return {item.requirement.id: item.standing for item in run.results}


def test_a_worker_that_serves_nobody_is_left_open(toy: Serving, judge: Judge) -> None:
    def hook(asked: Asked, response: Response) -> None:
        if asked.path == INFERENCE and asked.authorized:
            busy = error(409, "NOT_A_DRIVER", "ask another node")
            response.__dict__.update({**busy.__dict__, "events": None})

    toy.node.http_hook = hook
    assert standings(judge("NA-INF-005"))["NA-INF-005"] is Standing.INCONCLUSIVE


def test_a_checkpoint_too_long_to_be_read_is_there(
    toy: Serving, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httpbody, "MAX_BODY_BYTES", 1000)
    toy.node.http_hook = on(
        "/api/model/checkpoint.json", lambda r: r.__dict__.update(raw=b"[" + b"0," * 5000 + b"0]")
    )
    found = standings(judge("NT-ROUTE-004", "NT-ROUTE-015"))
    assert found["NT-ROUTE-004"] is found["NT-ROUTE-015"] is Standing.PROVED


@pytest.mark.parametrize(
    ("to", "amount", "expected"),
    [
        ("toy", 2.0, Standing.NOT_EXERCISED),
        ("another", 2.0, Standing.VIOLATED),
        ("another", -2.0, Standing.PROVED),
    ],
)
def test_a_send_that_came_in_may_have_a_positive_amount(
    to: str, amount: float, expected: Standing, toy: Serving, judge: Judge
) -> None:
    entry = {"id": "i", "type": "send", "amount": amount, "timestamp": "2026-01-01", "to": to}
    toy.node.http_hook = on(
        "/api/v1/wallet/transactions", lambda r: r.json.update(transactions=[entry])
    )
    found = standings(judge("NA-QUERY-007", allow=frozenset()))
    assert found["NA-QUERY-007"] is expected


@pytest.mark.parametrize(
    ("converging", "expected"), [(True, Standing.NOT_EXERCISED), (False, Standing.VIOLATED)]
)
def test_agreement_alone_does_not_say_whether_training_works(
    converging: bool, expected: Standing, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = on(
        "/api/training/global",
        lambda r: r.json.update(hash_agreement_rate=0.9, is_converging=converging),
    )
    assert standings(judge("TR-RULE-001"))["TR-RULE-001"] is expected


@pytest.mark.parametrize(
    ("operation", "ident"),
    [
        ("GetWeights", "GR-WEIGHT-REQUEST-01"),
        ("DHTPing", "GR-DHT-PING-REQUEST-01"),
        ("DHTStore", "GR-DHT-STORE-REQUEST-01"),
        ("GossipGradient", "GR-GOSSIP-GRADIENT-REQUEST-07"),
        ("PipelineBackward", "GR-PIPELINE-BACKWARD-REQUEST-04"),
    ],
)
def test_who_refuses_everything_shows_no_number(
    operation: str, ident: str, toy: Serving, judge: Judge
) -> None:
    assert standings(judge(ident))[ident] is Standing.PROVED
    toy.node.grpc_hook = grpc_status(operation, "INVALID_ARGUMENT")
    assert standings(judge(ident))[ident] is Standing.NOT_EXERCISED


FORWARD = tuple(f"GR-PIPELINE-FORWARD-REQUEST-{number:02d}" for number in (2, 3, 4, 6, 7, 10, 11))


def test_who_takes_everything_shows_no_number(toy: Serving, judge: Judge) -> None:
    found = standings(judge(*FORWARD))
    assert {found[ident] for ident in FORWARD} == {Standing.PROVED}

    def same(operation: str, request: Any, answer: Any) -> Any:
        taken = {"success": True, "is_final": True, "logits": b"same", "logits_shape": [1]}
        return taken if operation == "PipelineForward" else answer

    toy.node.grpc_hook = same
    found = standings(judge(*FORWARD))
    assert {found[ident] for ident in FORWARD} == {Standing.NOT_EXERCISED}


def backward(**changes: Any) -> Any:
    """Change the answers of PipelineBackward."""
    return lambda operation, request, answer: (
        {**answer, **changes} if operation == "PipelineBackward" else answer
    )


def test_a_pass_back_goes_as_the_target_declares(toy: Serving, judge: Judge) -> None:
    ids = ("GR-PIPELINE-BACKWARD-RESPONSE-01", "PL-BWD-001", "PL-BWD-003")
    run = judge(*ids)
    assert {standings(run)[ident] for ident in ids} == {Standing.PROVED}
    declared = [item for item in run.exchanges if item.request.get("metadata")]
    # The pass by which the suite sees how one is kept, its gradients, and the pass that is judged.
    assert [item.request["metadata"] for item in declared] == [{"training": "1"}] * 3
    assert "-H 'training: 1'" in declared[0].reproduce
    toy.node.grpc_hook = backward(success=False, error_message="")
    found = standings(judge(*ids))
    assert found["PL-BWD-001"] is found["PL-BWD-003"] is Standing.VIOLATED


def test_without_a_declaration_no_pass_back_is_asked_for(toy: Serving, judge: Judge) -> None:
    pipeline = {"shard": 1, "hidden_shape": [1, 2, 8]}
    run = judge("PL-BWD-003", pipeline=pipeline)
    assert standings(run)["PL-BWD-003"] is Standing.NOT_EXERCISED
    assert not any(item.request.get("metadata") for item in run.exchanges)
