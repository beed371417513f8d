"""The results of judging the suite: gaps, the runs that prove each MUST, and JUDGE.md."""

from pathlib import Path

import pytest

from conformance.catalogue import load
from conformance.judging import matrix
from conformance.judging.acceptance import NOT_SHOWN, Accepted, gaps, never_proved, proved_in
from conformance.judging.hooks import on, put
from conformance.judging.rows import Judged, Rows
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge

# A MUST on which none of the runs below rules.
UNSEEN, WHY = "NA-PEERS-001", "nobody has looked"
NOT_OF_CLIENTS = {
    "NT-RULE-030", "NT-RULE-040", "NT-RULE-054", "NT-RULE-061", "NT-RULE-063", "LIM-008",
    "NT-RULE-002", "NT-RULE-068", "NT-RULE-084", "NT-RULE-086", "NT-RULE-087", "NT-RULE-093",
    "GR-GOSSIP-005", "GR-GOSSIP-007", "PL-BWD-003", "GR-PIPELINE-BACKWARD-RESPONSE-01",
    "DH-030", "NA-WALLET-047", "NA-WALLET-055", "NA-WALLET-059",
}  # fmt: skip


@pytest.fixture(autouse=True)
def excused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a reason why no run proves one of the MUSTs."""
    monkeypatch.setitem(NOT_SHOWN, UNSEEN, WHY)


def test_what_real_nodes_are_excused_from_is_what_they_never_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(NOT_SHOWN, UNSEEN)
    catalogue = load()
    clients = ("peer-", "back-")
    others = {
        ident for ident in NOT_SHOWN if not (catalogue[ident].check or "").startswith(clients)
    }
    assert others == NOT_OF_CLIENTS
    assert all(NOT_SHOWN.values())


def test_a_must_that_no_run_proves_is_a_gap_unless_a_reason_is_given(judge: Judge) -> None:
    runs = [Accepted("first", judge("NA-ROUTE-001")), Accepted("second", judge("NA-ROUTE-003"))]
    found = proved_in(runs)
    assert found["NA-STATUS-001"] == ["first"]
    assert found["NA-HEALTH-001"] == ["second"]
    assert found["GEN-010"] == ["first", "second"]
    missing = never_proved(runs)
    assert "NA-STATUS-001" not in missing
    assert missing["NA-METRICS-001"] == ""
    assert {ident: why for ident, why in missing.items() if why} == NOT_SHOWN
    listed = gaps(runs)
    assert "NA-METRICS-001 was not proved" in listed
    assert not any(UNSEEN in line for line in listed)


def test_what_is_violated_or_left_open_is_a_gap_of_its_run(toy: Serving, judge: Judge) -> None:
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    listed = gaps([Accepted("a run", judge("NA-ROUTE-001"))])
    assert 'a run: NA-STATUS-014 violated peer_count is "many", not int' in listed


def test_the_file_has_the_figures_the_gaps_and_the_proofs(judge: Judge) -> None:
    runs = [Accepted("first", judge("NA-ROUTE-001")), Accepted("second", judge("NA-ROUTE-001"))]
    rows = [
        Judged("mutant", "it is left out", "NA-STATUS-001", "MUST", "", 0.1),
        Judged("mutant", "it is a text", "NA-STATUS-006", "MUST", "not caught: proved", 0.1),
        Judged("variant", "more fields", "", "", "", 0.1),
    ]
    text = matrix.render(rows, runs, [])
    assert "| NA-STATUS-001 | MUST | it is left out | caught |" in text
    assert "- mutant it is a text (NA-STATUS-006): not caught: proved" in text
    assert "| mutant | 2 | 1 | 1 | 0 |" in text
    assert "| more fields | not failed |" in text
    assert "| NA-STATUS-001 | 1 2 |" in text
    assert "| NA-METRICS-001 | none |" in text
    assert f"- {UNSEEN}: {WHY}" in text


def test_a_judging_goes_on_with_what_its_file_lacks_or_has_with_a_gap(tmp_path: Path) -> None:
    held = Judged("mutant", "one", "NA-PEERS-001", "MUST", "", 1.0)
    missed = Judged("variant", "one", "", "", "not caught", 1.0)
    first = Rows(tmp_path / "rows.jsonl")
    for row in (held, missed):
        first.add(row)
    again = Rows(tmp_path / "rows.jsonl")
    again.read()
    assert again.has(held.key)
    assert not again.has(missed.key)
    again.add(Judged("variant", "one", "", "", "", 1.0))
    assert [row.gap for row in again.found] == ["", ""]
    last = Rows(tmp_path / "rows.jsonl")
    last.read()
    assert last.has(missed.key)
