"""The reports: no secrets, the published schema, JUnit, HTML, showing one again, comparing two."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from conformance import cli
from conformance.catalogue import load
from conformance.judging.hooks import on, put
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.node import EXPIRED, TOKEN
from conformance.judging.toy.serving import Serving
from conformance.tests.command import run

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_no_token_is_written_anywhere(
    toy: Serving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def echo(asked: Asked, response: Response) -> None:
        # A server that returns the token, in an error and in an answer.
        if response.json and asked.path.startswith("/api/v1/"):
            response.json["echo"] = f"you sent {TOKEN} or {EXPIRED}"
        if asked.path == "/api/v1/peers":
            response.json["total"] = TOKEN

    toy.node.http_hook = echo
    out = tmp_path / "out"
    allow = ["--allow", "mutate,spend,intrusive", "--budget", "9"]
    code = run(toy, "--token", TOKEN, "--expired-token", EXPIRED, "--out", str(out), *allow)
    assert code == 1
    written = {path.name: path.read_text() for path in out.iterdir()}
    assert set(written) == {
        "exchanges.jsonl", "report.json", "junit.xml", "report.html", "badge.svg", "interface.html",
    }  # fmt: skip
    captured = capfd.readouterr()
    for name, text in {**written, "out": captured.out, "err": captured.err}.items():
        assert TOKEN not in text, name
        assert EXPIRED not in text, name
    assert "$TOKEN" in written["exchanges.jsonl"]
    assert "$EXPIRED_TOKEN" in written["exchanges.jsonl"]


def test_the_report_fits_its_published_schema(toy: Serving, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema_path = Path(cli.__file__).parent / "schemas" / "report.schema.json"
    schema = json.loads(schema_path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    assert run(toy, "--token", TOKEN, "--out", str(tmp_path), "--allow", "mutate") == 1
    built = json.loads((tmp_path / "report.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(built)
    assert [item["id"] for item in built["requirements"]] == list(load())
    log = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    assert [item["number"] for item in log] == list(range(1, built["exchanges_made"] + 1))


def test_junit_has_a_case_for_each_requirement(toy: Serving, tmp_path: Path) -> None:
    toy.node.http_hook = on("/api/v1/status", put("node_id", "\x00\ufffe"))
    run(toy, "--out", str(tmp_path))
    suite = ET.fromstring((tmp_path / "junit.xml").read_text())  # noqa: S314 - our own file
    assert int(suite.get("tests", "0")) == len(load()) == len(suite.findall("testcase"))
    assert int(suite.get("failures", "-1")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("skipped", "-1")) == len(suite.findall("testcase/skipped"))


def test_html_escapes_what_came_from_the_target(toy: Serving, tmp_path: Path) -> None:
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "<script>alert(1)</script>"))
    run(toy, "--out", str(tmp_path))
    page = (tmp_path / "report.html").read_text()
    assert "alert(1)" in page
    assert "<script>alert" not in page


def test_html_tells_what_broke_a_rule_from_what_kept_it(toy: Serving, tmp_path: Path) -> None:
    toy.node.http_hook = on("/api/v1/metrics", put("timestamp", "yesterday"))
    assert run(toy, "--token", TOKEN, "--out", str(tmp_path), "--profile", "node-api") == 1
    page = (tmp_path / "report.html").read_text()
    shown = page.split('id="GEN-008"')[1].split("</details>")[0]
    broke, kept = shown.split("(here it held)")[:2]
    assert "yesterday" in broke
    assert "/api/v1/metrics" in broke
    assert "yesterday" not in kept
    proved = page.split('id="NA-STATUS-001"')[1].split("</details>")[0]
    assert "(here it held)" not in proved


def test_a_budget_that_is_used_up_is_told(
    toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spending = ["--token", TOKEN, "--out", str(tmp_path), "--allow", "spend", "--budget"]
    run(toy, *spending, "0.001")
    assert "the budget is used up" in capsys.readouterr().out
    run(toy, *spending, "20")
    assert "the budget is used up" not in capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "junit", "html", "badge"])
def test_a_report_is_shown_again(
    form: str, toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(toy, "--out", str(tmp_path)) == 0
    capsys.readouterr()
    assert cli.main(["report", str(tmp_path), "--format", form]) == 0
    shown = capsys.readouterr().out
    # A run never judges a node as a client.
    assert (toy.url if form != "badge" else " MUST, without openai, peer</text>") in shown


def test_two_reports_are_compared(
    toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    run(toy, "--out", str(old))
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    run(toy, "--out", str(new))
    capsys.readouterr()
    assert cli.main(["report", str(new), "--against", str(old)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["NA-STATUS-014", "MUST", "proved", "->", "violated"]
    assert cli.main(["report", str(old), "--against", str(old)]) == 0
    assert capsys.readouterr().out == "nothing has changed\n"
