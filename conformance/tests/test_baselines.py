"""Baselines: known failures pass, and an entry that no longer fails is stale."""

from pathlib import Path

import pytest

from conformance import cli
from conformance.judging.hooks import on, put
from conformance.judging.toy.serving import Serving
from conformance.tests.command import run

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_known_failures_are_accepted_until_they_are_mended(
    toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = on("/api/v1/status", put("peer_count", "many"))
    toy.node.http_hook = hook
    out, known = tmp_path / "out", tmp_path / "known.toml"
    assert run(toy, "--out", str(out)) == 1
    capsys.readouterr()
    assert cli.main(["baseline", str(out)]) == 0
    known.write_text(capsys.readouterr().out)
    assert run(toy, "--baseline", str(known)) == 0
    toy.node.http_hook = lambda asked, response: None
    assert run(toy, "--baseline", str(known)) == 7
    assert "NA-STATUS-014: it is now proved" in capsys.readouterr().out


def test_a_baseline_that_names_nothing_is_stale(toy: Serving, tmp_path: Path) -> None:
    known = tmp_path / "known.toml"
    known.write_text('[known]\n"NA-NOTHING-001" = "?"\n')
    assert run(toy, "--baseline", str(known)) == 7
    known.write_text("[known]\nNA = 1\n")
    assert run(toy, "--baseline", str(known)) == 4
