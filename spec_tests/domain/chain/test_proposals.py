"""A block that is decided as it was proposed is not executed twice, and any other one is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.errors import LedgerBroken, MissingQuorum
from spec_tests.domain.chain.net import ALICE, BOB, CAROL, SECOND, Net

ROOM = 1 << 20


def chains() -> tuple[Net, Net, BlockFrame, tuple[bytes, ...]]:
    """Two equal chains with a reward for verifiers, the next block's frame, and transactions."""
    nets = Net(), Net()
    for net in nets:
        job = net.do(ALICE, "infer", **net.infer(ALICE, BOB))
        net.do(BOB, "respond", job_id=job, result_root=net.result_root(job))
    net = nets[0]
    raws = (
        net.tx(ALICE, "transfer", to=CAROL.key, amount=7),
        b"not a transaction",
        net.tx(ALICE, "transfer", to=BOB.key, amount=7),
        net.tx(BOB, "transfer", to=CAROL.key, amount=3),
    )
    frame = BlockFrame(net.app.height + 1, net.app.time_ns + SECOND, net.committers)
    return *nets, frame, raws


def test_a_proposal_has_the_outcome_of_its_block() -> None:
    proposer, other, frame, raws = chains()
    chosen = proposer.app.propose(frame, raws, ROOM)
    # The second transfer of ALICE has a nonce that was used.
    assert chosen == (raws[0], raws[3])
    block = Block(frame, chosen)
    proposer.app.process(block)
    assert proposer.app.finalize(block) == other.app.finalize(block)
    for net in (proposer, other):
        net.app.commit()
    assert proposer.app.app_hash == other.app.app_hash
    assert proposer.store.entries() == other.store.entries()


def test_another_time_or_other_transactions_are_executed() -> None:
    proposer, other, frame, raws = chains()
    chosen = proposer.app.propose(frame, raws, ROOM)
    later = replace(frame, time_ns=frame.time_ns + 1)
    for block in (Block(later, chosen), Block(frame, chosen[:1]), Block(frame, chosen[::-1])):
        found = proposer.app.finalize(block)
        assert found.block == block
        assert found == other.app.finalize(block)


def test_other_votes_are_executed() -> None:
    proposer, _, frame, raws = chains()
    chosen = proposer.app.propose(frame, raws, ROOM)
    with pytest.raises(MissingQuorum):
        proposer.app.finalize(Block(replace(frame, committers=frozenset()), chosen))


def test_a_proposal_alone_cannot_be_committed() -> None:
    proposer, _, frame, raws = chains()
    proposer.app.propose(frame, raws, ROOM)
    with pytest.raises(LedgerBroken):
        proposer.app.commit()


def test_what_is_remembered_of_the_state_is_what_the_store_has() -> None:
    """After many blocks, an application that was running all the time agrees with a new one."""
    net, _, _, _ = chains()
    for amount in range(1, 6):
        net.do(ALICE, "transfer", to=CAROL.key, amount=amount)
        job = net.do(ALICE, "infer", **net.infer(ALICE, BOB))
        net.do(BOB, "respond", job_id=job, result_root=net.result_root(job))
        fresh = type(net.app)(net.app.genesis, net.store, net.model)
        frame = BlockFrame(net.app.height + 1, net.app.time_ns + SECOND, net.committers)
        block = Block(frame, (net.tx(CAROL, "transfer", to=ALICE.key, amount=1),))
        assert fresh.finalize(block) == net.app.finalize(block)
