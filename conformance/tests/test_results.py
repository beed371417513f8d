"""The table of implementations: its files are true to their editions, and its page to its files."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance import cli, results
from conformance.editions import CURRENT, DRAFT
from conformance.judging.hooks import on, put
from conformance.judging.toy.node import TOKEN
from conformance.judging.toy.serving import Serving
from conformance.results import page
from conformance.results.__main__ import main
from conformance.tests.command import run

OF = results.Implementation("a-node", "1.2", "by hand")


def test_every_published_file_is_valid() -> None:
    assert results.files()
    assert {str(path): list(results.faults(path)) for path in results.files()} == {
        str(path): [] for path in results.files()
    }


def test_the_page_is_made_of_the_files() -> None:
    assert main(["--check"]) == 0
    shown = page.render()
    for path in results.files():
        assert json.loads(path.read_text())["implementation"]["version"] in shown


def test_links_of_the_page_lead_to_sentences_of_the_interface() -> None:
    document = (results.HOME.parents[1] / "docs" / "interface.md").read_text(encoding="utf-8")
    linked = {part.partition(")")[0] for part in page.render().split("interface.md#")[1:]}
    assert [ident for ident in linked if f'<a id="{ident}"></a>' not in document] == []


@pytest.fixture
def report(toy: Serving, tmp_path: Path, elsewhere: None) -> dict[str, Any]:
    """Return the report of a run that violates one MUST."""
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    out = tmp_path / "out"
    assert run(toy, "--token", TOKEN, "--out", str(out), "--profile", "node-api") == 1
    built: dict[str, Any] = json.loads((out / "report.json").read_text())
    return built


def test_a_report_is_published(
    report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table"
    words = ["report", str(tmp_path / "out"), "--publish", str(table)]
    assert cli.main(words) == 4
    assert "--publish needs --name" in capsys.readouterr().err
    assert cli.main([*words, "--name", "A Node", "--version", "1", "--how", "x"]) == 4
    assert cli.main([*words, "--name", "a-node", "--version", "1.2", "--how", "by hand"]) == 0
    (path,) = results.files(table)
    assert path == table / "a-node" / f"edition-{CURRENT}" / "node-api.json"
    assert list(results.faults(path, table)) == []
    found = json.loads(path.read_text())
    assert found["reasons"] == {"NA-STATUS-014": 'peer_count is "many", not int'}
    assert results.counts(found)["violated"] == 1
    shown = page.render(table)
    assert "**1 violated**" in shown
    assert "interface.md#NA-STATUS-014" in shown


def test_notes_are_kept_while_they_are_about_a_violation(
    report: dict[str, Any], tmp_path: Path
) -> None:
    (path,) = results.publish(report, OF, tmp_path / "table")
    noted = json.loads(path.read_text())
    noted["notes"] = {"NA-STATUS-014": "Known.", "NA-STATUS-013": "Mended."}
    path.write_text(json.dumps(noted))
    results.publish(report, OF, tmp_path / "table")
    assert json.loads(path.read_text())["notes"] == {"NA-STATUS-014": "Known."}
    assert "Known." in page.render(tmp_path / "table")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"profile": "dht"}, "belongs to"),
        ({"profile": "all"}, "no profile"),
        ({"edition": 99}, "has not been released"),
        ({"draft": True}, "has been released"),
        ({"allow": ["everything"]}, "an effect that there is not"),
        ({"reasons": {}}, "reasons or notes"),
        ({"notes": {"NA-STATUS-001": "No."}}, "reasons or notes"),
        ({"requirements": {"NA-STATUS-001": "proved"}}, "lacks"),
        ({"implementation": {"name": "a"}}, "implementation needs"),
        ({"more": 1}, "exactly the members"),
        ({"took_s": "long"}, "took_s has the wrong type"),
    ],
)
def test_a_wrong_file_is_refused(
    change: dict[str, Any], complaint: str, report: dict[str, Any], tmp_path: Path
) -> None:
    (path,) = results.publish(report, OF, tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert any(complaint in why for why in results.faults(path, tmp_path))


def test_a_draft_may_lack_what_came_later(report: dict[str, Any], tmp_path: Path) -> None:
    report["target"]["edition"] = DRAFT
    (path,) = results.publish(report, OF, tmp_path)
    result = json.loads(path.read_text())
    assert result["draft"]
    ident = next(i for i, standing in result["requirements"].items() if standing == "proved")
    del result["requirements"][ident]
    path.write_text(json.dumps(result))
    assert list(results.faults(path, tmp_path)) == []


def test_a_partial_or_broken_run_is_not_published(report: dict[str, Any], tmp_path: Path) -> None:
    broken = {**report, "faults": [{"check": "x", "trace": "y"}]}
    with pytest.raises(results.BadResult, match="broke down"):
        results.publish(broken, OF, tmp_path)
    for item in report["requirements"][:1]:
        item["reason"] = "not selected"
    with pytest.raises(results.BadResult, match="only some requirements"):
        results.publish(report, OF, tmp_path)
