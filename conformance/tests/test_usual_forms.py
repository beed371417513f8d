"""A forward pass that nobody declares: it is found by trying, judged, and never invented."""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from conformance.checks.forms import FORMS, WIDTHS, encode, values_for
from conformance.checks.passes import FAR
from conformance.ended import Run
from conformance.frames import is_framed
from conformance.judging.hooks import grpc_status, on, put
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.calls import HELD, SHAPE
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome, Standing

JUDGED = ("PL-FWD-001", "PL-FWD-002", "PL-FWD-003", "PL-FWD-004", "PL-FWD-005", "PL-FWD-007")
ABSENT = "GR-CODE-004"
NOTHING: dict[str, Any] = {"pipeline": {}}
# What GetShardInfo of some node might say: 8 is the size.
INFO = b"\x08\x03\x10\x08"


def standings(run: Run) -> dict[str, Standing]:
    assert run.faults == {}
    return {item.requirement.id: item.standing for item in run.results}


def reasons(run: Run) -> dict[str, str]:
    return {item.requirement.id: item.reason for item in run.results}


def failed(run: Run) -> set[str]:
    assert run.faults == {}
    return {item.requirement.id for item in run.results if item.outcome is Outcome.FAIL}


def reading(form: str, **changes: Any) -> Callable[[str, Any, Any], Any]:
    """Accept tensors of one form only, for the layers that the toy lists."""

    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation != "PipelineForward":
            return answer
        if request.target_shard not in HELD:
            return "NOT_FOUND"
        told = {"request_id": request.request_id}
        if bytes(request.hidden_states) != encode(form, SHAPE):
            return {**told, "success": False, "error_message": "not a tensor"}
        logits = encode("float32", [1, 1, 4])
        return {**told, "success": True, "is_final": True, "logits": logits,
                "logits_shape": [1, 1, 4], **changes}  # fmt: skip

    return hook


def middle(operation: str, request: Any, answer: Any, **changes: Any) -> Any:
    """Pass hidden states on, as a node without the last layer does."""
    if operation != "PipelineForward" or isinstance(answer, str) or not answer["success"]:
        return answer
    return {"request_id": request.request_id, "success": True, "hidden_shape": SHAPE,
            "hidden_states": bytes(request.hidden_states), **changes}  # fmt: skip


def first_half(asked: Asked, response: Response) -> None:
    """List the first layers instead of the last."""
    if asked.path == "/api/v1/status" and response.status == 200:
        response.json["layers"] = [0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_a_node_that_reads_a_usual_form_is_judged(form: str, toy: Serving, judge: Judge) -> None:
    toy.node.grpc_hook = reading(form)
    run = judge(*JUDGED, ABSENT, **NOTHING)
    found = standings(run)
    assert {found[ident] for ident in (*JUDGED, ABSENT)} == {Standing.PROVED}
    assert failed(run) == set()


@pytest.mark.parametrize(
    ("ident", "changes"),
    [
        pytest.param("PL-FWD-002", {"is_final": False}, id="logits without is_final"),
        pytest.param("PL-FWD-004", {"logits": b"", "logits_shape": []}, id="final without logits"),
        pytest.param("PL-FWD-003", {"request_id": "another"}, id="another request_id"),
        pytest.param("PL-FWD-007", {"logits_shape": []}, id="no shape"),
        pytest.param("PL-FWD-007", {"logits": bytes(15)}, id="a byte is missing"),
        pytest.param(
            "PL-FWD-005",
            {"is_final": False, "logits": b"", "hidden_states": bytes(64), "hidden_shape": SHAPE},
            id="the last layer is not final",
        ),
    ],
)
def test_a_fault_of_a_pass_that_was_found_is_noticed(
    ident: str, changes: dict[str, Any], toy: Serving, judge: Judge
) -> None:
    toy.node.grpc_hook = reading("bfloat16", **changes)
    assert ident in failed(judge(ident, **NOTHING))


def test_a_refused_try_gives_its_reason_too(toy: Serving, judge: Judge) -> None:
    def silent(operation: str, request: Any, answer: Any) -> Any:
        found = reading("npy")(operation, request, answer)
        return {**found, "error_message": ""} if isinstance(found, dict) else found

    toy.node.grpc_hook = silent
    assert "PL-FWD-001" in failed(judge("PL-FWD-001", **NOTHING))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("NOT_FOUND", Standing.PROVED),
        ("INTERNAL", Standing.VIOLATED),
        ("refused in the answer", Standing.VIOLATED),
        # A number that no model has may be a bad request, and a node may read no number at all.
        ("INVALID_ARGUMENT", Standing.NOT_EXERCISED),
        ("served", Standing.NOT_EXERCISED),
    ],
)
def test_a_layer_that_no_model_has_is_not_found(
    how: str, expected: Standing, toy: Serving, judge: Judge
) -> None:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        far = operation == "PipelineForward" and request.target_shard == FAR
        if not far and (how != "served" or answer != "NOT_FOUND"):
            return answer
        told = {"request_id": request.request_id}
        ends: dict[str, Any] = {
            "served": {**told, "success": True, "is_final": True, "logits": bytes(8),
                       "logits_shape": [1, 1, 2]},
            "refused in the answer": {**told, "success": False, "error_message": "no layer"},
        }  # fmt: skip
        return ends.get(how, how)

    toy.node.grpc_hook = hook
    assert standings(judge(ABSENT, **NOTHING))[ABSENT] is expected


def test_who_reads_the_number_of_a_layer_serves_none_that_no_model_has(
    toy: Serving, judge: Judge
) -> None:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        other = operation == "PipelineForward" and request.target_shard not in (2, FAR)
        if operation == "PipelineForward" and request.target_shard == FAR:
            return {"request_id": request.request_id, "success": True, "is_final": True,
                    "logits": bytes(8), "logits_shape": [1, 1, 2]}  # fmt: skip
        return "NOT_FOUND" if other else answer

    toy.node.grpc_hook = hook
    assert standings(judge(ABSENT, **NOTHING))[ABSENT] is Standing.VIOLATED


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL"])
def test_the_first_layer_of_the_model_is_not_found_where_it_is_not(
    code: str, toy: Serving, judge: Judge
) -> None:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        fits = operation == "PipelineForward" and request.target_shard == 0
        return code if fits else answer

    toy.node.grpc_hook = hook
    assert standings(judge(ABSENT, **NOTHING))[ABSENT] is Standing.VIOLATED


def test_hidden_states_keep_their_shape(toy: Serving, judge: Judge) -> None:
    toy.node.http_hook = first_half
    ids = ("PL-FWD-004", "PL-FWD-005", "PL-FWD-009")
    toy.node.grpc_hook = middle
    run = judge(*ids, **NOTHING)
    assert {standings(run)[ident] for ident in ids} == {Standing.PROVED}
    toy.node.grpc_hook = lambda *call: middle(*call, hidden_shape=[2, 1, 8])
    assert failed(judge(*ids, **NOTHING)) == {"PL-FWD-009"}
    toy.node.grpc_hook = lambda *call: middle(
        *call, is_final=True, logits=bytes(8), logits_shape=[2]
    )
    assert failed(judge(*ids, **NOTHING)) == {"PL-FWD-005"}


def test_a_size_may_be_named_by_the_node_in_several_ways(toy: Serving, judge: Judge) -> None:
    def sized(words: str, info: bytes = b"") -> None:
        def hook(operation: str, request: Any, answer: Any) -> Any:
            if operation == "GetShardInfo" and info:
                return info
            if operation == "PipelineForward" and list(request.hidden_shape) != SHAPE:
                told = {"request_id": request.request_id}
                return {**told, "success": False, "error_message": words}
            return answer

        toy.node.grpc_hook = hook

    toy.node.http_hook = on("/api/v1/network", put("architecture.hidden_dim", "large"))
    for words, info in (("the hidden size is 8", b""), ("expected 64 bytes", b""), ("no", INFO)):
        sized(words, info)
        assert standings(judge("PL-FWD-004", **NOTHING))["PL-FWD-004"] is Standing.PROVED, words
    sized("no")
    run = judge("PL-FWD-004", **NOTHING)
    assert standings(run)["PL-FWD-004"] is Standing.NOT_EXERCISED
    assert "none of" in reasons(run)["PL-FWD-004"]


@pytest.mark.parametrize(
    "code", ["NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"]
)
def test_a_node_that_takes_no_try_is_not_blamed(code: str, toy: Serving, judge: Judge) -> None:
    toy.node.grpc_hook = grpc_status("PipelineForward", code)
    run = judge(*JUDGED, ABSENT, **NOTHING)
    assert failed(run) == set()
    assert standings(run)["PL-FWD-004"] is Standing.NOT_EXERCISED
    assert "the target declares no pipeline, and " in reasons(run)[ABSENT]
    sent = [item for item in run.exchanges if item.request.get("operation") == "PipelineForward"]
    assert len(sent) < 200


def test_a_node_whose_numbers_are_of_parts_is_not_blamed(toy: Serving, judge: Judge) -> None:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        other = operation == "PipelineForward" and request.target_shard != 0
        return "NOT_FOUND" if other else answer

    toy.node.grpc_hook = hook
    run = judge(*JUDGED, ABSENT, **NOTHING)
    assert failed(run) == set()
    assert standings(run)["PL-FWD-005"] is Standing.PROVED


def test_an_older_edition_looks_for_nothing(judge: Judge) -> None:
    run = judge("PL-FWD-004", edition=2, **NOTHING)
    assert reasons(run)["PL-FWD-004"] == "the target declares no pipeline"


def test_forms_are_what_they_are_called() -> None:
    shape = [1, 2, 3]
    raw = struct.pack("<6f", *values_for(shape))
    assert encode("float32", shape) == raw
    assert all(len(encode(form, shape)) == 6 * width for form, width in WIDTHS.items())
    assert encode("safetensors", shape).endswith(raw)
    size = struct.unpack("<Q", encode("safetensors", shape)[:8])[0]
    head = json.loads(encode("safetensors", shape)[8 : 8 + size])
    assert head["hidden_states"]["data_offsets"] == [0, len(raw)]
    assert (encode("npy", shape).index(b"\n") + 1) % 64 == 0
    assert json.loads(encode("text of JSON", [1, 1, 2])) == [[[-0.375, -0.25]]]
    assert {form for form in FORMS if not is_framed(encode(form, shape))} == {
        *WIDTHS, "text of base64",
    }  # fmt: skip


def weights(table: dict[str, Any], default: Any = "NOT_FOUND") -> Callable[..., Any]:
    """Answer GetWeights from a table of ranges."""

    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation != "GetWeights":
            return answer
        found = table.get(request.shard_range, default)
        return {"weights_data": found} if isinstance(found, bytes) else found

    return hook


@pytest.mark.parametrize(
    ("table", "default", "expected"),
    [
        ({"2": b"two", "3": b"three"}, "NOT_FOUND", Standing.PROVED),
        ({"2-2": b"two", "3-3": b"three"}, "NOT_FOUND", Standing.PROVED),
        ({"2": b"two", "3": b"three"}, "INTERNAL", Standing.VIOLATED),
        ({"2": b"two", "3": b"three"}, "INVALID_ARGUMENT", Standing.VIOLATED),
        ({"2": b"two", "3": b"three"}, b"all", Standing.VIOLATED),
        # Whatever is asked for, the same weights: no notation of a range is known.
        ({}, b"all", Standing.NOT_EXERCISED),
        ({}, "INVALID_ARGUMENT", Standing.NOT_EXERCISED),
        # A node may have weights of layers that it does not serve, and call 1000000 a bad request.
        ({"2": b"two", "3": b"three", "0": b"zero"}, "INVALID_ARGUMENT", Standing.NOT_EXERCISED),
    ],
)
def test_weights_of_an_absent_layer_are_not_found(
    table: dict[str, Any], default: Any, expected: Standing, toy: Serving, judge: Judge
) -> None:
    toy.node.grpc_hook = weights(table, default)
    assert standings(judge("GR-WEIGHT-002"))["GR-WEIGHT-002"] is expected
