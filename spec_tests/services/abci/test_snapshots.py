"""The snapshot calls: taken beside the blocks, restored from the trusted root alone."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from meshnode.domain.errors import StartupError
from meshnode.services.ledger.database import StorageRefused, create_ledger
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.restoring import Restoring, forget_unfinished
from meshnode.services.ledger.snapshots import KEPT, SnapshotStore
from meshnode.wire import abci_pb2 as pb
from spec_tests.domain.chain.net import FakeModel
from spec_tests.services.abci.engine import FakeEngine, connected
from spec_tests.services.abci.test_calls import transfer
from spec_tests.services.ledger.ledgers import GENESIS

Offer, Apply = pb.ResponseOfferSnapshot, pb.ResponseApplySnapshotChunk


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred bytes a chunk, so that a small state has several."""
    take = SnapshotStore.take
    monkeypatch.setattr(SnapshotStore, "take", lambda this, pinned: take(this, pinned, 400))


@asynccontextmanager
async def offering(folder: Path, blocks: int, every: int) -> AsyncIterator[FakeEngine]:
    """An application that has made some blocks, with the task that writes its snapshots."""
    await trio.Path(folder).mkdir(exist_ok=True)
    async with connected(folder, every) as engine:
        engine.ledger.catching_up = False
        await engine.handshake()
        for nonce in range(blocks):
            await engine.finalize(transfer(nonce))
            await engine.commit()
            if engine.height % every == 0:
                await engine.ledger.take_snapshot()
        yield engine


@dataclass
class Offered:
    """A snapshot as peers send it, and the root that the light client trusts."""

    snapshot: pb.Snapshot
    chunks: list[bytes]
    root: bytes


async def offered(folder: Path, blocks: int = 5) -> Offered:
    async with offering(folder, blocks, 5) as engine:
        (found,) = (
            await engine.ask(list_snapshots=pb.RequestListSnapshots())
        ).list_snapshots.snapshots
        assert (found.height, found.format) == (5, 1)
        assert found.chunks > 1
        chunks = []
        for index in range(found.chunks):
            load = pb.RequestLoadSnapshotChunk(height=5, format=1, chunk=index)
            answer = await engine.ask(load_snapshot_chunk=load)
            chunks.append(answer.load_snapshot_chunk.chunk)
        gone = pb.RequestLoadSnapshotChunk(height=4, format=1, chunk=0)
        assert (await engine.ask(load_snapshot_chunk=gone)).load_snapshot_chunk.chunk == b""
        return Offered(found, chunks, engine.ledger.state_app_hash)


async def offer(engine: FakeEngine, this: Offered, root: bytes | None = None) -> int:
    request = pb.RequestOfferSnapshot(snapshot=this.snapshot, app_hash=root or this.root)
    return (await engine.ask(offer_snapshot=request)).offer_snapshot.result


async def apply(engine: FakeEngine, index: int, chunk: bytes) -> pb.ResponseApplySnapshotChunk:
    request = pb.RequestApplySnapshotChunk(index=index, chunk=chunk, sender=f"peer {index}")
    return (await engine.ask(apply_snapshot_chunk=request)).apply_snapshot_chunk


async def restore(engine: FakeEngine, this: Offered) -> None:
    assert await offer(engine, this) == Offer.ACCEPT
    for index, chunk in enumerate(this.chunks):
        assert (await apply(engine, index, chunk)).result == Apply.ACCEPT
    engine.height = this.snapshot.height


async def test_a_restored_ledger_has_the_state_and_goes_on(tmp_path: Path) -> None:
    this = await offered(tmp_path / "old")
    async with offering(tmp_path / "old", 0, 5) as old, connected(tmp_path) as new:
        info = (await new.ask(info=pb.RequestInfo())).info
        assert info.last_block_height == 0
        await restore(new, this)
        info = (await new.ask(info=pb.RequestInfo())).info
        assert (info.last_block_height, info.last_block_app_hash) == (5, this.root)
        assert new.ledger.height == 5
        assert new.ledger.earliest_height == 6
        assert await new.ledger.block(5) is None
        query = pb.RequestQuery(path="/summary")
        assert (await new.ask(query=query)).query.height == 5
        old.height = 5
        for engine in (old, new):
            assert [one.code for one in (await engine.finalize(transfer(5))).tx_results] == [0]
            await engine.commit()
        assert old.ledger.state_app_hash == new.ledger.state_app_hash
    async with connected(tmp_path) as again:
        assert (await again.ask(info=pb.RequestInfo())).info.last_block_height == 6
        assert await offer(again, this) == Offer.ABORT


async def test_a_snapshot_is_of_its_height_however_many_blocks_follow(tmp_path: Path) -> None:
    async with connected(tmp_path, every=2) as engine:
        engine.ledger.catching_up = False
        await engine.handshake()
        roots = []
        for nonce in range(3):
            await engine.finalize(transfer(nonce))
            await engine.commit()
            roots.append(engine.ledger.state_app_hash)
        # It is written only now, a block later.
        await engine.ledger.take_snapshot()
        (made,) = engine.ledger.snapshots.known
        assert (made.height, made.root) == (2, roots[1])
        chunk = engine.ledger.snapshots.load(2, 0)
        Restoring(tmp_path / "..", GENESIS, made).add(0, chunk)


async def test_the_last_few_are_kept(tmp_path: Path) -> None:
    async with offering(tmp_path, KEPT + 2, 1) as engine:
        heights = [one.height for one in engine.ledger.snapshots.known]
        assert heights == list(range(3, KEPT + 3))
        assert sorted(int(one.name) for one in (tmp_path / "snapshots").iterdir()) == heights
    (tmp_path / "snapshots" / "99.new").mkdir()
    assert [one.height for one in SnapshotStore(tmp_path).known] == heights
    assert not (tmp_path / "snapshots" / "99.new").exists()


async def test_what_does_not_combine_to_the_trusted_root_is_refused_with_its_sender(
    tmp_path: Path,
) -> None:
    this = await offered(tmp_path / "old")
    async with connected(tmp_path) as engine:
        assert await offer(engine, this, bytes(32)) == Offer.REJECT_SENDER
        this.snapshot.format = 2
        assert await offer(engine, this) == Offer.REJECT_FORMAT
        this.snapshot.format, this.snapshot.height = 1, 6
        assert await offer(engine, this) == Offer.REJECT_SENDER
        assert (await apply(engine, 0, this.chunks[0])).result == Apply.ABORT


async def test_a_false_chunk_is_fetched_from_another_peer(tmp_path: Path) -> None:
    this = await offered(tmp_path / "old")
    async with connected(tmp_path) as engine:
        assert await offer(engine, this) == Offer.ACCEPT
        refused = await apply(engine, 0, this.chunks[1])
        assert refused.result == Apply.RETRY
        assert list(refused.refetch_chunks) == [0]
        assert list(refused.reject_senders) == ["peer 0"]
        for index, chunk in enumerate(this.chunks):
            assert (await apply(engine, index, chunk)).result == Apply.ACCEPT
        assert engine.ledger.state_app_hash == this.root


async def test_a_disk_that_refuses_delays_the_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    this = await offered(tmp_path / "old")
    finish, refusals = Restoring.finish, [StorageRefused("full")]

    def refusing(restoring: Restoring) -> Path:
        if refusals:
            raise refusals.pop()
        return finish(restoring)

    monkeypatch.setattr(Restoring, "finish", refusing)
    async with connected(tmp_path) as engine:
        assert await offer(engine, this) == Offer.ACCEPT
        last = len(this.chunks) - 1
        for index, chunk in enumerate(this.chunks):
            found = (await apply(engine, index, chunk)).result
            assert found == (Apply.RETRY if index == last else Apply.ACCEPT)
        assert (await apply(engine, last, this.chunks[last])).result == Apply.ACCEPT
        assert engine.ledger.state_height == 5


async def test_a_kill_in_the_middle_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    this = await offered(tmp_path / "old")
    async with connected(tmp_path) as engine:
        assert await offer(engine, this) == Offer.ACCEPT
        for index, chunk in enumerate(this.chunks[:-1]):
            await apply(engine, index, chunk)
        assert engine.ledger.state_height == 0
    async with connected(tmp_path) as engine:
        assert (await engine.ask(info=pb.RequestInfo())).info.last_block_height == 0
        await restore(engine, this)
    assert not (tmp_path / "ledger.restoring").exists()


async def test_a_kill_before_the_first_commit_begins_again(tmp_path: Path) -> None:
    this = await offered(tmp_path / "old")
    data = tmp_path / "cometbft" / "data"
    async with connected(tmp_path) as engine:
        await restore(engine, this)
        await engine.finalize(transfer(5))
    (data / "state.db").mkdir(parents=True)
    (data / "priv_validator_state.json").write_text("signed")
    # Only an engine can go on from here.
    with pytest.raises(StartupError, match="made from a snapshot, and has no block yet"):
        Keeper(tmp_path, GENESIS, FakeModel())
    assert forget_unfinished(tmp_path, GENESIS, data)
    assert [one.name for one in data.iterdir()] == ["priv_validator_state.json"]
    async with connected(tmp_path) as engine:
        assert (await engine.handshake()).last_block_height == 0
        assert engine.ledger.earliest_height == 1


async def test_after_the_first_commit_nothing_is_forgotten(tmp_path: Path) -> None:
    this = await offered(tmp_path / "old")
    async with connected(tmp_path) as engine:
        await restore(engine, this)
        await engine.finalize(transfer(5))
        await engine.commit()
    assert not forget_unfinished(tmp_path, GENESIS, tmp_path / "cometbft" / "data")
    with sqlite3.connect(tmp_path / "ledger.sqlite") as file:
        assert file.execute("SELECT height FROM decided").fetchall() == [(6,)]
    file.close()


def test_a_chain_from_its_beginning_is_never_forgotten(tmp_path: Path) -> None:
    assert not forget_unfinished(tmp_path, GENESIS, tmp_path)
    create_ledger(tmp_path, GENESIS)
    assert not forget_unfinished(tmp_path, GENESIS, tmp_path)
