"""The command line reports a bad argument by its name before it does anything else."""

import os
from pathlib import Path

import pytest

from meshnode.cli import main
from meshnode.domain.identity import key_from_seed
from meshnode.domain.keyfile import plain_key_file
from meshnode.services.tokens import TokenStore
from spec_tests.ports import free_port

WORKER = ("worker", "--gateway", "http://127.0.0.1:1", "--stage", "0")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf", "36501", "soon"])
def test_a_token_lives_for_some_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str
) -> None:
    said = refused(
        capsys, "token", "issue", "--name", "alice", f"--days={days}", "--data-dir", str(tmp_path)
    )
    assert "--days" in said
    assert TokenStore(tmp_path).list() == []


@pytest.mark.parametrize("tasks", ["-1", "1.5", "all"])
def test_a_worker_does_a_number_of_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tasks: str
) -> None:
    said = refused(capsys, *WORKER, f"--tasks={tasks}", "--data-dir", str(tmp_path))
    assert "--tasks" in said
    assert list(tmp_path.iterdir()) == []


def test_a_worker_refuses_to_fetch_its_model_from_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "a worker cannot fetch a model from the network"
    assert refusal in refused(capsys, *WORKER, "--model", "network", "--data-dir", str(tmp_path))
    monkeypatch.setenv("MESHNODE_MODEL", "network")
    assert refusal in refused(capsys, *WORKER, "--data-dir", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "action",
    [("issue", "--name", "alice", "--fund", "1"), ("list",), ("revoke", "x"), ("sweep", "x")],
)
def test_a_token_is_of_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        folder = tmp_path / name
        said = refused(capsys, "token", *action, "--data-dir", str(folder))
        assert f"there is no node in {folder}" in said
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["empty"]


def test_a_worker_asks_the_gateway_of_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_bytes(plain_key_file(key_from_seed("0" * 64)))
    monkeypatch.setenv("MESHNODE_GATEWAY", f"http://127.0.0.1:{free_port()}/api/v1")
    with pytest.raises(SystemExit) as ended:
        main(
            ("worker", "--stage", "0", "--key", str(tmp_path / "key"), "--data-dir", str(tmp_path))
        )
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert os.environ["MESHNODE_GATEWAY"].removeprefix("http://").removesuffix("/api/v1") in said


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("account", "--port", "8001"), "of 'meshnode account'; choose the node to ask with"),
        (("--port", "8001", "account"), "--port is an option of the node, not of"),
        (("transfer", "02", "1", "--host", "x"), "choose the node to ask with --gateway URL"),
        ((*WORKER, "--layers", "1"), "--layers is an option of the node, not of 'meshnode worker'"),
        (("token", "list", "--port", "1"), "it works on the node's folder, --data-dir DIR"),
        (
            ("train", "--text", "x", "--steps", "1", "--out", "y", "--model", "z"),
            "--model is an option of the node, not of 'meshnode train'; "
            "the model to start from is --from DIR",
        ),
    ],
)
def test_an_option_of_the_node_is_refused_where_it_would_be_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    assert line in refused(capsys, *arguments, "--data-dir", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["account", "token issue", "train", "worker", "key new"])
def test_help_shows_what_a_command_takes(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--data-dir" in shown
    assert ("--model" in shown) is (command == "worker")
    assert "'network'" not in shown
    assert not {"--port", "--host", "--layers", "--tracker", "--log-format"} & set(shown.split())
