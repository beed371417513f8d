"""The command as a user sees it: exit codes, files, probes, and the README."""

import json
import subprocess
import sys
import threading
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from conformance import cli
from conformance.catalogue import load
from conformance.judging.hooks import on, put
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.node import TOKEN
from conformance.judging.toy.serving import Serving
from conformance.suite import checks
from conformance.tests.command import run
from conformance.verdict import EXIT_CODES, Exit

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_the_exit_codes_are_the_designed_ones() -> None:
    assert {reason.name: code for reason, code in EXIT_CODES.items()} == {
        "CONFORMS": 0, "VIOLATED": 1, "INTERRUPTED": 2, "SUITE_FAULT": 3, "CONFIGURATION": 4,
        "NOTHING_PROVED": 5, "INCONCLUSIVE": 6, "STALE_BASELINE": 7, "TOO_LITTLE": 8,
    }  # fmt: skip


def test_a_url_is_enough(toy: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(toy) == 0
    out = capsys.readouterr().out
    assert "profiles: dht, grpc, native-api, node-api, pipeline, training" in out
    assert out.rstrip().endswith("exit 0: conforms")


def test_a_violation_ends_with_1_and_says_which_sentence(
    toy: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    assert run(toy) == 1
    out = capsys.readouterr().out
    assert "MUST VIOLATED  NA-STATUS-014  section 2.1" in out
    assert 'peer_count is "many", not int' in out
    assert f"curl -sS -i -N {toy.url}/api/v1/status" in out


def test_an_interrupt_ends_with_2_and_a_report(
    toy: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The report names the file of a check, which stays that of the one that is replaced.
    @wraps(checks()["shape-layers"].function)
    def interrupted(context: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(checks()["shape-layers"].__dict__, "function", interrupted)
    assert run(toy, "--token", TOKEN, "--out", str(tmp_path / "out")) == 2
    built = json.loads((tmp_path / "out" / "report.json").read_text())
    assert built["conclusion"] == {"exit": 2, "reason": "interrupted", "lacks": []}
    assert built["counts"]["standing"]["proved"] > 10


def test_a_check_that_breaks_down_ends_with_3(
    toy: Serving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @wraps(checks()["shape-health"].function)
    def broken(context: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(checks()["shape-health"].__dict__, "function", broken)
    assert run(toy) == 3
    assert "The check shape-health broke down" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "localhost:8000"],
        ["run", "ftp://localhost"],
        ["run", "http://127.0.0.1:1", "NO-SUCH-ID"],
        ["run", "http://127.0.0.1:1", "--allow", "everything"],
        ["run", "http://127.0.0.1:1", "--profile", "all"],
        ["run", "http://127.0.0.1:1", "--budget", "much"],
        ["run", "http://127.0.0.1:1", "--config", "missing.toml"],
        ["run", "http://127.0.0.1:1", "--token", "two\nlines"],
        # Nobody listens there, so there is nothing to judge.
        ["run", "http://127.0.0.1:1"],
        ["explain", "NO-SUCH-ID"],
        ["report", "missing"],
        ["frobnicate"],
    ],
    ids=lambda arguments: "-".join(arguments[:4]).replace("\n", ""),
)
def test_what_makes_no_sense_ends_with_4(arguments: list[str]) -> None:
    try:
        code = cli.main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 4


@pytest.mark.parametrize(
    "content",
    ["[target", "[other]", "[target]\nbudget = 'much'", "[target]\ncolour = 1", "target = 7"],
)
def test_a_bad_file_ends_with_4(content: str, tmp_path: Path, toy: Serving) -> None:
    (tmp_path / "conformance.toml").write_text(content)
    assert run(toy) == 4


def test_nothing_proved_ends_with_5(toy: Serving) -> None:
    assert run(toy, "--profile", "node-api", "NA-SSE-001") == 5


def test_a_time_out_ends_with_6(toy: Serving) -> None:
    def slow(asked: Asked, response: Response) -> None:
        response.delay_s = 0.4 if asked.path == "/api/v1/metrics" else 0

    toy.node.http_hook = slow
    assert run(toy, "--profile", "node-api", "--timeout", "0.2") == 6


def test_the_file_declares_the_target_and_flags_win(
    toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conformance.toml").write_text(
        f'[target]\nurl = "{toy.url}"\nprofiles = ["training"]\nexamples = 2\n'
    )
    assert cli.main(["run"]) == 0
    assert "profiles: training " in capsys.readouterr().out
    assert cli.main(["run", "NA-HEALTH-001", "--profile", "node-api"]) == 0
    assert "profiles: node-api " in capsys.readouterr().out


def test_probe_proposes_a_file_that_works(
    toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["probe", toy.url]) == 0
    (tmp_path / "conformance.toml").write_text(capsys.readouterr().out)
    assert cli.main(["run", "NA-HEALTH-001"]) == 0


def test_list_and_explain_say_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(load())
    assert cli.main(["list", "--profile", "dht", "--level", "MUST"]) == 0
    assert "DH-009" in capsys.readouterr().out
    assert cli.main(["explain", *load()]) == 0


@pytest.mark.slow
def test_python_m_and_the_pytest_plugin_are_the_same_engine(toy: Serving, tmp_path: Path) -> None:
    home = Path(cli.__file__).parent.parent
    version = subprocess.run(
        [sys.executable, "-m", "conformance", "--version"],
        cwd=home, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert version.stdout.strip()
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--node-url", toy.url,
         "--node-examples", "2", "--node-out", str(tmp_path), "-q", "-p", "no:cacheprovider"],
        cwd=home, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
    assert "NA-STATUS-014" in done.stdout
    assert "1 failed" in done.stdout
    assert json.loads((tmp_path / "report.json").read_text())["conclusion"]["exit"] == 1


def test_the_names_of_the_exits_are_texts() -> None:
    assert Exit.CONFORMS.value == "conforms"


def test_the_example_of_the_readme_fails_usefully(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (Path(cli.__file__).parent / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    code = code.replace('HTTPServer(("127.0.0.1", 8000), Node).serve_forever()', "")
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the README's own code
    names["Node"].log_message = lambda *words: None
    with names["HTTPServer"](("127.0.0.1", 0), names["Node"]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            assert cli.main(["run", url, "--profile", "node-api"]) == 1
        finally:
            server.shutdown()
            thread.join()
    out = capsys.readouterr().out
    assert 'healthy is "yes", not bool' in out
    assert "checks.network is missing" in out
    assert "GET /status without a bearer header returns the node status." in out


def test_checks_that_read_run_together_and_find_the_same(toy: Serving, tmp_path: Path) -> None:
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    found = []
    for number in ("1", "4"):
        out = tmp_path / number
        assert run(toy, "--token", TOKEN, "--out", str(out), "-n", number) == 1
        built = json.loads((out / "report.json").read_text())
        found.append({item["id"]: item["standing"] for item in built["requirements"]})
    assert found[0] == found[1]
