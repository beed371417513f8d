"""Transfers, nonces, blocks and queries: their effects, and the rule behind each refusal."""

from dataclasses import replace

import pytest

from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.canonical import digest
from meshnode.domain.chain.errors import (
    InvalidTransaction,
    TooManyTransactions,
    WrongHeight,
)
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    CAROL,
    CHAIN_ID,
    FEE,
    PROFILE,
    SECOND,
    Body,
    Net,
    balance,
    genesis,
)


def test_transfers_pay_the_fee_and_count_the_nonce() -> None:
    net = Net()
    net.do(ALICE, "transfer", to=CAROL.key, amount=7)
    assert net.account(ALICE) == {
        "public_key": ALICE.key,
        "balance": 5_000_000 - 7 - FEE,
        "locked": 0,
        "total": 5_000_000 - 7 - FEE,
        "nonce": 1,
    }
    assert net.account(CAROL)["balance"] == 7
    assert net.account(CAROL)["nonce"] == 0
    summary = net.query("/summary")
    assert (summary["burned"], summary["account_count"]) == (FEE, 4)


def test_a_transfer_to_oneself_costs_the_fee() -> None:
    net = Net()
    net.do(ALICE, "transfer", to=ALICE.key, amount=5_000_000 - FEE)
    assert balance(net, ALICE) == 5_000_000 - FEE


@pytest.mark.parametrize(
    ("changes", "log"),
    [
        ({"kind": "mint"}, "Unknown native transaction kind"),
        ({"kind": 7}, "Unknown native transaction kind"),
        ({"kind": None}, "Unknown native transaction kind"),
        ({"memo": "hello"}, "Invalid transaction schema"),
        ({"chain_id": "test-chain-2"}, "Wrong chain"),
        ({"chain_id": ["test-chain-1"]}, "Wrong chain"),
        ({"nonce": 1}, "Wrong account nonce"),
        ({"nonce": -1}, "Integer outside protocol bounds"),
        ({"nonce": True}, "Integer outside protocol bounds"),
        ({"nonce": "0"}, "Integer outside protocol bounds"),
        ({"amount": 0}, "Integer outside protocol bounds"),
        ({"amount": 2**60 + 1}, "Integer outside protocol bounds"),
        ({"amount": True}, "Integer outside protocol bounds"),
        ({"amount": "5"}, "Integer outside protocol bounds"),
        ({"amount": 5_000_000}, "Insufficient available balance"),
        ({"to": "02" + "f" * 64}, "Invalid public key"),
        ({"to": [ALICE.key]}, "Invalid public key"),
    ],
)
def test_wrong_transfers_are_refused_with_the_reason(changes: Body, log: str) -> None:
    net = Net()
    body: Body = {"kind": "transfer", "chain_id": CHAIN_ID, "nonce": 0, "to": BOB.key, "amount": 1}
    before = net.store.entries()
    (result,) = net.block([ALICE.sign({**body, **changes})]).results
    assert (result.code, result.log, result.id) == (1, log, None)
    assert {k: v for k, v in net.store.entries().items() if before.get(k) != v}.keys() == {"clock"}


def test_a_kind_that_is_not_in_force_is_unknown() -> None:
    net = Net(genesis(replace(PROFILE, kinds=("infer", "respond"))))
    assert net.refused(ALICE, "transfer", to=BOB.key, amount=1).startswith("Unknown")


def test_the_fee_counts_against_the_balance() -> None:
    net = Net()
    assert "Insufficient" in net.refused(ALICE, "transfer", to=BOB.key, amount=5_000_001 - FEE)
    assert "Insufficient" in net.refused(CAROL, "transfer", to=BOB.key, amount=1)


def test_several_transactions_of_one_account_wait_in_order() -> None:
    net = Net()
    body = net.body(ALICE, "transfer", to=BOB.key, amount=1)
    first, second = ALICE.sign(body), ALICE.sign({**body, "nonce": 1})
    assert net.app.check(second).code == 1
    assert net.app.check(first).code == 0
    assert net.app.check(second).code == 0
    assert net.app.check(first).code == 1
    # A commit resets the nonces that the checks expect.
    net.block()
    assert net.app.check(first).code == 0
    frame = BlockFrame(2, 2 * SECOND, net.committers)
    assert net.app.propose(frame, [second, first, b"junk", second], 10_000) == (first, second)
    assert net.app.propose(frame, [first, second], len(first)) == (first,)


def test_a_proposal_must_follow_and_must_not_fail() -> None:
    net = Net()
    good, junk = net.tx(ALICE, "transfer", to=BOB.key, amount=1), b"junk"
    frame = BlockFrame(1, SECOND)
    net.app.process(Block(frame, (good,)))
    with pytest.raises(InvalidTransaction):
        net.app.process(Block(frame, (good, junk)))
    with pytest.raises(WrongHeight):
        net.app.process(Block(BlockFrame(2, SECOND)))
    net.block([good])
    with pytest.raises(WrongHeight):
        net.app.process(Block(BlockFrame(2, SECOND - 1)))
    with pytest.raises(TooManyTransactions):
        net.app.process(Block(BlockFrame(2, SECOND), (junk,) * 1001))
    with pytest.raises(TooManyTransactions):
        net.app.process(Block(BlockFrame(2, SECOND), (b"x" * 600_000,) * 2))
    assert net.app.height == 1


def test_finalizing_again_gives_the_same_and_changes_nothing() -> None:
    net = Net()
    block = Block(BlockFrame(1, SECOND), (net.tx(ALICE, "transfer", to=BOB.key, amount=1),))
    first = net.app.finalize(block)
    net.app.finalize(Block(BlockFrame(1, 5)))
    assert net.app.finalize(block) == first
    assert net.app.height == 0
    net.app.commit()
    assert (net.app.height, net.app.app_hash) == (1, first.app_hash)


@pytest.mark.parametrize(
    ("path", "data", "log"),
    [
        ("/account", b"{}", "'public_key'"),
        ("/account", b'{"public_key":"x"}', "Invalid public key"),
        ("/validators", b'{"limit":0}', "Integer outside protocol bounds"),
        ("/validators", b'{"limit":101}', "Integer outside protocol bounds"),
        ("/validators", b'{"after":"x"}', "Invalid consensus key"),
        ("/job", b'{"id":5}', "Expected 64 lowercase hexadecimal characters"),
        ("/jobs", b"[]", "Invalid query"),
        ("/jobs", b"{", "Malformed JSON"),
        ("/nothing", b"", "Unknown query"),
    ],
)
def test_a_query_that_cannot_be_answered_is_a_result(path: str, data: bytes, log: str) -> None:
    result = Net().app.query(path, data)
    assert (result.code, result.log, result.value) == (1, log, b"")


def test_the_summary_has_the_native_api_s_fields() -> None:
    net = Net()
    net.skip(1)
    summary = net.query("/summary")
    names = (
        "chain_id height time_ns round model_root serving_root issued burned initial_supply "
        "last_training_loss_hex validation_loss_hex serving_loss_hex last_training_evaluation "
        "lease validator_count total_voting_power account_count params profile manifest_hash "
        "app_hash pending_inference"
    )
    assert set(summary) == set(names.split())
    assert len(summary["params"]) == 15
    assert summary["app_hash"] == net.app.app_hash.hex()
    assert summary["manifest_hash"] == digest(net.query("/manifest"))
    assert net.query("/status") == summary
