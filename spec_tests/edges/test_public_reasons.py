"""Disk errors that clients can read name the file but not the folder that it is in."""

from pathlib import Path

import pytest
import trio

from meshnode.assembly.chain import _public_reason
from meshnode.model.config import ModelUnreadable
from meshnode.services.ledger import signed
from spec_tests.edges.http_server import wait_until
from spec_tests.edges.native_gateway import start_gateway

FOLDER = "unlikely-folder-name"


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


def test_a_model_that_cannot_be_read_is_shown_without_its_folder(tmp_path: Path) -> None:
    for error, shown in (
        (ModelUnreadable(f"{tmp_path}/a.safetensors: no such file"), "its files cannot be read"),
        (ModelUnreadable("the model's context is too short"), "the model's context is too short"),
    ):
        assert _public_reason(error) == shown
