"""A lying producer is refused and its lie reported (interface 2.2 and 4.2; decision 0074)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshnode.domain.chain.comet.assembly import sign_alone
from meshnode.domain.chain.comet.commits import Commit, CommitEntry
from meshnode.domain.chain.comet.headers import CometBlock, data_hash
from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.services.ledger import (
    ValidatorKey,
)
from spec_tests.services.ledger.following import pair, root
from spec_tests.services.ledger.ledgers import (
    LedgerSource,
    eventually,
    running_ledger,
    send,
    until,
)

pytestmark = pytest.mark.usefixtures("no_pauses")

SECOND = 1_000_000_000


def changed(**fields: Any) -> Callable[[CometBlock], CometBlock]:
    """Return a function that changes these header fields from height 3 on."""

    def bend(block: CometBlock) -> CometBlock:
        if block.header.height < 3:
            return block
        return replace(block, header=replace(block.header, **fields))

    return bend


def later(block: CometBlock) -> CometBlock:
    header = block.header
    return replace(block, header=replace(header, time_ns=header.time_ns + 1))


def without_transactions(block: CometBlock) -> CometBlock:
    header = replace(block.header, data_hash=data_hash(()))
    return CometBlock(header, (), block.last_commit)


def other_transactions(block: CometBlock) -> CometBlock:
    raws = tuple(raw + b" " for raw in block.transactions)
    return replace(block, transactions=raws)


def gap(block: CometBlock) -> CometBlock:
    header = replace(block.header, height=block.header.height + 1)
    return replace(block, header=header)


def replay(block: CometBlock) -> CometBlock:
    height = 1 if block.header.height > 1 else 2
    return replace(block, header=replace(block.header, height=height))


def old_commit(block: CometBlock) -> CometBlock:
    return replace(block, last_commit=Commit())


LIES: dict[str, tuple[Callable[[CometBlock], CometBlock], str]] = {
    "app hash": (changed(app_hash=b"\x01" * 32), "app_hash"),
    "results": (changed(last_results_hash=b"\x01" * 32), "last_results_hash"),
    "chain": (changed(chain_id="another"), "chain_id"),
    "validators": (changed(validators_hash=b"\x01" * 32), "validators_hash"),
    "next validators": (changed(next_validators_hash=b"\x01" * 32), "next_validators_hash"),
    "parameters": (changed(consensus_hash=b"\x01" * 32), "consensus_hash"),
    "evidence": (changed(evidence_hash=b"\x01" * 32), "evidence_hash"),
    "proposer": (changed(proposer="AB" * 20), "Malformed"),
    "version": (changed(app_version=3), "app_version"),
    "time": (later, "time_ns"),
    "no transactions": (without_transactions, "Commit does not prove"),
    "other transactions": (other_transactions, "data_hash"),
    "gap": (gap, "height"),
    "replay": (replay, "height"),
    "last commit": (old_commit, "Commit does not prove"),
}


@pytest.mark.parametrize(("bend", "reason"), LIES.values(), ids=LIES)
async def test_a_lying_producer_is_refused(
    tmp_path: Path, bend: Callable[[CometBlock], CometBlock], reason: str
) -> None:
    async with pair(tmp_path, bend_block=bend) as (producer, source, follows):
        await eventually(lambda: follows.refusing)
        assert reason in follows.trouble
        assert source.name in follows.trouble
        readiness = follows.readiness()
        assert (readiness.ready, readiness.reason) == (False, "unavailable")
        assert follows.height < producer.height
        # Once the producer's blocks are right again, they are accepted.
        source.bend_block = lambda block: block
        await until(follows, producer.height)
        await eventually(lambda: not follows.refusing)
        assert root(follows) == root(producer)


def forged(commit: Commit) -> Commit:
    (entry,) = commit.entries
    return replace(commit, entries=(replace(entry, signature=bytes(64)),))


def absent(commit: Commit) -> Commit:
    return replace(commit, entries=(CommitEntry(1),))


def early(commit: Commit) -> Commit:
    (entry,) = commit.entries
    return replace(commit, entries=(replace(entry, time_ns=entry.time_ns - SECOND),))


@pytest.mark.parametrize("bend", [forged, absent, early])
async def test_a_forged_commit_is_refused(tmp_path: Path, bend: Callable[[Commit], Commit]) -> None:
    async with pair(tmp_path, bend_commit=bend) as (producer, _, follows):
        await eventually(lambda: follows.refusing)
        assert "Commit does not prove" in follows.trouble
        # The commits inside the blocks are right, but only this commit could prove the last block.
        assert follows.height < producer.height


async def test_a_fork_is_refused(tmp_path: Path) -> None:
    """A producer that lost its folder makes the chain anew with the same key, and is refused."""
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        async with running_ledger(tmp_path / "again") as other:
            for _ in range(2):
                await send(other, amount=99)
            source.ledger = other
            await eventually(lambda: follows.refusing)
            assert "does not follow the one that is known here" in follows.trouble
            # It is still refused once it is longer than the follower's chain.
            while other.height <= follows.height + 2:
                await send(other)
            height = follows.height
            source.asked.clear()
            await eventually(lambda: source.asked.count("status") > 3)
            assert follows.refusing
            assert follows.height == height
            source.ledger = producer
            await until(follows, await send(producer))
            assert not follows.refusing


async def test_a_chain_that_another_key_signs_is_refused(tmp_path: Path) -> None:
    thief = ValidatorKey.of(bytes(32))

    def resigned(block: CometBlock) -> CometBlock:
        return replace(block, header=replace(block.header, proposer=thief.address))

    def signed(commit: Commit) -> Commit:
        block = resigned(blocks[commit.height])
        return sign_alone(
            "test-chain-1", block, (CometValidator(thief.public_key, 8),), 0, bytes(32)
        )

    blocks: dict[int, CometBlock] = {}
    async with running_ledger(tmp_path / "producer") as producer:
        await until(producer, 1)
        blocks |= {one.height: one.block for one in await producer.blocks(None, 10)}
        source = LedgerSource(
            producer,
            bend_block=resigned,
            bend_commit=signed,
            bend_status=lambda info: replace(info, height=1),
        )
        async with running_ledger(tmp_path / "follower", None, source) as follows:
            await eventually(lambda: follows.refusing)
            assert follows.height == 0


async def test_another_chain_is_refused(tmp_path: Path) -> None:
    bent = {"bend_status": lambda info: replace(info, chain_id="another")}
    async with pair(tmp_path, **bent) as (_, _, follows):
        await eventually(lambda: follows.refusing)
        assert "Wrong chain" in follows.trouble


async def test_a_source_that_pretends_to_be_behind_does_not_count_as_a_fork(tmp_path: Path) -> None:
    async with pair(tmp_path) as (producer, source, follows):
        await until(follows, producer.height)
        first = await producer.block(1)
        assert first is not None
        source.bend_status = lambda info: replace(info, height=1, hash=first.hash)
        source.asked.clear()
        await eventually(lambda: source.asked.count("status") > 3)
        assert not follows.refusing
        assert follows.height == producer.height


async def test_a_source_that_promises_blocks_and_has_none(tmp_path: Path) -> None:
    bent = {"bend_status": lambda info: replace(info, height=2**60)}
    async with pair(tmp_path, **bent) as (producer, _, follows):
        await eventually(lambda: "no such block" in follows.trouble)
        assert follows.height >= producer.height - 1
        assert follows.readiness().reason == "catching_up"
