"""`sut`: recipes, and the toy as a program that is started, judged and stopped."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import cli
from conformance.sut import recipes
from conformance.sut.running import install, started
from conformance.target import BadConfiguration, make_target

pytestmark = pytest.mark.usefixtures("elsewhere")
TOY = recipes()["toy"]


def test_every_recipe_makes_a_target_and_names_exact_versions() -> None:
    for recipe in recipes().values():
        target = make_target({**recipe.target, "url": "http://127.0.0.1:1", "token": "t"})
        assert target.token == "t"
        assert recipe.about
        assert recipe.version in ("itself", *(
            word.rpartition("==")[2] for call in recipe.install for word in call))  # fmt: skip
        assert any("{token}" in word for word in (*recipe.start, *recipe.environment.values()))


def test_known_implementations_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sut"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(recipes())
    assert cli.main(["sut", "no-such-node"]) == 4


def test_the_toy_is_started_judged_published_and_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sut", "toy", "--profile", "training", "--quiet", "--publish", str(tmp_path / "table")]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert "exit 0: conforms" in said.out
    (path,) = (tmp_path / "table").glob("*/*/*.json")
    result = json.loads(path.read_text())
    assert result["implementation"]["version"] == "1.0"
    assert result["allow"] == ["intrusive", "mutate", "spend"]


def test_one_that_ends_or_stays_silent_is_said_with_its_log() -> None:
    ends = replace(TOY, start=(sys.executable, "-c", "print('no licence'); raise SystemExit(3)"))
    with (
        pytest.raises(BadConfiguration, match=r"(?s)toy ended with 3:.*no licence"),
        started(ends, Path(sys.executable), None),
    ):
        pass
    silent = replace(TOY, start=(sys.executable, "-c", "import time; time.sleep(99)"), ready_s=0.5)
    with (
        pytest.raises(BadConfiguration, match=r"does not answer after 0\.5 s"),
        started(silent, Path(sys.executable), None),
    ):
        pass


def test_a_checkout_is_asked_for_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sut", "meshnode", "--source", str(tmp_path)]) == 4
    assert "is no checkout" in capsys.readouterr().err


def test_what_needs_no_installation_runs_in_this_interpreter(tmp_path: Path) -> None:
    assert install(TOY, tmp_path, None) == Path(sys.executable)
    assert list(tmp_path.iterdir()) == []
