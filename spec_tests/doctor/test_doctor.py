"""``meshnode doctor``: what it finds, that it changes nothing, and that it shows no secret."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import meshnode.doctor
from meshnode.cli import main
from meshnode.config import build_config
from meshnode.datadir import DataDirLock, write_private
from meshnode.doctor import clock, data_folder, files, keys, model, ports, reachability, versions
from meshnode.doctor.checks import CHECKS
from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, Level, as_json, as_table, fault, ok, worst
from meshnode.doctor.nodes import KnownNode, NodeReply
from meshnode.model.files import open_files
from meshnode.model.manifest import manifest_of
from meshnode.services.inventory import InventoryKeeper
from meshnode.services.keystore import Keystore, load_or_create_token
from meshnode.services.ledger.validator_key import load_or_create_validator_key
from meshnode.services.model_source import CACHE_FILE
from meshnode.services.signer.journal import JOURNAL_FILE, Journal
from meshnode.services.tokens import TOKENS_FILE, TokenStore
from spec_tests.model.small_models import make_model
from spec_tests.ports import free_port

TOOLS = {"checks", "examination", "findings", "nodes"}
"""Modules of the package that are not checks."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "node"
    folder.mkdir(mode=0o700)
    Keystore(folder).account("ab12")
    load_or_create_token(folder)
    load_or_create_validator_key(folder)
    TokenStore(folder).issue("alice")
    Journal(folder, "chain")
    InventoryKeeper(folder).look()
    return folder


def examination(folder: Path, **settings: str | int) -> Examination:
    return Examination(build_config({"data_dir": str(folder), "port": free_port(), **settings}))


def doctor(
    capsys: pytest.CaptureFixture[str], folder: Path, *options: str
) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Exit status and report of ``meshnode doctor --json``, with the findings by their checks."""
    port = str(free_port())
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json", "--data-dir", str(folder), "--port", port, *options])
    report = json.loads(capsys.readouterr().out)
    found: dict[str, list[dict[str, str]]] = {}
    for row in report["findings"]:
        found.setdefault(row["check"], []).append(row)
    assert report["status"] == worst([Finding(**row) for row in report["findings"]])
    assert isinstance(ended.value.code, int)
    return ended.value.code, found


def contents(folder: Path) -> dict[str, str]:
    return {
        f"{path.relative_to(folder)} {path.stat().st_mode:o}": hashlib.sha256(
            path.read_bytes() if path.is_file() else b""
        ).hexdigest()
        for path in folder.rglob("*")
    }


def test_each_check_is_listed() -> None:
    modules = {path.stem for path in Path(meshnode.doctor.__file__).parent.glob("[!_]*.py")}
    assert {check.__module__.rpartition(".")[2] for check in CHECKS} == modules - TOOLS


def test_a_folder_that_is_whole_has_no_fault_and_is_not_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)
    status, found = doctor(capsys, folder)
    assert status == 0
    assert {row["level"] for rows in found.values() for row in rows} == {"ok"}
    assert contents(folder) == before


def test_a_folder_that_is_missing_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = doctor(capsys, tmp_path / "none")
    assert status == 0
    assert list(tmp_path.iterdir()) == []


def test_damage_is_found_explained_and_accepted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token, _ = load_or_create_token(folder)
    seeds = [json.loads(path.read_text())["seed"] for path in folder.rglob("*.json") if
             '"seed"' in path.read_text()]  # fmt: skip
    assert len(seeds) == 3
    (folder / "key.json").unlink()
    (folder / "accounts/ab12.json").chmod(0o644)
    (folder / "settings.json").write_text("[" * 100_000)
    (folder / JOURNAL_FILE).write_bytes(b"")
    (folder / TOKENS_FILE).write_text((folder / TOKENS_FILE).read_text().replace("alice", "alicf"))
    (folder / "validator.json").write_text((folder / "validator.json").read_text()[:-9])
    before = contents(folder)
    status, found = doctor(capsys, folder)
    assert status == 1
    faults = [row["text"] for rows in found.values() for row in rows if row["level"] == "fault"]
    for part in (
        "nested too deeply", "key.json was here and is missing", "ab12.json may be opened",
        "wallet.journal is damaged", "tokens.json is damaged", "validator.json is damaged",
    ):  # fmt: skip
        assert any(part in text for text in faults), part
    assert contents(folder) == before
    with pytest.raises(SystemExit):
        main(["doctor", "--accept", "--data-dir", str(folder)])
    shown = capsys.readouterr().out
    assert "accepted: key.json is no longer expected" in shown
    assert "accepted: accounts/ab12.json had mode 0644 and has 0600" in shown
    assert not any(secret in shown + str(found) for secret in (*seeds, token))
    assert data_folder_levels(folder) == {Level.OK}


def data_folder_levels(folder: Path) -> set[Level]:
    return {finding.level for finding in data_folder.check(examination(folder))}


def test_nothing_is_accepted_while_a_node_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "key.json").unlink()
    before = contents(folder)
    lock = DataDirLock(folder)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--accept", "--data-dir", str(folder)])
    assert ended.value.code == 2
    assert "another node is using" in capsys.readouterr().err
    assert examination(folder).running
    lock.release()
    assert not examination(folder).running
    assert contents(folder).items() >= before.items()


def test_a_backup_is_restored_with_one_command(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "backup")
    Keystore(folder).account("cd34")
    InventoryKeeper(folder).look()
    # Only some files come back, over what is there.
    (folder / "accounts/cd34.json").unlink()
    write_private(folder / "key.json", (tmp_path / "backup/key.json").read_bytes())
    assert data_folder_levels(folder) == {Level.FAULT}
    with pytest.raises(SystemExit):
        main(["doctor", "--accept", "--data-dir", str(folder)])
    assert data_folder_levels(folder) == {Level.OK}


def test_who_has_a_port_is_named(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        if port > 64535:
            pytest.skip("this port has no gRPC port above it")
        (taken,) = ports.check(examination(folder, port=port))
        assert taken.level is Level.FAULT
        assert f"process {os.getpid()}" in taken.text
        lock = DataDirLock(folder)
        assert [one.level for one in ports.check(examination(folder, port=port))] == [Level.OK]
        lock.release()


def with_replies(folder: Path, *replies: NodeReply) -> Examination:
    one = examination(folder)
    one.__dict__["replies"] = list(replies)
    return one


TRACKER, PEER = KnownNode("10.0.0.1", 8000, tracker=True), KnownNode("::1", 8000, tracker=False)


@pytest.mark.parametrize(
    ("replies", "levels"),
    [
        ([], ["ok"]),
        ([NodeReply(TRACKER, 200)], ["ok"]),
        ([NodeReply(TRACKER, 503, "", "no gRPC")], ["fault"]),
        ([NodeReply(TRACKER, 0, "lost", "lost"), NodeReply(PEER, 503)], ["warning", "ok"]),
        ([NodeReply(PEER, 0, "lost", "lost")], ["warning"]),
    ],
)
def test_a_network_that_nobody_answers_for_is_a_fault(
    tmp_path: Path, replies: list[NodeReply], levels: list[str]
) -> None:
    found = list(reachability.check(with_replies(tmp_path, *replies)))
    assert [finding.level for finding in found] == levels


def test_a_network_of_another_model_is_noticed(tmp_path: Path) -> None:
    """By what nodes were started with: what they serve differs while training goes on."""
    directory = make_model(tmp_path / "model")
    one = examination(tmp_path, model=str(directory))
    other = NodeReply(PEER, 200, origin_hash="ab" * 32)
    one.__dict__["replies"] = [other]
    # Before the first start the model's hash is not known, and reading all weights takes too long.
    assert [finding.level for finding in model.check(one)] == [Level.OK]
    config = open_files(directory).config()
    manifest = manifest_of(open_files(directory), config, tmp_path / CACHE_FILE)
    before = contents(tmp_path)
    warned, fine = model.check(one)
    assert (warned.level, fine.level) == (Level.WARNING, Level.OK)
    assert "another model, abababab" in warned.text
    one.__dict__["replies"] = [replace(other, origin_hash=manifest.model_hash), NodeReply(PEER)]
    assert [finding.level for finding in model.check(one)] == [Level.OK]
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("offsets", "level"),
    [([], "ok"), ([0.4], "ok"), ([-20.0], "warning"), ([-3e5], "fault"), ([0.1, 0.2, 9e9], "ok")],
)
def test_the_clock_is_compared_with_the_median_of_others(
    tmp_path: Path, offsets: list[float], level: str
) -> None:
    replies = [NodeReply(PEER, 200, clock_offset_s=offset) for offset in offsets]
    (found,) = clock.check(with_replies(tmp_path, *replies))
    assert found.level == level


def test_a_clock_that_was_set_back_is_seen_without_other_nodes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 10_000)
    (found,) = clock.check(with_replies(folder))
    assert found.level is Level.FAULT


@pytest.mark.parametrize(
    ("version", "bounds", "holds"),
    [
        ("2.13.0+cpu", ">=2.11,<2.14", True),
        ("2.14", ">=2.11,<2.14", False),
        ("2.14rc1", "<2.14", False),
        ("46", ">=46", True),
        ("0.18.0", ">=0.17.3,<0.19", True),
        ("0.8.0", "==0.8.0", True),
        ("0.8", "==0.8.0", True),
        ("0.8.1", "==0.8.0", False),
        ("1.0", "", True),
    ],
)
def test_bounds_of_versions(version: str, bounds: str, holds: bool) -> None:
    assert versions.satisfies(version, bounds) is holds


def test_sealed_keys_are_opened_with_the_passphrase_only(tmp_path: Path) -> None:
    Keystore(tmp_path, "right", cost=2)
    for passphrase, level in (("", "warning"), ("wrong", "fault"), ("right", "ok")):
        one = Examination(build_config({"data_dir": str(tmp_path)}), passphrase=passphrase)
        (found,) = keys.check(one)
        assert found.level == level


def test_text_of_others_cannot_begin_a_row() -> None:
    rows = [ok("a", "well"), fault("long name", "two\nlines\x1b[2J", "do\nthis")]
    assert as_table(rows).splitlines() == [
        "ok       a          well",
        "fault    long name  two lines [2J",
        "                    -> do this",
        "1 ok, 0 warning, 1 fault",
    ]
    assert "\\u001b" not in as_json(rows)


@pytest.mark.parametrize("check", [data_folder.check, keys.check, files.check])
def test_folders_that_cannot_be_used_are_findings(
    tmp_path: Path, check: Callable[[Examination], object]
) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "none"):
        assert list(check(examination(folder))) is not None  # type: ignore[call-overload]
