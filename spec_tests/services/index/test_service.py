"""Interface 2.2: the explorer index may lag or fail, is rebuilt, and never affects the chain."""

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.errors import Unavailable
from meshnode.services.index import indexer
from meshnode.services.index.indexer import INDEX_FILE, Index, serve_indexer
from meshnode.services.index.store import IndexStore
from spec_tests.domain.chain.net import ALICE, BOB, FEE, VALIDATOR
from spec_tests.edges.http_server import wait_until
from spec_tests.edges.native_gateway import Gateway, start_gateway


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path, with_index=False)


async def run_index(
    nursery: trio.Nursery, gateway: Gateway, folder: Path
) -> tuple[Index, Callable[[], Any]]:
    """Start an index; return it, and a function that stops it and waits until it has ended."""
    scope, ended = trio.CancelScope(), trio.Event()

    index = Index(gateway.ledger, folder)

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        with scope:
            await serve_indexer(index, task_status=task_status)
        ended.set()

    await nursery.start(run)

    async def stop() -> None:
        scope.cancel()
        await ended.wait()

    return index, stop


def files(folder: Path, start: str) -> set[str]:
    return {path.name for path in folder.glob(start + "*")}


def remove(folder: Path, start: str) -> None:
    for name in files(folder, start):
        (folder / name).unlink()


async def level(gateway: Gateway, index: Index) -> None:
    with trio.fail_after(120):
        await index.wait_indexed(gateway.ledger.height)


async def test_histories_are_newest_first_and_counted(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path
) -> None:
    index, _ = await run_index(nursery, gateway, tmp_path)
    name, height = await gateway.do(ALICE, "transfer", to=BOB.key, amount=7)
    await gateway.do(BOB, "transfer", to=ALICE.key, amount=2)
    await level(gateway, index)
    assert {
        oct((tmp_path / name).stat().st_mode & 0o777) for name in files(tmp_path, INDEX_FILE)
    } == {"0o600"}
    entries, total = await index.account_history(ALICE.key, 10, 0)
    assert [(entry.kind, entry.amount) for entry in entries] == [
        ("receive", 2),
        ("send", -7),
        ("fee", -FEE),
    ]
    assert total == 3
    assert (entries[1].id, entries[1].height) == (name, height)
    sent, total = await index.account_history(ALICE.key, 10, 0, kinds=("send", "receive"))
    assert ([entry.kind for entry in sent], total) == (["receive", "send"], 2)
    assert await index.account_history("02" + "11" * 32, 10, 0) == ([], 0)
    assert await index.earned(VALIDATOR.key, 0) == 0


async def test_rewards_and_settlements_are_what_was_earned(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path
) -> None:
    index, _ = await run_index(nursery, gateway, tmp_path)
    job = await gateway.infer(ALICE, BOB, lifetime=8)
    await gateway.respond(BOB, job)
    await gateway.next_block()
    await level(gateway, index)
    assert await index.earned(BOB.key, 0) == 6400
    assert await index.earned(VALIDATOR.key, 0) == 1600
    assert await index.earned(BOB.key, gateway.clock() + 10**9) == 0


async def test_pages_fit_together_while_blocks_arrive(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path
) -> None:
    index, _ = await run_index(nursery, gateway, tmp_path)
    await gateway.next_block(3)
    await level(gateway, index)
    upto = index.indexed_height
    whole, total = await index.account_history(BOB.key, 100, 0, upto=upto)
    pages = []
    for offset in range(0, total, 2):
        page, counted = await index.account_history(BOB.key, 2, offset, upto=upto)
        assert counted == total
        pages += page
        await gateway.next_block()
        await level(gateway, index)
    assert pages == whole
    assert (await index.account_history(BOB.key, 1, 0))[1] > total


async def test_the_cursor_moves_on_empty_blocks_and_survives_a_restart(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path
) -> None:
    index, stop = await run_index(nursery, gateway, tmp_path)
    await level(gateway, index)
    # The first blocks of a chain have no transactions.
    assert index.indexed_height >= 2
    await stop()
    reached = index.indexed_height
    await gateway.next_block(2)
    assert index.indexed_height == reached
    index, _ = await run_index(nursery, gateway, tmp_path)
    await level(gateway, index)
    assert (await index.account_history(BOB.key, 10, 0))[1] > 0


async def test_a_deleted_index_is_rebuilt_the_same(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, stop = await run_index(nursery, gateway, tmp_path)
    await gateway.train(ALICE)
    await gateway.next_block(2)
    await level(gateway, index)
    grown = [await index.account_history(who.key, 100, 0) for who in (ALICE, BOB, VALIDATOR)]
    updates = await index.training(2**62, 100)
    await stop()
    remove(tmp_path, INDEX_FILE)
    # Rebuild it in several database transactions.
    monkeypatch.setattr(indexer, "BATCH_BLOCKS", 2)
    index, _ = await run_index(nursery, gateway, tmp_path)
    await level(gateway, index)
    built = [await index.account_history(who.key, 100, 0) for who in (ALICE, BOB, VALIDATOR)]
    assert built == grown
    assert await index.training(2**62, 100) == updates


@pytest.mark.parametrize("damage", ["nonsense", "middle", "empty", "another chain"])
async def test_a_damaged_index_is_moved_aside_and_rebuilt(
    nursery: trio.Nursery,
    gateway: Gateway,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    index, stop = await run_index(nursery, gateway, tmp_path)
    await gateway.next_block(3)
    await level(gateway, index)
    whole = await index.account_history(BOB.key, 100, 0)
    await stop()
    ledger_files = files(tmp_path, "ledger")
    path = tmp_path / INDEX_FILE
    monkeypatch.setattr(indexer, "FIRST_PAUSE_S", 0.01)
    if damage == "nonsense":
        path.write_bytes(b"this is no database at all" * 400)
    elif damage == "middle":
        data = bytearray(path.read_bytes())
        data[4096:12288] = b"\xff" * 8192
        path.write_bytes(data)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        with closing(IndexStore(path, "another chain")) as other:
            assert other.cursor == (0, "")
    caplog.set_level(logging.WARNING)
    index, _ = await run_index(nursery, gateway, tmp_path)
    await level(gateway, index)
    assert index.error is None
    entries, total = await index.account_history(BOB.key, 100, 0)
    assert (entries[-len(whole[0]) :], total >= whole[1]) == (whole[0], True)
    moved = (tmp_path / (INDEX_FILE + ".damaged")).exists()
    assert moved == (damage in ("nonsense", "middle"))
    assert any("damaged" in record.message for record in caplog.records) == moved
    assert ledger_files <= files(tmp_path, "")


async def test_damage_that_a_reader_meets_is_mended_with_the_next_block(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, _ = await run_index(nursery, gateway, tmp_path)
    await gateway.next_block(2)
    await level(gateway, index)

    def broken(*_: object) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        with index._store._reading():  # type: ignore[union-attr]
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(IndexStore, "history", broken)
        with pytest.raises(Unavailable):
            await index.account_history(BOB.key, 1, 0)
    await gateway.next_block()
    await wait_until(lambda: (tmp_path / (INDEX_FILE + ".damaged")).exists())
    await level(gateway, index)
    assert (await index.account_history(BOB.key, 1, 0))[1] > 0


async def test_a_file_that_cannot_be_opened_is_tried_again(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "FIRST_PAUSE_S", 0.01)
    (tmp_path / INDEX_FILE).mkdir()
    index, _ = await run_index(nursery, gateway, tmp_path)
    await wait_until(lambda: index.error is not None)
    assert index.error == "IsADirectoryError: Is a directory"
    with pytest.raises(Unavailable):
        await index.account_history(BOB.key, 1, 0)
    (tmp_path / INDEX_FILE).rmdir()
    await level(gateway, index)
    await wait_until(lambda: index.error is None)


async def test_an_index_of_other_blocks_is_built_anew(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index, stop = await run_index(nursery, gateway, tmp_path)
    await gateway.next_block()
    await level(gateway, index)
    await stop()
    with closing(sqlite3.connect(tmp_path / INDEX_FILE)) as connection, connection:
        connection.execute("UPDATE cursor SET hash = 'AB'")
        connection.execute("UPDATE entries SET amount = 1")
    index, _ = await run_index(nursery, gateway, tmp_path)
    await level(gateway, index)
    assert "other blocks" in caplog.text
    assert all(entry.amount != 1 for entry in (await index.account_history(ALICE.key, 9, 0))[0])
    assert index.error is None


async def test_trouble_is_visible_and_mends_itself(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "FIRST_PAUSE_S", 0.01)
    index, _ = await run_index(nursery, gateway, tmp_path)
    await level(gateway, index)
    full = IndexStore.add

    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(IndexStore, "add", refuse)
    reached = index.indexed_height
    await gateway.next_block()
    await wait_until(lambda: index.error is not None)
    gateway.reader.index = index
    training = await gateway.get("/api/training")
    assert training["error"] == "OperationalError: database or disk is full"
    assert training["indexed_height"] == reached < training["chain_height"]
    # The node itself stays ready; only requests for histories notice.
    assert (await gateway.get("/healthz"))["ready"] is True
    monkeypatch.setattr(IndexStore, "add", full)
    await wait_until(lambda: index.error is None)
    await level(gateway, index)


async def test_a_cancelled_index_lets_go_of_its_file(
    nursery: trio.Nursery, gateway: Gateway, tmp_path: Path
) -> None:
    index, stop = await run_index(nursery, gateway, tmp_path)
    await level(gateway, index)
    await stop()
    with pytest.raises(Unavailable):
        await index.account_history(ALICE.key, 1, 0)
    # Closed cleanly: SQLite leaves no log behind.
    assert files(tmp_path, INDEX_FILE) == {INDEX_FILE}
