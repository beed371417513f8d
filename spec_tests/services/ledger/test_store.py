"""The ledger's file behaves like any other store, and is whole or refused (decision 0071)."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.statetree import MemoryStore, StateTree
from meshnode.domain.errors import StartupError
from meshnode.services.ledger import soundness
from meshnode.services.ledger.database import (
    LEDGER_FILE,
    LedgerDatabase,
    LedgerReader,
    StorageRefused,
    create_ledger,
    stored_genesis,
)
from meshnode.services.ledger.handle import find_transaction
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.signed import SIGNED_FILE
from spec_tests.domain.chain.net import ALICE, BOB, FakeModel
from spec_tests.services.ledger.ledgers import GENESIS, KEY

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
KEYS = st.sampled_from([f"account/{n}" for n in range(40)])


def writing(folder: Path) -> LedgerDatabase:
    database = LedgerDatabase(folder)
    database.begin_writing()
    return database


class StoreMachine(RuleBasedStateMachine):
    """The file always equals a store in memory, and its updated root equals one built anew."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        create_ledger(self.path, GENESIS)
        self.store = writing(self.path)
        self.memory = MemoryStore()
        for _, entries in self.store.buckets():
            self.memory.write(dict(entries))
        self.tree = StateTree()
        self.tree.rebuild(self.store)

    @rule(changes=st.dictionaries(KEYS, st.none() | st.binary(max_size=9), max_size=5))
    def write(self, changes: dict[str, bytes | None]) -> None:
        nodes = self.tree.fresh(self.store, changes)
        self.store.write(changes)
        self.memory.write(changes)
        self.tree.adopt(nodes)

    @rule()
    def start_again(self) -> None:
        self.store.close()
        self.store = writing(self.path)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        assert self.store.get(key) == self.memory.get(key)

    @invariant()
    def grown_is_rebuilt(self) -> None:
        rebuilt = StateTree()
        rebuilt.rebuild(self.store)
        assert rebuilt.root == self.tree.root
        assert dict(self.store.buckets()) == dict(self.memory.buckets())

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=settings().max_examples // 5, stateful_step_count=12)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Make a folder with a chain of three blocks; no process has it open."""
    keeper = Keeper(tmp_path, GENESIS, FakeModel(), KEY)
    for n in range(3):
        assert keeper.submit(transfer(n)).code == 0
        keeper.make_block(NOW + n * SECOND)
    keeper.close()
    return tmp_path


def transfer(nonce: int) -> bytes:
    fields: dict[str, Any] = {
        "kind": "transfer",
        "chain_id": "test-chain-1",
        "nonce": nonce,
        "to": BOB.key,
    }
    return encode(sign_envelope({**fields, "amount": 5}, ALICE.seed))


def test_only_the_owner_can_read_it(chain: Path) -> None:
    keeper = Keeper(chain, GENESIS, FakeModel(), KEY)
    names = {path.name for path in chain.iterdir()}
    assert names == {LEDGER_FILE, f"{LEDGER_FILE}-wal", f"{LEDGER_FILE}-shm", SIGNED_FILE}
    for path in chain.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keeper.close()


def test_each_block_is_synced() -> None:
    with tempfile.TemporaryDirectory() as folder:
        create_ledger(Path(folder), GENESIS)
        database = writing(Path(folder))
        assert database._one("PRAGMA journal_mode") == (b"wal",)
        assert database._one("PRAGMA synchronous") == (2,)
        database.close()


def test_a_start_finds_what_was_there(chain: Path) -> None:
    keeper = Keeper(chain, GENESIS, FakeModel(), KEY)
    latest = keeper.opened.latest
    assert latest is not None
    assert latest.height == 3
    reader = LedgerReader(chain)
    for height in (1, 2, 3):
        stored = reader.block(height)
        assert stored is not None
        assert [result.code for result in stored.results] == [0]
        place = reader.place(hashlib.sha256(stored.transactions[0]).digest())
        assert place == (height, 0)
        assert len(reader.validators(stored.header.validators_hash)) == 1
    assert [stored.height for stored in reader.blocks(3, 5)] == [2, 1]
    assert reader.block(4) is None
    reader.close()
    keeper.close()


def test_reading_goes_on_while_a_block_is_written(chain: Path) -> None:
    database, reader = writing(chain), LedgerReader(chain)
    with reader.snapshot() as state:
        before = state.get("clock")
        with database._writing():
            database._apply({"clock": b"later"})
            assert state.get("clock") == before
        # Committed now, but the older snapshot still reads the state before it.
        assert state.get("clock") == before
    assert reader.get("clock") == b"later"
    reader.close()
    database.close()


def test_a_reader_cannot_write(chain: Path) -> None:
    reader = LedgerReader(chain)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("DELETE FROM blocks")
    reader.close()


def test_a_full_disk_changes_nothing_and_may_become_free(chain: Path) -> None:
    keeper = Keeper(chain, GENESIS, FakeModel(), KEY)
    connection = keeper._database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    root = keeper._app.app_hash
    count = 0
    for n in range(60):
        count += keeper.submit(transfer(3 + n)).code == 0
    assert count == 60
    with pytest.raises(StorageRefused, match="full"):
        keeper.make_block(NOW + 10 * SECOND)
    assert keeper._app.app_hash == root
    assert keeper._database.height == 3
    assert len(keeper.mempool) == 60
    connection.execute("PRAGMA max_page_count = 1000000")
    stored = keeper.make_block(NOW + 10 * SECOND)
    assert (stored.height, len(stored.transactions)) == (4, 60)
    keeper.close()
    again = Keeper(chain, GENESIS, FakeModel(), KEY)
    assert again.opened.latest == stored
    again.close()


# Damage is refused with a reason, and the file is left as it is.


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def sql(statement: str, *values: object) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute(statement, values)
        connection.commit()
        connection.close()

    return apply


DAMAGE: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: os.truncate(path, 0),
    "words of the schema": lambda path: overwrite(
        path, path.read_bytes().find(b"WITHOUT"), b"\xff"
    ),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "another file": lambda path: fill(path, b"hello\n" * 10_000),
    "header": lambda path: overwrite(path, 20, b"\xff" * 60),
    "page": lambda path: overwrite(path, 4096 * 2, b"\xff" * 4096),
    "balance": sql("UPDATE state SET value = replace(value, '5', '6') WHERE key LIKE 'account/%'"),
    "lost entry": sql("DELETE FROM state WHERE key LIKE 'account/%'"),
    "no clock": sql("DELETE FROM state WHERE key = 'clock'"),
    "another root": sql("UPDATE facts SET value = ? WHERE name = 'app_hash'", bytes(32)),
    "lost block": sql("DELETE FROM blocks WHERE height = 3"),
    "lost block before": sql("DELETE FROM blocks WHERE height = 2"),
    "block bytes": sql("UPDATE blocks SET block = block || x'00' WHERE height = 3"),
    "outcome": sql("UPDATE blocks SET outcome = replace(outcome, '0', '1') WHERE height = 3"),
    "lost first block": sql("DELETE FROM blocks WHERE height = 1"),
    "a block in between": sql("UPDATE blocks SET outcome = outcome || ' ' WHERE height = 2"),
    "a transaction's hash": sql("UPDATE transactions SET hash = zeroblob(32) WHERE height = 1"),
    "a transaction's height": sql("UPDATE transactions SET height = 3 WHERE height = 1"),
    "a negative position": sql("UPDATE transactions SET position = -7, height = height + 1"),
    "a transaction's position": sql("UPDATE transactions SET position = 1 WHERE height = 2"),
    "validators": sql("UPDATE validators SET members = replace(members, ' 8]', ' 9]')"),
    "validators in capitals": sql("UPDATE validators SET members = upper(members)"),
    "a key that is no text": sql("UPDATE state SET key = CAST(key AS BLOB) WHERE key = 'supply'"),
    "a bucket beyond the last": sql("UPDATE state SET bucket = 65536 WHERE key = 'supply'"),
    "a bucket in words": sql("UPDATE state SET bucket = 'x' WHERE key = 'supply'"),
    "a bucket that is none": sql("UPDATE state SET bucket = 0.5 WHERE key = 'supply'"),
    "genesis": sql("UPDATE facts SET value = value || x'20' WHERE name = 'genesis'"),
    "pinned": sql("UPDATE facts SET value = 'x' WHERE name = 'genesis_sha256'"),
    "format": sql("UPDATE facts SET value = 'later' WHERE name = 'format'"),
    "no facts": sql("DELETE FROM facts"),
    "another database": sql("DROP TABLE facts"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_and_left_alone(
    chain: Path, damage: Callable[[Path], None]
) -> None:
    path = chain / LEDGER_FILE
    damage(path)
    before = path.read_bytes()

    def start() -> None:
        found = stored_genesis(chain)
        assert found is not None
        Keeper(chain, found, FakeModel(), KEY).close()

    with pytest.raises(StartupError, match=r"the ledger .* is damaged"):
        start()
    assert path.read_bytes() == before


def test_a_large_file_is_checked_where_it_matters(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundness, "CHECKED_WHOLE_BYTES", 0)
    monkeypatch.setattr(soundness, "RECENT_BLOCKS", 1)
    Keeper(chain, GENESIS, FakeModel(), KEY).close()
    DAMAGE["balance"](chain / LEDGER_FILE)
    with pytest.raises(StartupError, match="is damaged"):
        Keeper(chain, GENESIS, FakeModel(), KEY)


def test_an_older_block_that_is_damaged_is_not_given_out(chain: Path) -> None:
    sql("UPDATE blocks SET block = replace(block, 'test', 'best') WHERE height = 1")(
        chain / LEDGER_FILE
    )
    reader = LedgerReader(chain)
    with pytest.raises(LedgerBroken, match="block 1 is damaged"):
        reader.block(1)
    reader.close()


def test_a_transaction_is_not_shown_in_the_place_of_another(chain: Path) -> None:
    sql("UPDATE transactions SET height = 3 WHERE height = 1")(chain / LEDGER_FILE)
    reader = LedgerReader(chain)
    with pytest.raises(LedgerBroken, match="not in the block 3"):
        find_transaction(reader, hashlib.sha256(transfer(0)).digest())
    reader.close()


def test_a_set_of_validators_that_is_damaged_is_not_given_out(chain: Path) -> None:
    reader = LedgerReader(chain)
    stored = reader.block(3)
    assert stored is not None
    DAMAGE["validators"](chain / LEDGER_FILE)
    with pytest.raises(LedgerBroken, match="set of validators is damaged"):
        reader.validators(stored.header.validators_hash)
    reader.close()


def test_a_refused_file_keeps_its_log_for_a_repair(chain: Path, tmp_path: Path) -> None:
    keeper = Keeper(chain, GENESIS, FakeModel(), KEY)
    keeper.make_block(NOW + 9 * SECOND)
    killed = tmp_path / "killed"
    killed.mkdir()
    log = f"{LEDGER_FILE}-wal"
    for name in (LEDGER_FILE, log, SIGNED_FILE):
        shutil.copy(chain / name, killed)
    keeper.close()
    overwrite(killed / log, 100, b"\xff")
    before = [(killed / name).read_bytes() for name in (LEDGER_FILE, log)]
    for _ in range(2):
        with pytest.raises(StartupError, match="ends at block 3 without the block 4"):
            Keeper(killed, GENESIS, FakeModel(), KEY)
    assert [(killed / name).read_bytes() for name in (LEDGER_FILE, log)] == before


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a b?mode=memory#c%41&é"
    folder.mkdir()
    create_ledger(folder, GENESIS)
    keeper = Keeper(folder, GENESIS, FakeModel(), KEY)
    keeper.make_block(NOW)
    keeper.close()
    assert {path.name for path in folder.iterdir()} == {LEDGER_FILE, SIGNED_FILE}


def test_a_first_start_that_was_killed_leaves_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        create_ledger(tmp_path, GENESIS)
    monkeypatch.undo()
    assert stored_genesis(tmp_path) is None
    create_ledger(tmp_path, GENESIS)
    assert stored_genesis(tmp_path) == GENESIS


def test_a_folder_that_cannot_be_written_is_a_startup_error(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot make the ledger"):
        create_ledger(tmp_path / "missing", GENESIS)
