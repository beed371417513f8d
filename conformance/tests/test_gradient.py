"""A gradient from the operator: how its file is read, sent, judged and recorded."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance import cli, messages
from conformance.catalogue import Effect
from conformance.ended import Result, Run
from conformance.judging.hooks import grpc_answer, grpc_status
from conformance.judging.toy.node import GRADIENT
from conformance.judging.toy.serving import Serving
from conformance.messagefile import MAX_MESSAGE_BYTES, BadFile, MessageFile, read_message
from conformance.target import BadConfiguration, make_target, read_file
from conformance.tests.command import run
from conformance.tests.conftest import Judge
from conformance.tests.test_lines_to_paste import has_curl
from conformance.verdict import Exit, Standing

pytestmark = pytest.mark.usefixtures("elsewhere")

ACCEPTED = "GR-GOSSIP-GRADIENT-RESPONSE-01"
NAME = "GossipGradientRequest"
CHECK = "gossip-accepted"


def result(ended: Run, ident: str = ACCEPTED) -> Result:
    """Return the result of one requirement."""
    return next(item for item in ended.results if item.requirement.id == ident)


def sent_by_the_check(ended: Run) -> list[dict[str, Any]]:
    """Return the requests that the check has made."""
    return [item.request for item in ended.exchanges if item.check == CHECK]


@pytest.fixture
def handed(tmp_path: Path) -> Path:
    """Return a file with a gradient that the toy accepts."""
    path = tmp_path / "it's a gradient.bin"
    path.write_bytes(GRADIENT)
    return path


# -- the file and the option --------------------------------------------------------------------


def test_a_file_is_read_byte_by_byte(handed: Path) -> None:
    assert read_message(str(handed), NAME) == MessageFile(str(handed), GRADIENT)
    assert GRADIENT.hex() not in repr(read_message(str(handed), NAME))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_MESSAGE_BYTES + 1)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "No such file"),
    "a folder": (lambda path: path.mkdir(), "directory"),
    "empty": (lambda path: path.write_bytes(b""), "none of its fields"),
    "garbage": (lambda path: path.write_bytes(b"\x0a\xff"), f"not a {NAME}"),
    "cut off": (lambda path: path.write_bytes(GRADIENT[:-1]), f"not a {NAME}"),
    "nothing documented": (lambda path: path.write_bytes(b"\x78\x01"), "none of its fields"),
    "too large": (_sparse, "larger than the maximum"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_and_ends_with_4(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, complaint = BAD[kind]
    path = tmp_path / "gradient"
    make(path)
    with pytest.raises(BadFile, match=complaint):
        read_message(str(path), NAME)
    # Nobody listens there: the option is refused before anything is sent.
    assert cli.main(["run", "http://127.0.0.1:1", "--gradient", str(path)]) == 4
    shown = capsys.readouterr().err
    assert shown.startswith(f"meshnode-conformance: gradient: {path}: ")
    assert complaint in shown
    assert "Traceback" not in shown


def test_the_key_of_the_file_is_a_path_from_where_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handed: Path
) -> None:
    table = f'[target]\nurl = "http://127.0.0.1:1"\ngradient = {json.dumps(handed.name)}\n'
    (tmp_path / "conformance.toml").write_text(table)
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(away)
    gradient = make_target(read_file(tmp_path / "conformance.toml")).gradient
    assert gradient is not None
    assert gradient.content == GRADIENT
    (tmp_path / "conformance.toml").write_text('[target]\nurl = "http://a"\ngradient = 7\n')
    with pytest.raises(BadConfiguration, match="wrong type"):
        make_target(read_file(tmp_path / "conformance.toml"))


# -- what it shows ------------------------------------------------------------------------------


def test_an_accepted_gradient_proves_the_field(judge: Judge, toy: Serving) -> None:
    received: list[bytes] = []

    def record(operation: str, request: Any, answer: Any) -> Any:
        if operation == "GossipGradient" and request.signature:
            received.append(request.SerializeToString(deterministic=True))
        return answer

    toy.node.grpc_hook = record
    ended = judge(ACCEPTED, allow=frozenset({Effect.MUTATE}))
    assert result(ended).standing is Standing.PROVED
    assert received == [GRADIENT]
    assert ended.ended() is Exit.CONFORMS


def test_without_a_gradient_it_is_not_exercised_and_the_reason_names_the_option(
    judge: Judge,
) -> None:
    ended = judge(ACCEPTED, gradient=None)
    assert result(ended).standing is Standing.NOT_EXERCISED
    assert result(ended).reason == "the target declares no gradient (--gradient FILE)"
    assert sent_by_the_check(ended) == []


def test_it_is_not_sent_without_permission(judge: Judge) -> None:
    ended = judge(ACCEPTED, allow=frozenset({Effect.SPEND, Effect.INTRUSIVE}))
    assert result(ended).standing is Standing.NOT_EXERCISED
    assert result(ended).reason == "needs --allow mutate"
    assert sent_by_the_check(ended) == []


REFUSALS = {
    "in an answer": grpc_answer("GossipGradient", accepted=False, reason="the round is over"),
    "by a status": grpc_status("GossipGradient", "INVALID_ARGUMENT"),
    "for a while": grpc_status("GossipGradient", "RESOURCE_EXHAUSTED"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_gradient_that_is_refused_is_never_held_against_the_node(
    kind: str, judge: Judge, toy: Serving
) -> None:
    toy.node.grpc_hook = REFUSALS[kind]
    ended = judge(ACCEPTED)
    assert result(ended).standing is Standing.NOT_EXERCISED
    assert "the declared gradient was" in result(ended).reason
    assert ended.faults == {}
    open_or_failed = {Standing.VIOLATED, Standing.INCONCLUSIVE}
    assert not [item for item in ended.results if item.standing in open_or_failed]


def test_the_reason_of_the_node_is_in_the_report(judge: Judge, toy: Serving) -> None:
    toy.node.grpc_hook = REFUSALS["in an answer"]
    shown = 'the declared gradient was not accepted: "the round is over"'
    assert result(judge(ACCEPTED)).reason == shown


def test_a_refusal_without_a_reason_breaks_its_own_sentence_alone(
    judge: Judge, toy: Serving
) -> None:
    toy.node.grpc_hook = grpc_answer("GossipGradient", accepted=False, reason="")
    ended = judge(ACCEPTED, allow=frozenset({Effect.MUTATE}))
    assert result(ended, "GR-GOSSIP-001").standing is Standing.VIOLATED
    assert result(ended).standing is Standing.NOT_EXERCISED


def test_accepted_under_another_type_is_a_violation(judge: Judge, toy: Serving) -> None:
    text = b"\x0a\x04true"
    toy.node.grpc_hook = lambda called, request, answer: (
        text if called == "GossipGradient" and request.signature else answer
    )
    ended = judge(ACCEPTED)
    assert result(ended).standing is Standing.VIOLATED
    assert "wire type" in result(ended).reason


# -- the record, and sending it again -----------------------------------------------


def recorded(toy: Serving, handed: Path, out: Path) -> dict[str, Any]:
    """Run the suite with the file and return the record of its exchange."""
    words = ("--gradient", str(handed), "--allow", "mutate", "--profile", "grpc", "--out", str(out))
    assert run(toy, *words) == 0
    log = [json.loads(line) for line in (out / "exchanges.jsonl").read_text().splitlines()]
    found: dict[str, Any] = next(item for item in log if item["check"] == CHECK)
    return found


def test_the_content_is_in_no_report(toy: Serving, handed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    record = recorded(toy, handed, out)
    assert record["request"]["bytes"] == len(GRADIENT)
    assert record["request"]["sha256"] == MessageFile("", GRADIENT).sha256
    written = "".join(path.read_text() for path in out.iterdir())
    assert GRADIENT.hex() not in written
    assert GRADIENT[:16].hex() not in written
    assert "signed by a peer" not in written


def test_replay_sends_the_file_again_while_it_is_the_same(
    toy: Serving, handed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    number = str(recorded(toy, handed, out)["number"])
    received: list[bytes] = []

    def record(operation: str, request: Any, answer: Any) -> Any:
        received.append(request.SerializeToString(deterministic=True))
        return answer

    toy.node.grpc_hook = record
    assert cli.main(["replay", str(out), number]) == 0
    assert received == [GRADIENT]
    message = messages.parse(NAME, GRADIENT)
    message.round_id += 1
    handed.write_bytes(message.SerializeToString())
    capsys.readouterr()
    assert cli.main(["replay", str(out), number]) == 4
    assert "its SHA-256 differs" in capsys.readouterr().err
    handed.unlink()
    assert cli.main(["replay", str(out), number]) == 4
    assert received == [GRADIENT]


@pytest.mark.skipif(not has_curl(), reason="there is no curl here")
def test_the_line_of_the_report_really_sends_the_file(
    toy: Serving, handed: Path, tmp_path: Path
) -> None:
    line = recorded(toy, handed, tmp_path / "out")["reproduce"]
    received: list[bytes] = []

    def record(operation: str, request: Any, answer: Any) -> Any:
        received.append(request.SerializeToString(deterministic=True))
        return answer

    toy.node.grpc_hook = record
    done = subprocess.run(  # noqa: S602 - a shell is what the line is for
        line, shell=True, capture_output=True, timeout=120, check=False
    )
    assert received == [GRADIENT], done.stderr
    assert b"grpc-status: 0" in done.stderr
