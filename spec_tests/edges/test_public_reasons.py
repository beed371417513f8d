"""Disk errors that clients can read name the file but not the folder that it is in."""

import json
from pathlib import Path

import pytest
import trio

from meshnode.domain.errors import StartupError, public_reason
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.data import TokenData
from meshnode.model.documents import ModelUnreadable
from meshnode.model.tokenizer import Tokenizer
from meshnode.services.ledger import signed
from meshnode.services.training.disk import TrainingDisk
from spec_tests.edges.http_server import wait_until
from spec_tests.edges.native_gateway import start_gateway
from spec_tests.model.small_models import byte_level_backend

FOLDER = "unlikely-folder-name"
ROUND = {
    "format": "meshnode-training-v1",
    "origin": "ab" * 32,
    "version": 3,
    "model_hash": "cd" * 32,
    "round_id": 4,
    "contributed": None,
    "losses": [],
}


@pytest.mark.slow
@pytest.mark.wire
async def test_a_full_disk_is_shown_without_its_folder(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    data = tmp_path / FOLDER
    data.mkdir()
    gateway = await start_gateway(nursery, data)
    monkeypatch.setattr(signed, "write_private", full)
    await wait_until(lambda: gateway.ledger.trouble)
    assert FOLDER not in str((await gateway.ask("GET", "/healthz")).json)
    # /api/network repeats this word for word.
    assert gateway.ledger.trouble.endswith(".json cannot be written: No space left on device")
    assert FOLDER not in gateway.ledger.trouble


def test_reasons_name_no_folder(tmp_path: Path) -> None:
    errors: tuple[tuple[Exception, str], ...] = (
        (ModelUnreadable(f"{tmp_path}/a.safetensors: no such file"), "its files cannot be read"),
        (ModelUnreadable("the model's context is too short"), "the model's context is too short"),
        (StartupError("a/b.txt: not a readable text"), "a/b.txt: not a readable text"),
        (OSError(28, "No space left", f"{tmp_path}/round.json"), "round.json: No space left"),
        (OSError(28, "No space left"), "No space left"),
    )
    for error, shown in errors:
        assert public_reason(error) == shown


@pytest.mark.parametrize("content", [b"too short", b"\xff"])
def test_a_training_text_that_cannot_be_used_is_named_without_its_folder(
    tmp_path: Path, content: bytes
) -> None:
    text = tmp_path / FOLDER / "text"
    text.mkdir(parents=True)
    (text / "a.txt").write_bytes(content)
    with pytest.raises(StartupError) as caught:
        TokenData.of_folder(text, Tokenizer(byte_level_backend()), 65, 0)
    assert FOLDER not in str(caught.value)
    assert "text" in str(caught.value)


@pytest.mark.parametrize("content", [{}, ROUND, {**ROUND, "origin": "ef" * 32}])
def test_a_damaged_training_folder_is_refused_without_its_path(
    tmp_path: Path, content: dict[str, object]
) -> None:
    disk = TrainingDisk(tmp_path / FOLDER, WeightsVersion(0, "ab" * 32))
    (tmp_path / FOLDER / "round.json").write_text(json.dumps(content))
    with pytest.raises(StartupError) as caught:
        disk.anchor(disk.load().persisted.kept, {})
    assert FOLDER not in str(caught.value)
    assert "move the training folder" in str(caught.value)
