"""The command as its user meets it: exit codes, files, secrets, baselines, and lines to paste."""

import json
import shlex
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from conformance import cli, messages
from conformance.catalogue import load
from conformance.registry import checks
from conformance.tests.hooks import on, put, refusing
from conformance.tests.toy import EXPIRED, TOKEN, Asked, Response
from conformance.tests.toy_serving import Serving
from conformance.verdict import EXIT_CODES, Exit

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in an empty folder, with no token in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in cli.ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)


def run(toy: Serving, *arguments: str) -> int:
    """Run the suite against the toy, with few generated inputs."""
    return cli.main(["run", toy.url, "--examples", "3", *arguments])


def test_the_exit_codes_are_the_designed_ones() -> None:
    assert {reason.name: code for reason, code in EXIT_CODES.items()} == {
        "CONFORMS": 0, "VIOLATED": 1, "INTERRUPTED": 2, "SUITE_FAULT": 3, "CONFIGURATION": 4,
        "NOTHING_PROVED": 5, "INCONCLUSIVE": 6, "STALE_BASELINE": 7,
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
    def interrupted(context: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(checks()["shape-layers"].__dict__, "run", interrupted)
    assert run(toy, "--token", TOKEN, "--out", str(tmp_path / "out")) == 2
    built = json.loads((tmp_path / "out" / "report.json").read_text())
    assert built["conclusion"] == {"exit": 2, "reason": "interrupted"}
    assert built["counts"]["standing"]["proved"] > 10


def test_a_check_that_breaks_down_ends_with_3(
    toy: Serving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(context: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(checks()["shape-health"].__dict__, "run", broken)
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


def test_no_token_is_written_anywhere(
    toy: Serving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def echo(asked: Asked, response: Response) -> None:
        # A server that hands the token back, in an error and in an answer.
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
        "exchanges.jsonl", "report.json", "junit.xml", "report.html", "badge.svg",
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
    assert run(toy, "--token", TOKEN, "--out", str(tmp_path), "--allow", "spend,mutate") == 1
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


def test_a_baseline_makes_known_failures_pass_until_they_do(
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
    assert "NA-STATUS-014: it is proved by now" in capsys.readouterr().out


def test_a_baseline_that_names_nothing_is_stale(toy: Serving, tmp_path: Path) -> None:
    known = tmp_path / "known.toml"
    known.write_text('[known]\n"NA-NOTHING-001" = "?"\n')
    assert run(toy, "--baseline", str(known)) == 7
    known.write_text("[known]\nNA = 1\n")
    assert run(toy, "--baseline", str(known)) == 4


@pytest.mark.parametrize("form", ["text", "junit", "html", "badge"])
def test_a_report_is_shown_again(
    form: str, toy: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(toy, "--out", str(tmp_path)) == 0
    capsys.readouterr()
    assert cli.main(["report", str(tmp_path), "--format", form]) == 0
    shown = capsys.readouterr().out
    assert (toy.url if form != "badge" else "MUST</text>") in shown


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


def test_list_and_explain_say_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(load())
    assert cli.main(["list", "--profile", "dht", "--level", "MUST"]) == 0
    assert "DH-009" in capsys.readouterr().out
    assert cli.main(["explain", *load()]) == 0


def reproduced(command: str) -> str:
    """Run a line of a report in a shell, with the token in the environment."""
    done = subprocess.run(  # noqa: S602 - a shell is what the line is for
        command, shell=True, capture_output=True, text=True, timeout=20, check=True,
        env={"TOKEN": TOKEN, "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout


def has_curl() -> bool:
    """Tell whether there is a curl to try the lines with."""
    try:
        subprocess.run(["curl", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@pytest.mark.skipif(not has_curl(), reason="there is no curl here")
def test_the_curl_lines_really_send_it_again(toy: Serving, tmp_path: Path) -> None:
    received: list[tuple[str, str, Any, bool]] = []

    def record(asked: Asked, response: Response) -> None:
        received.append((asked.method, asked.path, asked.body, asked.authorized))

    toy.node.http_hook = record
    run(toy, "--token", TOKEN, "--allow", "mutate,spend", "--out", str(tmp_path),
        "--profile", "node-api")  # fmt: skip
    first = list(received)
    log = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    assert len(log) <= len(first)
    chosen = [item for item in log if "body" in item["request"]][::4] + log[::15]
    received.clear()
    for item in chosen:
        reproduced(item["reproduce"])
    sent_again = received[:]
    sent_first = [first[len(first) - len(log) + item["number"] - 1] for item in chosen]
    assert sent_again == sent_first


@pytest.mark.skipif(not has_curl(), reason="there is no curl here")
def test_the_line_of_a_violation_shows_the_violation(
    toy: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.node.http_hook = refusing(lambda body: "it's" in body["prompt"] or "top_k" in body)
    assert run(toy, "NA-INF-009", "--token", TOKEN, "--allow", "spend") == 1
    line = next(text for text in capsys.readouterr().out.splitlines() if "curl" in text)
    assert "not taken" in reproduced(line.split("  ", 4)[-1])


def test_python_m_and_the_pytest_plugin_are_the_same_engine(toy: Serving, tmp_path: Path) -> None:
    home = Path(cli.__file__).parent.parent
    version = subprocess.run(
        [sys.executable, "-m", "conformance", "--version"],
        cwd=home, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert version.stdout.strip()
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--node-url", toy.url,
         "--node-examples", "2", "--node-out", str(tmp_path), "-q", "-p", "no:cacheprovider"],
        cwd=home, capture_output=True, text=True, timeout=60, check=False,
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
    assert "GET /status without a bearer header is answered with the node status." in out


def test_replay_sends_an_exchange_again(
    toy: Serving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(toy, "--token", TOKEN, "--allow", "spend", "--out", str(tmp_path))
    log = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    spent = next(item for item in log if "--data-raw" in (r := item["reproduce"]) and "$TOKEN" in r)
    called = next(item for item in log if item["kind"] == "grpc")
    numbers = [str(item["number"]) for item in (spent, called)]
    received: list[Asked] = []
    toy.node.http_hook = lambda asked, response: received.append(asked)
    assert cli.main(["replay", str(tmp_path), numbers[0]]) == 4
    assert received == []
    monkeypatch.setenv("CONFORMANCE_TOKEN", TOKEN)
    capsys.readouterr()
    assert cli.main(["replay", str(tmp_path), *numbers]) == 0
    assert [asked.body for asked in received] == [json.loads(spent["request"]["body"]["text"])]
    assert received[0].authorized
    out = capsys.readouterr().out
    assert out.count("    then  ") == out.count("    now   ") == 2
    assert TOKEN not in out
    assert cli.main(["replay", str(tmp_path), "99999"]) == 4


@pytest.mark.skipif(not has_curl(), reason="there is no curl here")
def test_the_curl_lines_for_grpc_really_call_again(toy: Serving, tmp_path: Path) -> None:
    assert run(toy, "--allow", "intrusive", "--profile", "grpc", "--out", str(tmp_path)) == 0
    log = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    lines = [item["reproduce"] for item in log if item["reproduce"].startswith("printf")]
    called: list[str] = []

    def record(operation: str, request: Any, answer: Any) -> Any:
        called.append(operation)
        return answer

    toy.node.grpc_hook = record
    wanted = next(line for line in lines if line.endswith("/UnaryInference"))
    done = subprocess.run(  # noqa: S602 - a shell is what the line is for
        wanted, shell=True, capture_output=True, timeout=20, check=False
    )
    assert called == ["UnaryInference"]
    assert b"grpc-status: 0" in done.stderr
    garbage = next(line for line in lines if line.endswith("/DHTFindNode"))
    done = subprocess.run(  # noqa: S602 - a shell is what the line is for
        garbage, shell=True, capture_output=True, timeout=20, check=False
    )
    assert b"grpc-status: 3" in done.stderr


def test_a_grpcurl_line_holds_exactly_the_message_that_was_sent(
    toy: Serving, tmp_path: Path
) -> None:
    assert run(toy, "--allow", "mutate,intrusive", "--profile", "dht", "--out", str(tmp_path)) == 0
    log = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    lines = [item for item in log if item["reproduce"].startswith("grpcurl")]
    assert {"DHTStore", "DHTFindNode"} <= {item["request"]["operation"] for item in lines}
    for item in lines:
        words = shlex.split(item["reproduce"])
        operation = item["request"]["operation"]
        assert words[-2:] == [toy.grpc, f"node.NodeService/{operation}"]
        # What grpcurl makes of its -d is what protobuf makes of the same JSON.
        message = messages.MESSAGES[messages.OPERATIONS[operation][0]]()
        json_format.Parse(words[words.index("-d") + 1], message)
        assert message.SerializeToString().hex() == item["request"]["hex"]


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="there is no grpcurl here")
def test_the_grpcurl_lines_really_call_again(toy: Serving, tmp_path: Path) -> None:
    assert run(toy, "--allow", "mutate", "--profile", "dht", "--out", str(tmp_path)) == 0
    log = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    line = next(item["reproduce"] for item in log if item["request"]["operation"] == "DHTStore")
    called: list[str] = []

    def record(operation: str, request: Any, answer: Any) -> Any:
        called.append(operation)
        return answer

    toy.node.grpc_hook = record
    done = subprocess.run(  # noqa: S602 - a shell is what the line is for
        line,
        shell=True,
        capture_output=True,
        timeout=20,
        check=False,
        cwd=Path(cli.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert called == ["DHTStore"]


def test_checks_that_read_run_together_and_find_the_same(toy: Serving, tmp_path: Path) -> None:
    toy.node.http_hook = on("/api/v1/status", put("peer_count", "many"))
    found = []
    for number in ("1", "4"):
        out = tmp_path / number
        assert run(toy, "--token", TOKEN, "--out", str(out), "-n", number) == 1
        built = json.loads((out / "report.json").read_text())
        found.append({item["id"]: item["standing"] for item in built["requirements"]})
    assert found[0] == found[1]
