"""Key files: their two forms, what is refused, and that the seed goes nowhere else."""

import base64
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode import cli
from meshnode.client.errors import Misused
from meshnode.client.keys import PASSPHRASE_VARIABLE, load_consensus_key
from meshnode.domain.account_address import address_of
from meshnode.domain.identity import key_from_seed
from meshnode.domain.keyfile import (
    KeyFileDamaged,
    KeyFileError,
    PassphraseNeeded,
    WrongPassphrase,
    key_file_names,
    plain_key_file,
    read_key_file,
    sealed_key_file,
)
from spec_tests.client.gateway import run_client
from spec_tests.processes.nodes import command, environment

ZERO = key_from_seed("0" * 64)
SALT, NONCE = bytes(16), bytes(12)
CHEAP = 2


def sealed() -> bytes:
    return sealed_key_file(ZERO, "secret", SALT, NONCE, cost=CHEAP)


def test_the_plain_file_is_the_public_networks_backup() -> None:
    data = plain_key_file(ZERO, "neuroshard-key-v1")
    assert json.loads(data) == {
        "format": "neuroshard-key-v1",
        "seed": "0" * 64,
        "public_key": "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161",
    }
    assert read_key_file(data) == ZERO


def test_a_sealed_file_opens_with_its_passphrase_only() -> None:
    data = sealed()
    assert ZERO.seed.encode() not in data
    assert key_file_names(data) == ("meshnode-key-v1", ZERO.public_key, True)
    assert read_key_file(data, "secret") == ZERO
    with pytest.raises(PassphraseNeeded):
        read_key_file(data)
    with pytest.raises(WrongPassphrase):
        read_key_file(data, "Secret")


def test_a_change_to_the_unencrypted_fields_is_noticed() -> None:
    changed = sealed().replace(b"meshnode-key-v1", b"meshnode-key-v2")
    with pytest.raises(WrongPassphrase):
        read_key_file(changed, "secret")


@pytest.mark.parametrize("cost", [2**21, 3, 1, 0, -2, True, "2"])
def test_a_file_does_not_choose_how_much_work_it_takes(cost: Any) -> None:
    value = json.loads(sealed())
    value["sealed"]["n"] = cost
    with pytest.raises(KeyFileDamaged):
        read_key_file(json.dumps(value).encode(), "secret")


@pytest.mark.parametrize(
    "change",
    [
        {"public_key": key_from_seed("1" * 64).public_key},
        {"seed": "0" * 63},
        {"seed": None},
        {"format": "Key File"},
        {"more": 1},
    ],
)
def test_parts_that_do_not_belong_together_are_refused(change: Any) -> None:
    value = json.loads(plain_key_file(ZERO)) | change
    with pytest.raises(KeyFileDamaged) as caught:
        read_key_file(json.dumps(value).encode())
    assert "0000" not in str(caught.value)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_key_or_refused(data: bytes) -> None:
    with pytest.raises(KeyFileError):
        read_key_file(data, "x")


def test_new_makes_a_private_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_client(tmp_path, "key", "new") == 0
    path = tmp_path / "client" / "key.json"
    first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run_client(tmp_path, "key", "new") == 2
    assert path.read_bytes() == first
    shown = capsys.readouterr()
    key = read_key_file(first)
    assert key.public_key in shown.out
    assert f"address {address_of(key.public_key)} " in shown.out
    assert key.seed not in shown.out + shown.err


def test_the_seed_is_shown_when_it_is_asked_for_by_name_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_client(tmp_path, "key", "new")
    seed = read_key_file((tmp_path / "client" / "key.json").read_bytes()).seed
    for arguments in (["show"], ["show", "--json"], ["export", str(tmp_path / "copy.json")]):
        assert run_client(tmp_path, "key", *arguments) == 0
    shown = capsys.readouterr()
    assert seed not in shown.out + shown.err
    assert run_client(tmp_path, "key", "show", "--secret") == 0
    assert seed in capsys.readouterr().out


def test_a_wrong_setting_is_reported_in_the_format_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHNODE_PORT", "many")
    with pytest.raises(SystemExit) as ended:
        cli.main(["key", "show", "--json"])
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert json.loads(shown.out) == {"error": "MESHNODE_PORT: must be an integer", "status": 2}
    assert shown.err == "meshnode: MESHNODE_PORT: must be an integer\n"


def test_a_passphrase_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "a long one")
    assert run_client(tmp_path, "key", "new", "--passphrase") == 0
    path = tmp_path / "client" / "key.json"
    assert b"seed" not in path.read_bytes()
    assert run_client(tmp_path, "key", "show", "--secret") == 0
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "a wrong one")
    assert run_client(tmp_path, "key", "show", "--secret") == 2
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    # The public key is not a secret and needs no passphrase.
    assert run_client(tmp_path, "key", "show") == 0
    assert "a long one" not in "".join(capsys.readouterr())


def test_backups_of_other_networks_and_bare_seeds_are_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "backup.json").write_bytes(plain_key_file(ZERO, "neuroshard-key-v1"))
    (tmp_path / "account.key").write_text("0" * 64)
    for source in ("backup.json", "account.key"):
        target = tmp_path / f"of-{source}"
        arguments = ["import", str(tmp_path / source), "--key", str(target)]
        assert run_client(tmp_path, "key", *arguments) == 0
        assert read_key_file(target.read_bytes()) == ZERO
    copy = tmp_path / "copy.json"
    arguments = ["--key", str(target), "--format", "neuroshard-key-v1"]
    assert run_client(tmp_path, "key", "export", str(copy), *arguments) == 0
    assert copy.read_bytes() == plain_key_file(ZERO, "neuroshard-key-v1")
    assert "0" * 64 not in "".join(capsys.readouterr())


def test_cometbfts_consensus_key_file(tmp_path: Path) -> None:
    path = tmp_path / "priv_validator_key.json"
    seed, public = bytes(32), "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    both = base64.b64encode(seed + bytes.fromhex(public)).decode()
    path.write_text(json.dumps({"priv_key": {"value": both}}))
    assert load_consensus_key(path).public_key().public_bytes_raw().hex() == public
    for text in ("{}", "[]", "not json", json.dumps({"priv_key": {"value": both[:-8]}})):
        path.write_text(text)
        with pytest.raises(Misused):
            load_consensus_key(path)


@pytest.mark.process
def test_a_reader_that_has_gone_does_not_change_the_outcome(tmp_path: Path) -> None:
    """A command succeeds even if its reader has closed the pipe, as ``| head -1`` does."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            command("key", "new", "--data-dir", str(tmp_path / "deep" / "data")),
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")
    for folder in ("deep", "deep/data", "deep/data/client"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep/data/client/key.json").stat().st_mode) == 0o600
