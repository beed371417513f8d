"""Inference jobs: paid once or expired once, whatever else happens."""

import pytest

from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.errors import (
    MissingQuorum,
)
from meshnode.domain.chain.genesis import GenesisValidator
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    CAROL,
    FEE,
    SECOND,
    UNIT,
    VALIDATOR,
    Body,
    Net,
    actor,
    balance,
    genesis,
)


def test_a_job_is_paid_once_and_its_verifiers_a_block_later() -> None:
    net = Net()
    job = net.do(ALICE, "infer", **net.infer(ALICE, BOB))
    assert net.account(ALICE)["locked"] == 8000
    assert net.account(ALICE)["balance"] == 5_000_000 - 8000 - FEE
    assert net.query("/jobs", provider=BOB.key)["jobs"][0]["id"] == job
    record = net.query("/job", id=job)
    assert (record["status"], record["created_height"], record["expires"]) == ("pending", 1, 4)

    net.do(BOB, "respond", job_id=job, result_root=net.result_root(job))
    record = net.query("/job", id=job)
    assert (record["status"], record["price"], record["provider_paid"]) == ("completed", 8000, 6400)
    assert record["output"]["text"] == "WHAT IS THE CAPITAL OF FRANCE?"
    assert balance(net, BOB) == 3_000_000 + 6400
    assert net.account(ALICE)["locked"] == 0
    assert "No live" in net.refused(BOB, "respond", job_id=job, result_root="0" * 64)
    # The only validator signed, so it gets the whole other fifth, and nothing is burned.
    assert balance(net, VALIDATOR) == 10_000_000 + 1600
    assert net.model.asked == [job]


def test_a_provider_needs_no_balance_and_may_be_the_owner() -> None:
    net = Net()
    job = net.do(ALICE, "infer", **net.infer(ALICE, CAROL))
    net.do(CAROL, "respond", job_id=job, result_root=net.result_root(job))
    assert net.account(CAROL)["balance"] == 6400
    job = net.do(ALICE, "infer", **net.infer(ALICE, ALICE))
    net.do(ALICE, "respond", job_id=job, result_root=net.result_root(job))
    assert balance(net, ALICE) == 5_000_000 - 2 * 8000 - 2 * FEE + 6400


def test_expiry_comes_before_the_block_s_transactions() -> None:
    net = Net()
    job = net.do(ALICE, "infer", **net.infer(ALICE, BOB))
    root = net.result_root(job)
    net.skip(2)
    last_chance = net.tx(BOB, "respond", job_id=job, result_root=root)
    assert net.app.check(last_chance).code == 0
    net.skip(1)
    assert net.app.check(last_chance).code == 1
    finalized = net.block([last_chance])
    assert finalized.results[0].log == "No live inference request for this provider"
    assert [(e.account, e.amount, e.reason) for e in finalized.effects] == [
        (ALICE.key, 8000, "refund")
    ]
    record = net.query("/job", id=job)
    assert (record["status"], record["refunded"], record["height"]) == ("expired", 8000, 5)
    assert net.account(ALICE)["balance"] == 5_000_000 - FEE


def test_a_response_in_the_last_block_is_in_time() -> None:
    net = Net()
    job = net.do(ALICE, "infer", **net.infer(ALICE, BOB))
    net.skip(2)
    net.do(BOB, "respond", job_id=job, result_root=net.result_root(job))
    assert net.app.height == 4


@pytest.mark.parametrize(
    ("changes", "log"),
    [
        ({"provider": "nobody"}, "Invalid public key"),
        ({"model_root": "0" * 64}, "Request must pin the current serving checkpoint"),
        ({"request": {"prompt": "", "max_tokens": 8}}, "Invalid inference prompt"),
        ({"request": {"prompt": "é" * 1025, "max_tokens": 8}}, "Invalid inference prompt"),
        ({"request": {"prompt": "a " * 300, "max_tokens": 8}}, "Invalid inference prompt"),
        ({"request": {"prompt": 5, "max_tokens": 8}}, "Invalid inference prompt"),
        ({"request": {"prompt": "a"}}, "Invalid inference prompt"),
        ({"request": "a"}, "Invalid inference prompt"),
        ({"request": {"prompt": "a", "max_tokens": 65}}, "Integer outside protocol bounds"),
        ({"request": {"prompt": "a", "max_tokens": 0}}, "Integer outside protocol bounds"),
        ({"price": 7999}, "Integer outside protocol bounds"),
        ({"price": 5_000_000}, "Insufficient available balance"),
        ({"expires": 2}, "Integer outside protocol bounds"),
        ({"expires": 10}, "Integer outside protocol bounds"),
    ],
)
def test_wrong_requests_are_refused_with_the_reason(changes: Body, log: str) -> None:
    net = Net()
    assert net.refused(ALICE, "infer", **net.infer(ALICE, BOB, **changes)) == log


@pytest.mark.parametrize("expires", [3, 9])
def test_the_bounds_of_expiry_are_included(expires: int) -> None:
    net = Net()
    net.do(ALICE, "infer", **net.infer(ALICE, BOB, expires=expires))


def test_the_queue_is_bounded_and_locked_money_cannot_be_spent_twice() -> None:
    net = Net()
    for _ in range(3):
        net.do(ALICE, "infer", **net.infer(ALICE, BOB, price=1_600_000, expires=net.app.height + 8))
    fields = net.infer(BOB, ALICE)
    assert net.refused(BOB, "infer", **fields) == "Inference queue is full"
    assert "Insufficient" in net.refused(ALICE, "transfer", to=BOB.key, amount=200_000)
    assert "Insufficient" in net.refused(ALICE, "stake", amount=200_000, duration_days=1)


def test_only_the_provider_answers_and_only_what_a_replay_gives() -> None:
    net = Net()
    job = net.do(ALICE, "infer", **net.infer(ALICE, BOB, expires=9))
    root = net.result_root(job)
    assert "No live" in net.refused(CAROL, "respond", job_id=job, result_root=root)
    assert "full replay" in net.refused(BOB, "respond", job_id=job, result_root="0" * 64)
    assert "64" in net.refused(BOB, "respond", job_id=job.upper(), result_root=root)
    assert "64" in net.refused(BOB, "respond", job_id=[job], result_root=root)
    net.do(BOB, "respond", job_id=job, result_root=root)


def test_dropped_and_never_seen_jobs_are_told_apart_where_they_can_be() -> None:
    net = Net()
    unknown = encode({"id": "0" * 64})
    assert (
        net.app.query("/job", unknown).log == "Request not found: no block has accepted it so far"
    )
    jobs = []
    for _ in range(5):
        job = net.do(ALICE, "infer", **net.infer(ALICE, BOB))
        net.do(BOB, "respond", job_id=job, result_root=net.result_root(job))
        jobs.append(job)
    assert "inspect its native blocks" in net.app.query("/job", encode({"id": jobs[0]})).log
    assert "inspect its native blocks" in net.app.query("/job", unknown).log
    assert [net.query("/job", id=job)["status"] for job in jobs[1:]] == ["completed"] * 4


def test_verifier_pay_needs_the_commit_of_the_block_before() -> None:
    net = Net()
    job = net.do(ALICE, "infer", **net.infer(ALICE, BOB))
    net.do(BOB, "respond", job_id=job, result_root=net.result_root(job))
    with pytest.raises(MissingQuorum):
        net.app.process(Block(BlockFrame(3, 3 * SECOND)))


def test_two_thirds_of_the_power_are_not_enough_and_rounding_is_burned() -> None:
    others = [actor(name) for name in ("half", "quarter")]
    validators = (
        GenesisValidator(VALIDATOR.key, VALIDATOR.consensus_key, 4 * UNIT),
        *(GenesisValidator(who.key, who.consensus_key, UNIT) for who in others),
    )
    net = Net(genesis(validators=validators))
    net.committers = frozenset(who.address for who in (VALIDATOR, *others))
    fields = net.infer(ALICE, BOB, price=8007)
    job = net.do(ALICE, "infer", **fields)
    net.do(BOB, "respond", job_id=job, result_root=net.result_root(job))
    exactly = BlockFrame(3, 3 * SECOND, frozenset({VALIDATOR.address}))
    with pytest.raises(MissingQuorum):
        net.app.process(Block(exactly))
    # One with a sixth of the power is absent, so a sixth of 8007 - 6405 = 1602 is burned.
    burned = net.query("/summary")["burned"]
    net.committers = frozenset({VALIDATOR.address, others[0].address})
    finalized = net.block()
    assert sorted((e.account, e.amount) for e in finalized.effects) == sorted(
        [(VALIDATOR.key, 1068), (others[0].key, 267)]
    )
    assert net.query("/summary")["burned"] == burned + 267
