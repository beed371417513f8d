"""The faults of clients in the judge's table: by kind, and with a client that has none."""

from collections import Counter

from conformance.judging.client import table
from conformance.judging.client.faults import KINDS, fields, rules
from conformance.judging.derived.judge import CAUGHT, PASSED, Ended
from conformance.judging.derived.table import NodeTable, render


def test_every_fault_of_a_client_has_a_kind() -> None:
    assert {fault.kind for fault in rules()} == set(KINDS.values())
    assert {fault.kind for fault in fields()} == {
        "field of a request at another number", "field of a request of another type",
    }  # fmt: skip


def test_the_table_has_the_faults_that_were_judged_and_those_that_were_not() -> None:
    faults = [fault for fault in rules() if fault.requirement in ("CL-DHT-001", "CL-SHAPE-001")]
    made = table.tabulate(faults, within_s=0)
    assert [item.how for item in made.ended] == [CAUGHT]
    assert (made.left, made.unlike) == (len(faults) - 1, ())
    text = "\n".join(render([made]))
    assert "### the small client" in text
    assert "| client: address or id | 1 | 0 | 0 | 0 | 100.0% |" in text


def test_a_fault_that_nobody_notices_is_missed() -> None:
    ended = table.judge_one(next(rules()))
    passed = Ended(ended.fault, PASSED, (), 0.0)
    made = NodeTable(table.NAME, (passed, passed), 0, 1, ("a client without any fault",))
    assert made.by_kind() == {"client: address or id": Counter(missed=2)}
    assert len(made.gaps()) == 2
