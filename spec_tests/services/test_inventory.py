"""A folder with something missing does not start, and one that was killed does (decision 0140)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.datadir import write_private
from meshnode.domain.checksums import dump_checked
from meshnode.domain.errors import StartupError
from meshnode.services import inventory
from meshnode.services.inventory import (
    INVENTORY_FILE,
    TRACKED,
    InventoryKeeper,
    accept_folder,
    known_files,
    require_whole,
    serve_inventory,
)
from meshnode.services.keystore import KEY_FILE, Keystore, load_or_create_token
from meshnode.services.ledger.signed import SIGNED_FILE, SIGNED_FORMAT
from meshnode.services.ledger.validator_key import load_or_create_validator_key
from meshnode.services.signer.journal import JOURNAL_FILE, Journal

CONTENTS = {SIGNED_FILE: dump_checked({"format": SIGNED_FORMAT, "chains": {}})}
"""Files that a start reads at once, if they are there."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a node that has run."""
    folder = tmp_path / "node"
    folder.mkdir()
    Keystore(folder).account("ab12")
    load_or_create_token(folder)
    load_or_create_validator_key(folder)
    Journal(folder, "chain")
    for name in TRACKED:
        if not (folder / name).exists():
            write_private(folder / name, CONTENTS.get(name, b"{}"))
    assert InventoryKeeper(folder).look()
    require_whole(folder)
    return folder


@pytest.mark.parametrize("name", [*TRACKED, "accounts/ab12.json"])
def test_each_file_is_missed_until_its_loss_is_accepted(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(StartupError) as caught:
        require_whole(folder)
    assert f"{name} was here and is missing" in str(caught.value)
    assert "meshnode doctor --accept" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not InventoryKeeper(folder).look() or name in (known_files(folder) or {})
    assert accept_folder(folder) == (f"{name} is no longer expected",)
    require_whole(folder)
    assert accept_folder(folder) == ()


@pytest.mark.parametrize("name", [INVENTORY_FILE, "operator.token", "settings.json", "peers.json"])
def test_files_that_are_made_anew_are_not_missed(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    require_whole(folder)


def test_another_key_is_noticed_and_a_sealed_one_is_the_same(folder: Path, tmp_path: Path) -> None:
    Keystore(folder, "passphrase", cost=2)
    require_whole(folder)
    Keystore(tmp_path)
    shutil.copy(tmp_path / KEY_FILE, folder / KEY_FILE)
    with pytest.raises(StartupError, match=r"key\.json is not the one that was here"):
        require_whole(folder)
    assert accept_folder(folder) == ("key.json is another one than before",)
    require_whole(folder)


@pytest.mark.parametrize(
    "name", ["key.json", "validator.json", "operator.token", "accounts/ab12.json"]
)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_secrets_that_others_can_open_are_refused(folder: Path, name: str, mode: int) -> None:
    (folder / name).chmod(mode)
    with pytest.raises(StartupError, match=rf"mode {mode:04o}\): run chmod 600 {folder / name}"):
        require_whole(folder)
    assert accept_folder(folder) == (f"{name} had mode {mode:04o} and has 0600",)
    require_whole(folder)


@pytest.mark.parametrize("damage", [b"", b"{}", bytes(100), b"[" * 100_000])
def test_a_damaged_inventory_is_refused_and_can_be_made_anew(folder: Path, damage: bytes) -> None:
    (folder / INVENTORY_FILE).write_bytes(damage)
    with pytest.raises(StartupError, match=r"is damaged; .* meshnode doctor --accept"):
        require_whole(folder)
    assert not InventoryKeeper(folder).look()
    assert (folder / INVENTORY_FILE).read_bytes() == damage
    accept_folder(folder)
    require_whole(folder)


@pytest.mark.parametrize("name", [SIGNED_FILE, JOURNAL_FILE, "validator.json"])
def test_damage_is_found_before_anything_is_served(folder: Path, name: str) -> None:
    (folder / name).write_bytes(bytes((folder / name).stat().st_size))
    with pytest.raises(StartupError, match=rf"{name} is damaged; restore it"):
        require_whole(folder)


def test_a_kill_between_any_two_files_leaves_a_folder_that_starts(folder: Path) -> None:
    """Files are made before they are listed, so a kill can leave the latest ones unlisted."""
    files = json.loads((folder / INVENTORY_FILE).read_text())["files"]
    for count in range(len(files) + 1):
        inventory.write_inventory(folder, dict(list(files.items())[:count]))
        require_whole(folder)


async def test_new_files_are_listed_while_the_node_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = trio.Event(), inventory.write_inventory

    def write_and_tell(*arguments: Any) -> None:
        write(*arguments)
        trio.from_thread.run_sync(written.set)

    monkeypatch.setattr(inventory, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(inventory, "write_inventory", write_and_tell)
    keys = Keystore(folder)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_inventory, folder)
        keys.account("cd34")
        await written.wait()
        assert "accounts/cd34.json" in (known_files(folder) or {})
        keys.account("ef56")
        nursery.cancel_scope.cancel()
    assert "accounts/ef56.json" in (known_files(folder) or {})


def test_a_look_at_what_is_listed_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "write_private", None)
    assert InventoryKeeper(folder).look()


def test_a_full_disk_does_not_end_the_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    keeper = InventoryKeeper(folder)
    Keystore(folder).account("cd34")
    monkeypatch.setattr(inventory, "write_private", refuse)
    assert not keeper.look()
    assert not keeper.look()
    assert len(caplog.records) == 1
    monkeypatch.undo()
    assert keeper.look()
