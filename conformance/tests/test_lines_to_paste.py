"""The commands in a report, and `replay`, send exactly the recorded request again."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from conformance import cli, messages
from conformance.judging.hooks import refusing
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.node import TOKEN
from conformance.judging.toy.serving import Serving
from conformance.tests.command import run

pytestmark = pytest.mark.usefixtures("elsewhere")


def reproduced(command: str) -> str:
    """Run a command of a report in a shell, with the token in the environment."""
    done = subprocess.run(  # noqa: S602 - a shell is what the line is for
        command, shell=True, capture_output=True, text=True, timeout=120, check=True,
        env={"TOKEN": TOKEN, "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout


def has_curl() -> bool:
    """Return whether curl is installed."""
    try:
        subprocess.run(["curl", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


AT_ONCE = {
    "config-at-once", "guards-steady", "inference-at-once", "inference-counted-at-once",
    "mixed-reads", "mixed-states", "money-at-once", "generations-crossed", "guards-meanwhile",
}  # fmt: skip


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
    # What is sent at the same time arrives in any order.
    turned = [item for item in log if item["check"] not in AT_ONCE]
    # A line with several requests sends what came before on the connection, too.
    turned = [item for item in turned if " --next " not in item["reproduce"]]
    chosen = [item for item in turned if "body" in item["request"]][::4] + turned[::15]
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
    assert "not accepted" in reproduced(line.split("  ", 4)[-1])


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
        wanted, shell=True, capture_output=True, timeout=120, check=False
    )
    assert called == ["UnaryInference"]
    assert b"grpc-status: 0" in done.stderr
    answers = [
        subprocess.run(  # noqa: S602 - a shell is what the line is for
            line, shell=True, capture_output=True, timeout=120, check=False
        ).stderr
        for line in lines
        if line.endswith("/DHTFindNode")
    ]
    # One of them sends garbage.
    assert any(b"grpc-status: 3" in answer for answer in answers)


def test_a_grpcurl_line_holds_exactly_the_message_that_was_sent(
    toy: Serving, tmp_path: Path
) -> None:
    assert run(toy, "--allow", "mutate,intrusive", "--profile", "dht", "--out", str(tmp_path)) == 0
    log = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text().splitlines()]
    # Of a long message the record has the beginning.
    whole = [item for item in log if not item["request"].get("cut")]
    lines = [item for item in whole if item["reproduce"].startswith("grpcurl")]
    assert {"DHTStore", "DHTFindNode"} <= {item["request"]["operation"] for item in lines}
    for item in lines:
        words = shlex.split(item["reproduce"])
        operation = item["request"]["operation"]
        assert words[-2:] == [toy.grpc, f"node.NodeService/{operation}"]
        # grpcurl turns its -d into the same message as protobuf does.
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
        timeout=120,
        check=False,
        cwd=Path(cli.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert called == ["DHTStore"]
