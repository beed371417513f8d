"""Mutants that violate one sentence each.

A MUST has to be the only one that fails; a SHOULD has to be reported without any MUST failing.
"""

import json

import pytest

from conformance.judging.hooks import Grpc, Http, OnlyTheLastValue, refusing
from conformance.judging.mutants.rules import ROWS, TOGETHER
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge, Noticed
from conformance.verdict import Ruling


@pytest.mark.parametrize(
    ("ident", "http_hook", "grpc_hook"),
    ROWS,
    ids=[f"{ident}-{number}" for number, (ident, _, _) in enumerate(ROWS)],
)
def test_a_broken_sentence_is_noticed_by_the_requirement_that_says_it(
    ident: str, http_hook: Http, grpc_hook: Grpc, noticed: Noticed
) -> None:
    noticed(ident, http_hook, grpc_hook, TOGETHER.get(ident, ()))


def test_a_violation_names_the_smallest_body_and_how_to_send_it_again(
    toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = refusing(lambda body: body.get("top_k", 0) > 20)
    run = judge("NA-INF-009", examples=40)
    result = next(item for item in run.results if item.requirement.id == "NA-INF-009")
    finding = next(item for item in result.findings if item.ruling is Ruling.FAILS)
    exchange = run.exchanges[finding.exchanges[0] - 1]
    sent = exchange.request["body"]["text"]
    assert '"top_k": 21' in sent
    assert set(json.loads(sent)) == {"prompt", "max_tokens", "top_k"}
    assert "top_k" in exchange.reproduce
    assert "$TOKEN" in exchange.reproduce


def test_a_violation_in_a_sequence_shows_the_shortest_one(toy: Serving, judge: Judge) -> None:
    toy.node.grpc_hook = OnlyTheLastValue()
    run = judge("DH-015", examples=30)
    result = next(item for item in run.results if item.requirement.id == "DH-015")
    finding = next(item for item in result.findings if item.ruling is Ruling.FAILS)
    steps = [run.exchanges[number - 1].request["operation"] for number in finding.exchanges]
    # Every key is looked up after each store; the second store has replaced the first value.
    assert steps == ["DHTStore", "DHTFindValue", "DHTStore", "DHTFindValue"]
