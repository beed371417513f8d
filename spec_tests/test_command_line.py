"""The command line's own checks: a bad argument is told by its name, before anything is done."""

from pathlib import Path

import pytest

from meshnode.cli import main
from meshnode.services.tokens import TokenStore

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
