"""Keys and the operator's token on the disk (decisions 0002, 0005 and 0083)."""

import hashlib
import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.datadir import DataDirLock, write_private
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import key_from_seed
from meshnode.services.keystore import KEY_FILE, Keystore, load_or_create_token


def test_the_published_key_of_the_zero_seed() -> None:
    key = key_from_seed("0" * 64)
    assert key.public_key == "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
    assert key.node_id == hashlib.sha1(bytes.fromhex(key.public_key)).hexdigest()
    assert len(bytes.fromhex(key.node_id)) == 20


@given(st.text(max_size=70))
def test_only_64_lowercase_hex_characters_are_a_seed(text: str) -> None:
    with pytest.raises(ValueError, match="64 lowercase"):
        key_from_seed(text.upper() + "X")


def test_a_key_never_shows_its_seed() -> None:
    key = key_from_seed("ab" * 32)
    assert "abab" not in repr(key)


def test_a_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    key = Keystore(tmp_path).node_key
    assert Keystore(tmp_path).node_key == key
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"[]", b"{}", b"\xff", b"null", b'{"seed": 5}',
        b'{"format": "meshnode-key-v1", "seed": "' + b"0" * 64 + b'", "public_key": "02"}',
    ],
)  # fmt: skip
def test_a_damaged_key_is_refused_without_showing_it(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / KEY_FILE).write_bytes(damage)
    with pytest.raises(StartupError, match="is damaged") as caught:
        Keystore(tmp_path)
    assert "000" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert (tmp_path / KEY_FILE).read_bytes() == damage


def test_a_token_is_made_once(tmp_path: Path) -> None:
    token, is_new = load_or_create_token(tmp_path)
    assert is_new
    assert load_or_create_token(tmp_path) == (token, False)


@pytest.mark.parametrize("damage", [b"", b"null", b"{", b"mn_short", b"\xff" * 46, bytes(3000)])
def test_a_damaged_token_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "operator.token").write_bytes(damage)
    with pytest.raises(StartupError, match="is damaged"):
        load_or_create_token(tmp_path)


def test_one_node_at_a_time_holds_a_data_folder(tmp_path: Path) -> None:
    lock = DataDirLock(tmp_path / "new" / "folder")
    with pytest.raises(StartupError, match="another node"):
        DataDirLock(tmp_path / "new" / "folder")
    lock.release()
    DataDirLock(tmp_path / "new" / "folder").release()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.mkdir()  # so that the replacement fails after the new file was written
    with pytest.raises(OSError, match="directory"):
        write_private(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# Accounts (decision 0083)

ALICE, BOB = "aa" * 6, "bb" * 6
CHEAP = 2


def test_every_token_has_a_key_of_its_own_made_once(tmp_path: Path) -> None:
    keys = Keystore(tmp_path)
    alice = keys.account(ALICE)
    assert alice != keys.account(BOB)
    again = Keystore(tmp_path)
    assert again.account(ALICE) == alice
    assert [one.token_id for one in again.accounts()] == [ALICE, BOB]
    signer = again.signer(alice.public_key)
    assert signer.public_key == alice.public_key
    assert again.signer(again.node_key.public_key) == again.node_key
    folder = tmp_path / "accounts"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == [f"{ALICE}.json", f"{BOB}.json"]
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_there_is_no_signer_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="there is no key"):
        Keystore(tmp_path).signer("02" + "0" * 64)


@pytest.mark.parametrize("token_id", ["", "operator", "../key", "AA", "a" * 65])
def test_only_token_ids_name_files(tmp_path: Path, token_id: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        Keystore(tmp_path).account(token_id)


def _make(folder: Path, barrier: object, found: object) -> None:
    keys = Keystore(folder)
    barrier.wait()  # type: ignore[attr-defined]
    found.put(keys.account(ALICE).public_key)  # type: ignore[attr-defined]


def test_processes_that_make_a_key_at_once_make_one(tmp_path: Path) -> None:
    Keystore(tmp_path)
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(3), context.Queue()
    makers = [context.Process(target=_make, args=(tmp_path, barrier, found)) for _ in range(3)]
    for process in makers:
        process.start()
    assert {found.get(timeout=60) for _ in makers} == {Keystore(tmp_path).account(ALICE).public_key}
    for process in makers:
        process.join(60)


def test_a_passphrase_seals_every_key_also_those_from_before(tmp_path: Path) -> None:
    plain = Keystore(tmp_path)
    alice = plain.signer(plain.account(ALICE).public_key)
    sealed = Keystore(tmp_path, "open sesame", CHEAP)
    bob = sealed.signer(sealed.account(BOB).public_key)
    assert sealed.node_key == plain.node_key
    for path in tmp_path.rglob("*.json"):
        text = path.read_text()
        assert not any(key.seed in text for key in (alice, bob, plain.node_key))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Keystore(tmp_path, "open sesame", CHEAP)
    assert again.signer(alice.public_key) == alice
    assert again.signer(bob.public_key) == bob
    salts = {json.loads(path.read_text())["sealed"]["salt"] for path in tmp_path.rglob("*.json")}
    nonces = [json.loads(path.read_text())["sealed"]["nonce"] for path in tmp_path.rglob("*.json")]
    assert len(salts) == 1
    assert len(set(nonces)) == 3


@pytest.mark.parametrize(
    ("passphrase", "line"),
    [
        ("", "is sealed: set MESHNODE_KEY_PASSPHRASE"),
        ("wrong horse", "MESHNODE_KEY_PASSPHRASE does not open the key file"),
    ],
)
def test_a_wrong_passphrase_is_one_clear_line(tmp_path: Path, passphrase: str, line: str) -> None:
    Keystore(tmp_path, "open sesame", CHEAP)
    before = (tmp_path / KEY_FILE).read_bytes()
    with pytest.raises(StartupError, match=line) as caught:
        Keystore(tmp_path, passphrase, CHEAP)
    assert "\n" not in str(caught.value)
    assert "horse" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert (tmp_path / KEY_FILE).read_bytes() == before


def test_a_sealed_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    Keystore(tmp_path, "open sesame", CHEAP)
    path = tmp_path / KEY_FILE
    document = json.loads(path.read_text())
    document["public_key"] = key_from_seed("1" * 64).public_key
    path.write_text(json.dumps(document))
    with pytest.raises(StartupError, match="does not open"):
        Keystore(tmp_path, "open sesame", CHEAP)


def test_a_damaged_account_key_is_refused_and_kept(tmp_path: Path) -> None:
    keys = Keystore(tmp_path)
    keys.account(ALICE)
    path = tmp_path / "accounts" / f"{ALICE}.json"
    path.write_text("{")
    with pytest.raises(StartupError, match="is damaged"):
        Keystore(tmp_path).account(ALICE)
    assert path.read_text() == "{"


def test_a_damaged_account_key_stops_no_other_account(tmp_path: Path) -> None:
    keys = Keystore(tmp_path)
    alice, bob = keys.account(ALICE), keys.account(BOB)
    (tmp_path / "accounts" / f"{ALICE}.json").write_text("{")
    again = Keystore(tmp_path)
    assert again.signer(bob.public_key).public_key == bob.public_key
    # For a damaged key file the error names the damage, instead of an unknown key.
    with pytest.raises(StartupError, match=f"{ALICE}.json is damaged"):
        again.signer(alice.public_key)
    with pytest.raises(StartupError, match=f"{ALICE}.json is damaged"):
        again.accounts()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_is_closed_is_one_clear_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StartupError, match="cannot write"):
        Keystore(tmp_path)
    tmp_path.chmod(0o700)
