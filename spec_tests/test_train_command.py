"""``meshnode train``: a folder of text in, a model directory out, resumable."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from meshnode.domain.errors import StartupError
from meshnode.model import run as training_run
from meshnode.model.data import TokenData, shards_of
from meshnode.model.loading import load_model
from spec_tests.model.small_models import TEXT, make_model
from spec_tests.processes import changes, forking
from spec_tests.processes.calls import NODE
from spec_tests.processes.nodes import READY_WITHIN_S, environment, run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    for index in range(3):
        (folder / f"{index}.txt").write_text(TEXT * 12, "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


def train(text: Path, out: Path, model: Path, steps: int, *more: str) -> dict[str, Any]:
    ended = run(
        *("train", "--text", str(text), "--out", str(out), "--from", str(model)),
        *("--steps", str(steps), "--learning-rate", "0.002", "--batch-size", "4", *more),
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout[ended.stdout.index("{") :])
    return found


def test_training_lowers_the_loss_and_writes_a_model(
    text: Path, tmp_path: Path, model: Path
) -> None:
    metrics = train(text, tmp_path / "out", model, 30)
    assert metrics["steps"] == 30
    assert metrics["held_out_loss"] < metrics["held_out_loss_before"] - 0.5
    trained = load_model(tmp_path / "out")
    assert trained.card.complete
    # The run is complete, so the same command has nothing left to do.
    again = train(text, tmp_path / "out", model, 30)
    assert again["held_out_loss"] == metrics["held_out_loss"]


@pytest.mark.slow
def test_other_settings_do_not_go_on_with_a_run(text: Path, tmp_path: Path, model: Path) -> None:
    train(text, tmp_path / "out", model, 2)
    ended = run(
        *("train", "--text", str(text), "--out", str(tmp_path / "out"), "--steps", "3"),
        *("--from", str(model)),
    )
    assert ended.returncode == 2
    named = ended.stderr.split("was made with other settings: ")[1].strip()
    assert named == (
        "steps was 2, is now 3; batch_size was 4, is now 8; learning_rate was 0.002, is now 0.0001"
    )


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    missing, out = tmp_path / "txet", tmp_path / "out"
    ended = run("train", "--text", str(missing), "--steps", "1", "--out", str(out))
    assert (ended.returncode, ended.stderr) == (
        2,
        f"meshnode: --text: there is no folder {missing}\n",
    )
    assert not out.exists()


def test_a_damaged_checkpoint_is_reported(text: Path, tmp_path: Path, model: Path) -> None:
    out = tmp_path / "out"
    train(text, out, model, 2)
    (out / "checkpoint.safetensors").write_bytes(b"rubbish")
    ended = run(
        *("train", "--text", str(text), "--out", str(out), "--from", str(model)),
        *("--steps", "2", "--learning-rate", "0.002", "--batch-size", "4"),
    )
    assert ended.returncode == 2
    assert "damaged" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("out", "options", "line"),
    [
        ("file/out", ("--steps", "2"), "cannot use the folder"),
        ("out", ("--steps", "5", "--learning-rate", "1e30"), "lower --learning-rate"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    text: Path, tmp_path: Path, model: Path, out: str, options: tuple[str, ...], line: str
) -> None:
    (tmp_path / "file").write_text("")
    ended = run(
        *("train", "--text", str(text), "--from", str(model), "--out", str(tmp_path / out)),
        *("--batch-size", "4", *options),
    )
    assert ended.returncode == 2
    assert line in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("content", [None, "too short"])
def test_a_folder_without_enough_text_is_refused(
    tmp_path: Path, model: Path, content: str | None
) -> None:
    if content:
        (tmp_path / "a.txt").write_text(content)
    loaded = load_model(model)
    with pytest.raises(StartupError, match="shorter than two sequences"):
        TokenData.of_folder(tmp_path, loaded.tokenizer, 65, 0)


def test_shards_are_shared_out_whole_and_once() -> None:
    nodes = ["c", "a", "b"]
    shares = [shards_of(node, nodes, 16) for node in nodes]
    assert sorted(shard for share in shares for shard in share) == list(range(16))
    assert shards_of("only", [], 16) == tuple(range(16))
    crowd = [f"{n:02}" for n in range(20)]
    assert {shard for node in crowd for shard in shards_of(node, crowd, 16)} == set(range(16))


def test_batches_cover_their_shards_and_say_which() -> None:
    data = TokenData.of_sequences([[n] * 5 for n in range(40)], [[0] * 5])
    batches = data.batches((1, 3), 4, seed=7)
    seen: set[int] = set()
    shards: set[int] = set()
    for _ in range(2):
        shuffled = next(batches)
        seen |= set(shuffled.batch.inputs[:, 0].tolist())
        shards |= shuffled.shards
    assert shards == {1, 3}
    assert seen == {n for n in range(40) if n % 16 in (1, 3)}
    again = data.batches((1, 3), 4, seed=7)
    assert torch.equal(next(again).batch.inputs, next(data.batches((1, 3), 4, seed=7)).batch.inputs)


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Fake:
        class trainer:  # noqa: N801 - stands in for an attribute
            step_count = 100

        steps, seconds, loss = 200, 10.0, 1.5

    training_run.show_progress(Fake())  # type: ignore[arg-type]
    assert "step 100/200" in capsys.readouterr().err
    Fake.trainer.step_count = 101
    training_run.show_progress(Fake())  # type: ignore[arg-type]
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_where_it_was(
    text: Path, tmp_path: Path, model: Path
) -> None:
    whole, out = train(text, tmp_path / "whole", model, 12), tmp_path / "out"
    arguments = (
        *("train", "--text", str(text), "--out", str(out), "--from", str(model)),
        *("--steps", "12", "--learning-rate", "0.002", "--batch-size", "4"),
    )
    for number, at in ((signal.SIGINT, 3), (signal.SIGKILL, 6), (signal.SIGTERM, 9)):
        # A kill loses what follows the last checkpoint, so this run makes one at each step.
        every = 0.0 if number == signal.SIGKILL else 1e9
        wait = partial(changes.stop_after_step, step=at, checkpoint_every_s=every)
        with forking.start([wait, NODE], arguments, environment()) as process:
            said = "".join(iter(process.stdout.readline, "waiting\n"))
            process.send_signal(number)
            said += process.stdout.read()
            process.wait(READY_WITHIN_S)
        with safe_open(out / "checkpoint.safetensors", "pt") as checkpoint:
            done = int(checkpoint.get_tensor("trainer.step"))
        if number == signal.SIGKILL:
            assert (process.returncode, done) == (-number, at)
        else:
            assert (process.returncode, done) == (128 + number, at + 1)
            assert f"stopped after step {done} of 12; the same command goes on" in said
        assert ("going on after step" in said) is (at > 3)
        assert "Traceback" not in said
    metrics = train(text, out, model, 12)
    assert metrics["held_out_loss"] == whole["held_out_loss"]
    # The weights equal those of a run without interruptions to the bit.
    same = [load_file(folder / "model.safetensors") for folder in (out, tmp_path / "whole")]
    assert same[0].keys() == same[1].keys()
    assert all(torch.equal(same[0][name], same[1][name]) for name in same[0])
