"""More mutants: queries, lists, and requirements that follow by good sense."""

import pytest

from conformance.judging.hooks import Grpc, Http
from conformance.judging.mutants.rules import TOGETHER
from conformance.judging.mutants.sense import ROWS
from conformance.tests.conftest import Noticed


@pytest.mark.parametrize(
    ("ident", "http_hook", "grpc_hook"),
    ROWS,
    ids=[f"{ident}-{number}" for number, (ident, _, _) in enumerate(ROWS)],
)
def test_a_broken_sentence_is_noticed_by_the_requirement_that_says_it(
    ident: str, http_hook: Http, grpc_hook: Grpc, noticed: Noticed
) -> None:
    noticed(ident, http_hook, grpc_hook, TOGETHER.get(ident, ()))
