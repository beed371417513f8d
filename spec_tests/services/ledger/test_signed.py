"""A validator whose ledger was set back signs no height twice (decision 0071)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from meshnode.domain.errors import StartupError
from meshnode.services.ledger import signed
from meshnode.services.ledger.database import LEDGER_FILE, StorageRefused
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.signed import SIGNED_FILE
from spec_tests.domain.chain.net import FakeModel
from spec_tests.services.ledger.ledgers import (
    GENESIS,
    KEY,
    LedgerSource,
    running_ledger,
    send,
    until,
)

SECOND = 1_000_000_000
BEGIN = 1_800_000_000 * SECOND


def keeper(folder: Path) -> Keeper:
    return Keeper(folder, GENESIS, FakeModel(), KEY)


def grown(folder: Path, blocks: int) -> None:
    one = keeper(folder)
    for _ in range(blocks):
        one.make_block(BEGIN)
    one.close()


def signed_height(folder: Path) -> int:
    (chain,) = json.loads((folder / SIGNED_FILE).read_bytes())["chains"].values()
    return int(chain["height"])


def test_an_older_ledger_is_refused(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    shutil.copy(tmp_path / LEDGER_FILE, tmp_path / "older")
    grown(tmp_path, 2)
    shutil.copy(tmp_path / LEDGER_FILE, tmp_path / "newer")
    assert signed_height(tmp_path) == 4
    assert (tmp_path / SIGNED_FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / "older").replace(tmp_path / LEDGER_FILE)
    with pytest.raises(StartupError, match="ends at block 2 without the block 4"):
        keeper(tmp_path)
    assert signed_height(tmp_path) == 4
    (tmp_path / "newer").replace(tmp_path / LEDGER_FILE)
    grown(tmp_path, 1)
    assert signed_height(tmp_path) == 5


def test_a_ledger_that_grew_differently_is_refused(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    shutil.copy(tmp_path / LEDGER_FILE, tmp_path / "older")
    # Block 3 is the same in both ledgers, because the time of its votes appears only in block 4.
    grown(tmp_path, 2)
    (tmp_path / "older").replace(tmp_path / LEDGER_FILE)
    note = (tmp_path / SIGNED_FILE).read_bytes()
    (tmp_path / SIGNED_FILE).unlink()
    one = keeper(tmp_path)
    for _ in range(3):
        one.make_block(BEGIN + SECOND)
    one.close()
    (tmp_path / SIGNED_FILE).write_bytes(note)
    with pytest.raises(StartupError, match="ends at block 5 without the block 4"):
        keeper(tmp_path)


def test_a_kill_before_the_note_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after a block's commit but before its note: the next start notes it and goes on."""
    grown(tmp_path, 1)

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    one = keeper(tmp_path)
    monkeypatch.setattr(signed, "write_private", die)
    with pytest.raises(Killed):
        one.make_block(BEGIN)
    one.close()
    assert signed_height(tmp_path) == 1
    monkeypatch.undo()
    again = keeper(tmp_path)
    assert again.opened.latest is not None
    assert again.opened.latest.height == signed_height(tmp_path) == 2
    again.close()


def test_a_full_disk_holds_the_block_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block is announced once its height is noted; until then no other is made on top of it."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    one = keeper(tmp_path)
    one.make_block(BEGIN)
    monkeypatch.setattr(signed, "write_private", full)
    for _ in range(2):
        with pytest.raises(StorageRefused, match="cannot be written: No space left"):
            one.make_block(BEGIN + SECOND)
    one.close()
    with pytest.raises(StartupError, match="cannot be written: No space left"):
        keeper(tmp_path)
    monkeypatch.undo()
    again = keeper(tmp_path)
    assert again.make_block(BEGIN + SECOND).height == 3
    again.close()


def test_a_note_about_another_chain_is_not_made_by_a_flipped_bit(tmp_path: Path) -> None:
    grown(tmp_path, 1)
    path = tmp_path / SIGNED_FILE
    (chain,) = json.loads(path.read_bytes())["chains"]
    path.write_text(path.read_text().replace(chain, chain[:-1] + chr(ord(chain[-1]) ^ 1)))
    with pytest.raises(StartupError, match="is damaged"):
        keeper(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"format":"other"}', b'{"format":1,"chains":7}', b"[" * 100_000]
)
def test_a_damaged_note_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    grown(tmp_path, 1)
    (tmp_path / SIGNED_FILE).write_bytes(content)
    with pytest.raises(StartupError, match="is damaged"):
        keeper(tmp_path)
    assert (tmp_path / SIGNED_FILE).read_bytes() == content


async def test_a_follower_brings_the_lost_blocks_back(tmp_path: Path) -> None:
    """The advice in the refusal works: start once as a follower of a node that has the blocks."""
    maker, other = tmp_path / "maker", tmp_path / "other"
    async with running_ledger(maker) as ledger:
        await until(ledger, 1)
    shutil.copytree(maker, tmp_path / "backup")
    async with (
        running_ledger(maker) as ledger,
        running_ledger(other, source=LedgerSource(ledger)) as follower,
    ):
        await until(follower, await send(ledger))
    height = signed_height(maker)
    shutil.copy(tmp_path / "backup" / LEDGER_FILE, maker / LEDGER_FILE)
    with pytest.raises(StartupError, match=f"without the block {height}"):
        keeper(maker)
    # The other node has the maker's key here, so that it can serve its blocks.
    async with (
        running_ledger(other) as kept,
        running_ledger(maker, None, LedgerSource(kept)) as ledger,
    ):
        await until(ledger, height)
    keeper(maker).close()
