"""Mutants that violate one sentence of the native API or of the pipeline each.

`nox -s judge` runs the same rows, and all others, against real nodes.
"""

import pytest

from conformance.catalogue import Level
from conformance.judging import hostile
from conformance.judging.table import ALSO, OF_REAL_NODES, Mutant, mutants, variants
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome


@pytest.mark.parametrize("row", OF_REAL_NODES, ids=lambda row: row.name.replace(" ", "-"))
def test_a_broken_sentence_is_noticed(row: Mutant, toy: Serving, judge: Judge) -> None:
    toy.node.http_hook, toy.node.grpc_hook = row.http, row.grpc
    run = judge(row.ident, examples=2)
    assert run.faults == {}
    result = next(item for item in run.results if item.requirement.id == row.ident)
    failed = {item.requirement.id for item in run.results if item.outcome is Outcome.FAIL}
    must = row.level is Level.MUST
    assert result.outcome is (Outcome.FAIL if must else Outcome.WARN), result
    assert failed - ALSO.get(row.name, set()) == ({row.ident} if must else set())


def test_the_tables_of_the_judge_are_long_enough() -> None:
    rows = mutants()
    assert len({row.name for row in rows}) == len(rows)
    assert sum(row.level is Level.MUST for row in rows) >= 150
    assert len(variants()) >= 50
    assert len(hostile.ROWS) >= 20
