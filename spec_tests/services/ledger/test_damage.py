"""A flipped bit in any of the ledger's files is refused or has no effect (decision 0071).

A node's beliefs are its answers: the chain's blocks, the place of every transaction, the validator
sets, the state and its root. With a damaged ledger the node may refuse to start, or refuse single
old blocks. It never gives a different answer, and a refusal to start changes no file.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.genesis import GenesisValidator, genesis_document
from meshnode.domain.errors import StartupError
from meshnode.services.ledger.database import LEDGER_FILE, LedgerReader, stored_genesis
from meshnode.services.ledger.handle import find_transaction
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.records import StoredBlock
from meshnode.services.ledger.signed import SIGNED_FILE
from meshnode.services.ledger.validator_key import ValidatorKey
from spec_tests.domain.chain.net import ALICE, FakeModel, actor, genesis
from spec_tests.services.ledger.ledgers import KEY

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
WAL = f"{LEDGER_FILE}-wal"
BLOCKS, EACH = 12, 15
"""Enough for every table to have more than one page."""
FIRST = GenesisValidator(ALICE.key, KEY.public_key, 400 * 250_000, 50_000_000)
GENESIS = encode(genesis_document(genesis(validators=(FIRST,), accounts=())))

REFUSED: Any = "refused"

Beliefs = dict[str, Any]


class Reader(LedgerReader):
    """Reads each block once and keeps it, because every transaction is looked up in one."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._blocks: dict[int, Any] = {}

    def block(self, height: int) -> StoredBlock | None:
        if height not in self._blocks:
            self._blocks[height] = believed(super().block, height)
        found: StoredBlock | None = self._blocks[height]
        if found is REFUSED:
            raise LedgerBroken("refused before")
        return found


class Ledgers:
    """Copies of one chain's folder: after a stop, and after kills at two moments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._whole: dict[str, Beliefs] = {}
        work = folder / "work"
        work.mkdir()
        keeper = Keeper(work, GENESIS, FakeModel(), KEY)
        self.names: list[bytes] = []
        self.keys: list[str] = []
        for n in range(BLOCKS):
            self._grow(keeper, n)
        self._copy(work, "killed")
        # A kill while SQLite writes its log back: an open snapshot keeps the end of the log from
        # being written back.
        reader = LedgerReader(work)
        with reader.snapshot() as state:
            assert state.height == BLOCKS
            self._grow(keeper, BLOCKS)
            keeper._database._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._copy(work, "killed while writing back")
        reader.close()
        keeper.close()
        self._copy(work, "stopped")

    def _grow(self, keeper: Keeper, n: int) -> None:
        for k in range(EACH):
            nonce = n * EACH + k
            to = actor(f"receiver {nonce}").key
            self.keys.append(f"account/{to}")
            body: dict[str, Any] = {
                "kind": "transfer",
                "chain_id": keeper.genesis.chain_id,
                "nonce": nonce,
            }
            result = keeper.submit(ALICE.sign({**body, "to": to, "amount": 1000 + nonce}))
            assert result.code == 0, result.log
            self.names.append(bytes.fromhex(result.hash))
        assert len(keeper.make_block(NOW + n * SECOND).transactions) == EACH

    def _copy(self, work: Path, name: str) -> None:
        (self.folder / name).mkdir()
        for path in work.iterdir():
            # This file holds only locks and the log's index; the next reader makes it anew.
            if not path.name.endswith("-shm"):
                shutil.copy(path, self.folder / name)

    def whole(self, name: str) -> Beliefs:
        """Return what a node believes from the undamaged copy ``name``."""
        if name not in self._whole:
            with copy_of(self, name) as folder:
                self._whole[name] = self.beliefs(folder)
        return self._whole[name]

    def beliefs(self, folder: Path, key: ValidatorKey | None = KEY) -> Beliefs:
        """Return what a node that starts in ``folder`` believes.

        Raises StartupError if the node does not start.
        """
        found = stored_genesis(folder)
        assert found is not None
        keeper = Keeper(folder, found, FakeModel(), key)
        reader = Reader(folder)
        try:
            return self._read(keeper, reader)
        finally:
            reader.close()
            keeper.close()

    def _read(self, keeper: Keeper, reader: LedgerReader) -> Beliefs:
        height = keeper._database.height
        return {
            "genesis": keeper.opened.genesis_sha256,
            "height": height,
            "root": keeper._app.app_hash,
            "latest": keeper.opened.latest,
            "state": {key: reader.get(key) for key in self.keys},
            "all state": dict(reader.buckets()),
            **{f"block {n}": believed(reader.block, n) for n in range(height + 2)},
            **{name.hex(): believed(find_transaction, reader, name) for name in self.names},
            **{
                f"validators {n}": believed(reader.validators, block.header.validators_hash)
                for n in range(1, height + 1)
                if (block := believed(reader.block, n)) is not REFUSED
            },
        }


def believed(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except (LedgerBroken, sqlite3.DatabaseError):
        return REFUSED


@pytest.fixture(scope="module")
def ledgers() -> Iterator[Ledgers]:
    with tempfile.TemporaryDirectory() as folder:
        yield Ledgers(Path(folder))


@contextlib.contextmanager
def copy_of(ledgers: Ledgers, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(ledgers.folder / name, Path(folder) / "copy"))


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def contents(folder: Path) -> dict[str, bytes]:
    """Read the files; an empty one is left out, as if it did not exist."""
    paths = [folder / name for name in (LEDGER_FILE, WAL, SIGNED_FILE)]
    return {path.name: data for path in paths if path.exists() and (data := path.read_bytes())}


def start_damaged(
    ledgers: Ledgers, name: str, file: str, at: int, bit: int, key: ValidatorKey | None = KEY
) -> Beliefs | None:
    """Flip a bit; return what the node believes, or None if it refuses to start."""
    with copy_of(ledgers, name) as folder:
        flip(folder / file, at, bit)
        before = contents(folder)
        refusal = ""
        beliefs = None
        try:
            beliefs = ledgers.beliefs(folder, key)
        except StartupError as error:
            refusal = str(error)
        # The refusal names the folder, and no file has changed.
        assert beliefs or (str(folder) in refusal and contents(folder) == before)
        return beliefs


FOUND = ["stopped", "killed", "killed while writing back"]
FILES = [("stopped", LEDGER_FILE)] + [
    (name, file) for name in FOUND[1:] for file in (LEDGER_FILE, WAL)
]


@pytest.mark.parametrize("name", FOUND)
def test_each_of_them_is_whole_without_damage(ledgers: Ledgers, name: str) -> None:
    beliefs = ledgers.whole(name)
    assert beliefs["height"] == BLOCKS + (name != "killed")
    assert REFUSED not in beliefs.values()
    assert None not in beliefs["state"].values() or name == "killed"


@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_changes_nothing(
    ledgers: Ledgers, where: tuple[str, str], part: float, bit: int
) -> None:
    name, file = where
    at = int(part * (ledgers.folder / name / file).stat().st_size)
    require_same(start_damaged(ledgers, name, file, at, bit), ledgers.whole(name))


def require_same(beliefs: Beliefs | None, expected: Beliefs) -> None:
    """Check that every belief is the expected one or was refused."""
    for what, value in (beliefs or {}).items():
        assert value == expected[what] or value is REFUSED, what


@given(st.sampled_from(FOUND[1:]), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_follower_without_a_note_falls_back_to_an_earlier_block_at_most(
    ledgers: Ledgers, name: str, part: float, bit: int
) -> None:
    at = int(part * (ledgers.folder / name / WAL).stat().st_size)
    beliefs = start_damaged(ledgers, name, WAL, at, bit, key=None)
    if beliefs is None:
        return
    expected, height = ledgers.whole(name), beliefs["height"]
    if height < expected["height"]:
        assert beliefs["root"] == expected[f"block {height + 1}"].header.app_hash
    for n in range(1, height + 1):
        assert beliefs[f"block {n}"] in (expected[f"block {n}"], REFUSED)
