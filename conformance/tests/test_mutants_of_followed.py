"""Mutants of effects that are followed through, each named by its requirement."""

import pytest

from conformance.catalogue import Level, load
from conformance.judging.hooks import Grpc, Http
from conformance.judging.mutants.followed import TOY_ROWS as ROWS
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome


@pytest.mark.parametrize(
    ("ident", "http_hook", "grpc_hook"),
    ROWS,
    ids=[f"{ident}-{number}" for number, (ident, _, _) in enumerate(ROWS)],
)
def test_a_broken_sentence_is_noticed_by_the_requirement_that_says_it(
    ident: str, http_hook: Http, grpc_hook: Grpc, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook, toy.node.grpc_hook = http_hook, grpc_hook
    run = judge(ident, examples=10)
    assert run.faults == {}
    result = next(item for item in run.results if item.requirement.id == ident)
    failed = {item.requirement.id for item in run.results if item.outcome is Outcome.FAIL}
    must = load()[ident].level is Level.MUST
    assert result.outcome is (Outcome.FAIL if must else Outcome.WARN), result
    assert failed == ({ident} if must else set())
