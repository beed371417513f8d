"""``meshnode train``: a folder of text in, a model directory out, resumable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support_model import TEXT, make_model
from support_process import run

from meshnode.domain.errors import StartupError
from meshnode.model import run as training_run
from meshnode.model.data import TokenData, shards_of
from meshnode.model.loading import load_model


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


def train(text: Path, out: Path, model: Path, steps: int, *more: str) -> dict:
    ended = run(
        *("train", "--text", str(text), "--out", str(out), "--from", str(model)),
        *("--steps", str(steps), "--learning-rate", "0.002", "--batch-size", "4", *more),
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout[ended.stdout.index("{") :])


def test_training_lowers_the_loss_and_writes_a_model(
    text: Path, tmp_path: Path, model: Path
) -> None:
    metrics = train(text, tmp_path / "out", model, 30)
    assert metrics["steps"] == 30
    assert metrics["held_out_loss"] < metrics["held_out_loss_before"] - 0.5
    trained = load_model(tmp_path / "out")
    assert trained.card.complete
    # The run is over: the same command again has nothing left to do.
    again = train(text, tmp_path / "out", model, 30)
    assert again["held_out_loss"] == metrics["held_out_loss"]


def test_other_settings_do_not_go_on_with_a_run(text: Path, tmp_path: Path, model: Path) -> None:
    train(text, tmp_path / "out", model, 2)
    ended = run(
        *("train", "--text", str(text), "--out", str(tmp_path / "out"), "--steps", "3"),
        *("--from", str(model)),
    )
    assert ended.returncode == 2
    assert "other settings" in ended.stderr


def test_a_damaged_checkpoint_is_said(text: Path, tmp_path: Path, model: Path) -> None:
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


@pytest.mark.parametrize("content", [None, "too short"])
def test_a_folder_without_text_is_said(tmp_path: Path, model: Path, content: str | None) -> None:
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
    seen, shards = set(), set()
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
