"""The solo engine makes CometBFT's blocks soon after their transactions (decision 0072)."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.chain.bonds import possession_message
from meshnode.domain.chain.canonical import Json, digest, encode
from meshnode.domain.chain.comet.commits import Commit, verify_commit
from meshnode.domain.chain.comet.headers import NOTHING_HASH, data_hash, results_hash
from meshnode.domain.chain.comet.times import parse_time
from meshnode.domain.chain.envelope import transaction_hash
from meshnode.domain.chain.genesis import parse_genesis
from meshnode.domain.chain.mempool import MempoolLimits
from meshnode.domain.chain.records import Job
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.services.ledger import ValidatorKey, solo
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.records import StoredBlock
from meshnode.services.ledger.thread import MAX_CHECKS
from spec_tests.domain.chain.net import ALICE, BOB, CAROL, UNIT, Actor, FakeModel, answer_to
from spec_tests.services.ledger.ledgers import (
    GENESIS,
    KEY,
    account,
    eventually,
    running_ledger,
    send,
    sign,
    transfer,
    until,
)

SECOND = 1_000_000_000


async def test_a_transaction_is_in_a_block_soon(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger:
        await until(ledger, 1)
        height = await send(ledger, amount=7)
        assert height == ledger.height
        assert (await account(ledger, ALICE))["nonce"] == 1
        stored = await ledger.block(height)
        assert stored is not None
        assert stored.results[0].kind == "transfer"
        assert await ledger.transaction("ab" * 32) is None
        assert await ledger.transaction("no hash") is None


async def test_empty_blocks_come_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solo, "EMPTY_S", 0.2)
    async with running_ledger(tmp_path) as ledger:
        await until(ledger, 4)
        assert all(not stored.transactions for stored in await ledger.blocks(None, 4))


async def test_blocks_are_those_of_cometbft(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger:
        for _ in range(3):
            await send(ledger)
        blocks = list(reversed(await ledger.blocks(None, 100)))
        assert [stored.height for stored in blocks] == list(range(1, ledger.height + 1))
        first = blocks[0]
        assert first.time_ns == parse_time(ledger.genesis.genesis_time)
        assert first.last_commit == Commit()
        assert first.header.last_commit_hash == NOTHING_HASH
        assert first.header.last_results_hash == NOTHING_HASH
        for stored in blocks:
            header = stored.header
            assert header.hash == stored.hash == stored.block_id.hash
            assert stored.block.id == stored.block_id
            assert header.data_hash == data_hash(stored.transactions)
            assert header.last_commit_hash == stored.last_commit.hash
            validators = await ledger.validators(stored.height)
            verify_commit(
                ledger.chain_id, validators, stored.height, stored.block_id, stored.commit
            )
        for before, after in itertools.pairwise(blocks):
            assert after.header.last_block_id == before.block_id
            assert after.last_commit == before.commit
            # BFT time: the median time of the votes for the block before. It always rises.
            assert after.time_ns == before.commit.entries[0].time_ns > before.time_ns
            codes = [result.code for result in before.results]
            assert after.header.last_results_hash == results_hash(codes)
        summary = json.loads((await ledger.query("/summary")).value)
        assert summary["height"] == ledger.height


def test_time_rises_when_the_wall_clock_goes_back(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, GENESIS, FakeModel(), KEY)
    times = [keeper.make_block(now * SECOND).time_ns for now in (1_900_000_000, 5, 5, 5)]
    assert times == sorted(set(times))
    assert times[3] - times[2] == 1_000_000
    keeper.close()


async def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger:
        await send(ledger, amount=5)
        latest, root = ledger.latest, ledger._keeper._app.app_hash
        assert latest is not None
    async with running_ledger(tmp_path) as ledger:
        assert await ledger.block(latest.height) == latest
        following = await ledger.block(latest.height + 1)
        assert following is not None
        assert following.header.app_hash == root
        await send(ledger, amount=5)
        assert (await account(ledger, ALICE))["nonce"] == 2


async def test_after_a_standstill_time_is_caught_up_at_once(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger:
        # Block 1 has the genesis's time, 2026-01-01; block 2 has the present time.
        await until(ledger, 2)
        assert ledger.readiness().ready


async def test_transactions_of_one_account_wait_in_their_order(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger:
        raws = [await transfer(ledger, ahead=n) for n in range(20)]
        late = await ledger.submit(raws[1])
        assert (late.code, late.log) == (1, "Wrong account nonce")
        results = [await ledger.submit(raw) for raw in raws]
        assert [result.code for result in results] == [0] * 20
        places = [await ledger.wait_transaction(result.hash) for result in results]
        assert [height for height, _ in places] == sorted(height for height, _ in places)
        assert (await account(ledger, ALICE))["nonce"] == 20
        again = await ledger.submit(raws[0])
        assert again.code == 1


def test_the_same_bytes_wait_once(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, GENESIS, FakeModel(), KEY)
    raw = ALICE.sign(
        {"kind": "transfer", "chain_id": "test-chain-1", "nonce": 0, "to": BOB.key, "amount": 1}
    )
    assert keeper.submit(raw) == keeper.submit(raw)
    assert len(keeper.mempool) == 1
    assert keeper.make_block(0).transactions == (raw,)
    assert len(keeper.mempool) == 0
    keeper.close()


def test_a_transaction_that_a_block_has_made_impossible_is_dropped(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, GENESIS, FakeModel(), KEY, MempoolLimits())
    common: dict[str, Any] = {
        "kind": "transfer",
        "chain_id": "test-chain-1",
        "nonce": 0,
        "to": CAROL.key,
    }
    one, other = (ALICE.sign({**common, "amount": n}) for n in (1, 2))
    assert keeper.submit(one).code == 0
    taken = keeper.make_block(0)
    assert taken.transactions == (one,)
    # The checks would refuse the other one, whose nonce is used. Past them, it is dropped later.
    keeper.mempool.add(other, ALICE.key, 1)
    keeper.make_block(0)
    assert len(keeper.mempool) == 0
    keeper.close()


async def test_the_mempool_is_bounded(tmp_path: Path) -> None:
    limits = MempoolLimits(count=4, per_sender=2)
    keeper = Keeper(tmp_path / "", GENESIS, FakeModel(), KEY, limits)

    def submit(who: Actor, nonce: int) -> str:
        fields: dict[str, Any] = {
            "kind": "transfer",
            "chain_id": "test-chain-1",
            "nonce": nonce,
            "to": CAROL.key,
        }
        return keeper.submit(who.sign({**fields, "amount": 1})).log

    assert [submit(ALICE, n) for n in range(3)] == [
        "",
        "",
        "Too many transactions of this account are waiting",
    ]
    assert [submit(BOB, n) for n in range(2)] == ["", ""]
    assert submit(CAROL, 0) == "Mempool is full"
    # A transaction refused for lack of room is not remembered: the same bytes are accepted later.
    keeper.make_block(0)
    assert submit(ALICE, 2) == ""
    keeper.close()


class SlowModel(FakeModel):
    """A model whose answers wait until the test sets ``go_on``."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def answer(self, job_id: str, job: Job) -> dict[str, Any]:
        self.begun.set()
        assert self.go_on.wait(30)
        return super().answer(job_id, job)


async def test_readers_do_not_wait_for_the_model(tmp_path: Path) -> None:
    model = SlowModel()
    async with running_ledger(tmp_path, model=model) as ledger, trio.open_nursery() as nursery:
        root = ledger.genesis.model_root
        request: dict[str, Any] = {"prompt": "hello", "max_tokens": 8}
        fields: dict[str, Any] = {
            "provider": BOB.key,
            "model_root": root,
            "request": request,
            "price": 8000,
        }
        infer = sign(ledger, ALICE, "infer", 0, **fields, expires=ledger.height + 6)
        asked = await ledger.submit(infer)
        assert asked.code == 0, asked.log
        await ledger.wait_transaction(asked.hash)
        answer = digest(answer_to("hello", 8, root))
        respond = sign(ledger, BOB, "respond", 0, job_id=asked.id, result_root=answer)
        nursery.start_soon(ledger.submit, respond)
        await eventually(model.begun.is_set)
        # The ledger's thread is busy now, but queries are still answered.
        for _ in range(3):
            assert (await account(ledger, ALICE))["nonce"] == 1
            assert await ledger.block(1) is not None
            assert ledger.readiness().reason == "ok"
        # Submissions wait in a queue of bounded length.
        async with trio.open_nursery() as line:
            for nonce in range(1, 1 + MAX_CHECKS):
                line.start_soon(ledger.submit, await transfer(ledger, ahead=nonce - 1))
            await eventually(lambda: ledger.thread._checks._lock.statistics().tasks_waiting == 64)
            with pytest.raises(Unavailable, match="busy"):
                await ledger.submit(respond)
            model.go_on.set()
        await eventually(
            lambda: ledger.latest and ledger.latest.transactions and ledger.waiting == 0
        )
        assert (await account(ledger, BOB))["nonce"] == 1


async def test_a_model_that_fails_has_checked_nothing(tmp_path: Path) -> None:
    class BrokenModel(FakeModel):
        def check_request(self, prompt: str, max_tokens: int) -> None:
            raise MemoryError

    async with running_ledger(tmp_path, model=BrokenModel()) as ledger:
        request: dict[str, Any] = {"prompt": "hello", "max_tokens": 8}
        fields: dict[str, Any] = {
            "provider": BOB.key,
            "model_root": ledger.genesis.model_root,
            "price": 8000,
        }
        infer = sign(ledger, ALICE, "infer", 0, **fields, request=request, expires=9)
        with pytest.raises(MemoryError):
            await ledger.submit(infer)
        assert ledger.waiting == 0
        await send(ledger)


async def test_a_cancelled_submit_leaves_the_ledger_whole(tmp_path: Path) -> None:
    model = SlowModel()
    async with running_ledger(tmp_path, model=model) as ledger:
        raw = await transfer(ledger)
        with trio.CancelScope() as scope:
            scope.cancel()
            await ledger.submit(raw)
        assert scope.cancelled_caught
        await send(ledger)


def value_of(keeper: Keeper, path: str, data: dict[str, Json]) -> Any:
    return json.loads(keeper.query(path, encode(data)).value)


def hashes_of(block: StoredBlock) -> list[str]:
    return [transaction_hash(raw) for raw in block.transactions]


async def test_a_ledger_stopped_in_the_middle_of_a_block_has_all_or_none_of_it(
    tmp_path: Path,
) -> None:
    for turn in range(5):
        async with running_ledger(tmp_path) as ledger:
            before = await account(ledger, ALICE), await account(ledger, BOB)
            result = await ledger.submit(await transfer(ledger, amount=7))
            assert result.code == 0
            # Depending on the turn, this stops the ledger before, during or after the block.
            await trio.sleep(0.02 * turn)
            height = ledger.height
        keeper = Keeper(tmp_path, GENESIS, FakeModel(), KEY)
        try:
            latest = keeper.opened.latest
            found = 0 if latest is None else latest.height
            # No announced block is lost, and the state is that of the last stored block.
            assert found >= height
            assert value_of(keeper, "/summary", {})["height"] == found
            blocks = keeper._database.blocks(found + 1, found)
            holding = [one.height for one in blocks if result.hash in hashes_of(one)]
            assert len(holding) <= 1
            place = keeper._database.place(bytes.fromhex(result.hash))
            assert holding == ([] if place is None else [place[0]])
            after = [value_of(keeper, "/account", {"public_key": w.key}) for w in (ALICE, BOB)]
            assert after[0]["nonce"] == before[0]["nonce"] + len(holding)
            assert after[1]["total"] == before[1]["total"] + 7 * len(holding)
        finally:
            keeper.close()
    with pytest.raises(Unavailable, match="stopped"):
        await ledger.query("/summary")


# Readiness.


async def test_readiness_by_both_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_ledger(tmp_path) as ledger:
        await until(ledger, 2)
        assert ledger.readiness().ready
        assert ledger.readiness().seconds_since_block < 30
        # A stall by the wall clock.
        latest = ledger.latest
        assert latest is not None
        ledger._clock_ns = lambda: latest.time_ns + 31 * SECOND
        assert ledger.readiness().reason == "stalled"
        assert ledger.readiness().seconds_since_block >= 31
        # A wall clock that was set back does not hide a stall by the monotonic clock.
        ledger._clock_ns = lambda: 0
        assert ledger.readiness().ready
        ledger._block_at -= 31
        assert ledger.readiness().stalled
        ledger.latest = None
        assert ledger.readiness().reason == "unavailable"
        ledger.latest = latest


# Who may make blocks.


async def test_without_power_no_block_is_made(tmp_path: Path) -> None:
    stranger = ValidatorKey.of(bytes(32))
    async with running_ledger(tmp_path, key=stranger) as ledger:
        await eventually(lambda: ledger.trouble)
        assert "two thirds" in ledger.trouble
        assert ledger.readiness().reason == "unavailable"


def test_bonds_that_would_stop_the_chain_are_refused(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, GENESIS, FakeModel(), KEY)
    domain = parse_genesis(GENESIS).profile.bond_domain

    def bond(units: int, nonce: int) -> str:
        key = ValidatorKey.of(bytes([units]) * 32)
        amount = units * UNIT
        message = possession_message(
            domain, "test-chain-1", ALICE.key, key.public_key, amount, nonce
        )
        fields: dict[str, Any] = {
            "kind": "bond",
            "chain_id": "test-chain-1",
            "nonce": nonce,
            "amount": amount,
        }
        possession = key.sign(message).hex()
        signed = ALICE.sign({**fields, "consensus_key": key.public_key, "possession": possession})
        return keeper.submit(signed).log

    outvoted = "This network has one block maker, and it would be outvoted"
    assert bond(4, 0) == outvoted
    assert bond(2, 0) == ""
    # Counted together with the validator that waits for its power.
    assert bond(3, 1) == outvoted
    assert bond(1, 1) == ""
    keeper.make_block(0)
    assert bond(5, 2) == outvoted
    unbond: dict[str, Any] = {"kind": "unbond", "chain_id": "test-chain-1", "nonce": 2}
    assert keeper.submit(ALICE.sign({**unbond, "consensus_key": KEY.public_key})).log == outvoted
    # The others get their power but sign nothing; blocks are made all the same.
    for _ in range(12):
        stored = keeper.make_block(0)
    assert [entry.flag for entry in stored.commit.entries] == [2, 1, 1]
    keeper.close()


async def test_another_genesis_is_refused(tmp_path: Path) -> None:
    async with running_ledger(tmp_path):
        pass
    other = GENESIS.replace(b"test-chain-1", b"test-chain-2")
    with pytest.raises(ExceptionGroup) as caught:
        async with running_ledger(tmp_path, document=other):
            pass
    assert caught.group_contains(StartupError, match="holds another chain, test-chain-1")
