"""The calls of ABCI 2.0 against the ledger: order, faults, and what is on the disk when."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio

from meshnode.domain.chain.application import Application
from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.validators import validator_address
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.genesis import parse_genesis
from meshnode.domain.chain.statetree import MemoryStore
from meshnode.services.abci.frames import frame
from meshnode.services.ledger.database import LedgerDatabase, StorageRefused
from meshnode.wire import abci_pb2 as pb
from spec_tests.domain.chain.net import ALICE, BOB, FakeModel
from spec_tests.services.abci.engine import START_S, connected
from spec_tests.services.ledger.ledgers import GENESIS, KEY


def transfer(nonce: int, amount: int = 1) -> bytes:
    body: dict[str, Json] = {"kind": "transfer", "chain_id": "test-chain-1", "nonce": nonce}
    return ALICE.sign({**body, "to": BOB.key, "amount": amount})


def heights(folder: Path) -> tuple[int, int]:
    """The height of the stored state, and how many outcomes wait for their block."""
    with sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True) as file:
        (clock,) = file.execute("SELECT value FROM state WHERE key = 'clock'").fetchone()
        (waiting,) = file.execute("SELECT count(*) FROM decided").fetchone()
    file.close()
    return int(bytes(clock).split(b'"height":')[1].split(b",")[0]), waiting


async def test_nothing_is_written_before_the_commit(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        found = await engine.finalize(transfer(0))
        assert [one.code for one in found.tx_results] == [0]
        assert len(found.app_hash) == 32
        assert heights(tmp_path) == (0, 0)
        await engine.commit()
        assert heights(tmp_path) == (1, 1)
        info = (await engine.ask(info=pb.RequestInfo())).info
        assert (info.last_block_height, info.last_block_app_hash) == (1, found.app_hash)


async def test_a_crash_before_the_first_commit_meets_init_chain_again(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        first = await engine.finalize(transfer(0))
    async with connected(tmp_path) as engine:
        assert (await engine.handshake()).last_block_height == 0
        assert await engine.finalize(transfer(0)) == first
        await engine.commit()
    async with connected(tmp_path) as engine:
        info = await engine.handshake()
        assert (info.last_block_height, info.last_block_app_hash) == (1, first.app_hash)


async def test_the_state_is_the_one_that_the_pure_application_computes(tmp_path: Path) -> None:
    pure = Application(parse_genesis(GENESIS), MemoryStore(), FakeModel())
    committers = frozenset({validator_address(KEY.public_key)})
    async with connected(tmp_path) as engine:
        await engine.handshake()
        for height in range(1, 6):
            raw = transfer(height - 1, amount=height)
            frame = BlockFrame(
                height,
                (START_S + height - 1) * 10**9 + 5,
                committers if height > 1 else frozenset(),
            )
            finalized = pure.finalize(Block(frame, (raw,)))
            pure.commit()
            assert await engine.prepare(raw) == [raw]
            assert await engine.process(raw)
            assert (await engine.finalize(raw)).app_hash == finalized.app_hash
            await engine.commit()


async def test_an_invalid_transaction_never_gets_into_a_proposal(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        good, early, junk = transfer(0), transfer(5), b"\x00 no envelope"
        assert await engine.prepare(early, good, junk) == [good]
        assert not await engine.process(good, early)
        assert not await engine.process(junk)
        assert await engine.process(good)
        assert (await engine.check(junk)).code == 1
        assert (await engine.check(good)).code == 0


async def test_a_proposal_fits_the_room_that_the_engine_gives(tmp_path: Path) -> None:
    raws = [transfer(nonce) for nonce in range(8)]
    async with connected(tmp_path) as engine:
        await engine.handshake()
        for count in range(9):
            # CometBFT counts each transaction as a field of a message.
            room = sum(len(raw) + 1 + (2 if len(raw) < 1 << 14 else 3) for raw in raws[:count])
            chosen = await engine.prepare(*raws, room=room)
            assert sum(len(raw) + 3 for raw in chosen) <= room


async def test_checks_that_arrive_together_are_answered_in_order(tmp_path: Path) -> None:
    raws = [transfer(nonce) for nonce in (0, 1, 5, 2, 1)]
    async with connected(tmp_path) as engine:
        await engine.handshake()
        checks = [pb.Request(check_tx=pb.RequestCheckTx(tx=raw)) for raw in raws]
        echo = pb.Request(echo=pb.RequestEcho(message="m"))
        answers = await engine.ask_all([echo, *checks, echo])
        assert [one.WhichOneof("value") for one in answers] == ["echo", *["check_tx"] * 5, "echo"]
        assert [one.check_tx.code for one in answers[1:-1]] == [0, 0, 1, 0, 1]


async def test_checks_begin_anew_after_a_commit(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        assert (await engine.check(transfer(0))).code == 0
        assert (await engine.check(transfer(1))).code == 0
        await engine.finalize(transfer(0))
        await engine.commit()
        assert (await engine.check(transfer(1), again=True)).code == 0
        assert (await engine.check(transfer(0), again=True)).code == 1


async def test_one_account_cannot_fill_the_engines_mempool(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        answers = [await engine.check(transfer(nonce)) for nonce in range(101)]
        assert [one.code for one in answers] == [0] * 100 + [1]
        assert "Too many" in answers[-1].log


async def test_a_faulty_query_is_a_code(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        for path, height, prove in (("/nowhere", 0, False), ("/summary", 9, False), ("", 0, True)):
            query = pb.RequestQuery(path=path, height=height, prove=prove)
            answer = await engine.ask(query=query)
            assert answer.WhichOneof("value") == "query"
            assert answer.query.code == 1


async def test_a_commit_waits_for_a_disk_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    write, refusals = LedgerDatabase.write_decided, [StorageRefused("full"), StorageRefused("full")]

    def refusing(*arguments: object) -> None:
        # The engine waits for this node now, and is not replaced meanwhile (decision 0241).
        assert engine.ledger.executing
        if refusals:
            raise refusals.pop()
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LedgerDatabase, "write_decided", refusing)
    async with connected(tmp_path) as engine:
        await engine.handshake()
        await engine.finalize(transfer(0))
        assert not engine.ledger.executing
        await engine.commit()
        assert not engine.ledger.executing
        assert engine.ledger.trouble == "full"
        assert heights(tmp_path) == (1, 1)


async def refused_by_ending(folder: Path, request: pb.Request) -> None:
    async with connected(folder) as engine:
        with trio.move_on_after(5):
            await engine.ask_all([request])


async def test_a_decided_block_that_the_rules_refuse_ends_the_node(tmp_path: Path) -> None:
    request = pb.Request(finalize_block=pb.RequestFinalizeBlock(height=6))
    with pytest.RaisesGroup(pytest.RaisesExc(LedgerBroken, match="block 6 was decided")):
        await refused_by_ending(tmp_path, request)


async def test_another_chain_ends_the_node(tmp_path: Path) -> None:
    request = pb.Request(init_chain=pb.RequestInitChain(chain_id="other", initial_height=1))
    with pytest.RaisesGroup(pytest.RaisesExc(LedgerBroken, match="begins the chain other")):
        await refused_by_ending(tmp_path, request)


async def test_an_engine_that_ends_while_it_is_answered_is_no_failure(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        assert (await engine.check(transfer(0))).code == 0
        checks = [pb.Request(check_tx=pb.RequestCheckTx(tx=transfer(1)))] * 3
        await engine.stream.send_all(b"".join(frame(one.SerializeToString()) for one in checks))
        await engine.stream.aclose()
        with trio.fail_after(30):
            await engine.served.wait()


async def test_checks_and_flushes_that_arrive_mixed_are_answered_in_order(tmp_path: Path) -> None:
    async with connected(tmp_path) as engine:
        await engine.handshake()
        flush = pb.Request(flush=pb.RequestFlush())
        checks = [pb.Request(check_tx=pb.RequestCheckTx(tx=transfer(n))) for n in range(3)]
        asked = [flush, checks[0], flush, flush, checks[1], checks[2], flush]
        answers = await engine.ask_all(asked)
        assert [a.WhichOneof("value") for a in answers] == [q.WhichOneof("value") for q in asked]
        assert all(one.check_tx.code == 0 for one in answers)
