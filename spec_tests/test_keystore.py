"""The node's key and the operator's token on the disk (decisions/0002 and 0005)."""

import hashlib
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.datadir import DataDirLock, write_private
from meshnode.domain.errors import StartupError
from meshnode.domain.identity import key_from_seed
from meshnode.services.keystore import KEY_FILE, load_or_create_key, load_or_create_token


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
    key = load_or_create_key(tmp_path)
    assert load_or_create_key(tmp_path) == key
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
        load_or_create_key(tmp_path)
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
