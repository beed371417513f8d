"""Each kind of transaction: what it does, and the rule behind each refusal."""

from dataclasses import replace
from typing import Any

import pytest
from support_chain import (
    ALICE,
    BOB,
    CAROL,
    CHAIN_ID,
    DAY,
    PROFILE,
    ROOT,
    SECOND,
    UNIT,
    VALIDATOR,
    Actor,
    Net,
    actor,
    genesis,
    next_root,
    receipt_bodies,
)

from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.bonds import Misbehaviour
from meshnode.domain.chain.canonical import Json, digest, encode
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.errors import (
    InvalidEvidence,
    InvalidTransaction,
    MissingQuorum,
    NoVotingPowerLeft,
    TooManyTransactions,
    WrongHeight,
)
from meshnode.domain.chain.genesis import GenesisValidator

FEE = PROFILE.params.fee
Body = dict[str, Json]


def balance(net: Net, who: Actor) -> int:
    return int(net.account(who)["balance"])


# Any transaction.


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
def test_what_is_wrong_with_a_transfer(changes: Body, log: str) -> None:
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
    # A commit starts the checks anew.
    net.block()
    assert net.app.check(first).code == 0
    frame = BlockFrame(2, 2 * SECOND, net.committers)
    assert net.app.propose(frame, [second, first, b"junk", second], 10_000) == (first, second)
    assert net.app.propose(frame, [first, second], len(first)) == (first,)


# Blocks.


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


# Inference jobs.


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
    # The one validator signed: it got the other fifth, of which nothing was left to burn.
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
def test_what_is_wrong_with_a_request(changes: Body, log: str) -> None:
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
    assert net.app.query("/job", unknown).log == "Request not found: it was never accepted"
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
    # 8007 - 6405 = 1602 for the verifiers, of whom one with a sixth of the power is absent.
    exactly = BlockFrame(3, 3 * SECOND, frozenset({VALIDATOR.address}))
    with pytest.raises(MissingQuorum):
        net.app.process(Block(exactly))
    burned = net.query("/summary")["burned"]
    net.committers = frozenset({VALIDATOR.address, others[0].address})
    finalized = net.block()
    assert sorted((e.account, e.amount) for e in finalized.effects) == sorted(
        [(VALIDATOR.key, 1068), (others[0].key, 267)]
    )
    assert net.query("/summary")["burned"] == burned + 267


# Validators.


def bond_fields(net: Net, who: Actor, units: int = 2) -> Body:
    amount, nonce = units * UNIT, net.account(who)["nonce"]
    possession = who.possession(amount, nonce)
    return {"consensus_key": who.consensus_key, "amount": amount, "possession": possession}


def validator_keys(net: Net) -> list[str]:
    return [one["public_key"] for one in net.query("/validators")["validators"]]


def test_a_validator_joins_leaves_and_withdraws() -> None:
    net = Net()
    net.do(ALICE, "bond", **bond_fields(net, ALICE))
    assert balance(net, ALICE) == 5_000_000 - 2 * UNIT - FEE
    # Bonded in block 1: announced at the first epoch from 1 + 2 on, with power two blocks later.
    net.skip(2)
    announced = net.block()
    assert [(u.consensus_key, u.power) for u in announced.validator_updates] == [
        (ALICE.consensus_key, 2)
    ]
    # What headers need: the set of the next block, and of the one after it.
    assert [one.power for one in net.app.validators(5)] == [8]
    assert [one.power for one in net.app.validators(6)] == [8, 2]
    net.skip(1)
    assert ALICE.consensus_key not in validator_keys(net)
    net.skip(1)
    assert validator_keys(net) == sorted([ALICE.consensus_key, VALIDATOR.consensus_key])

    net.skip(1)
    net.do(ALICE, "unbond", consensus_key=ALICE.consensus_key)
    assert "Only an active" in net.refused(ALICE, "unbond", consensus_key=ALICE.consensus_key)
    net.skip(2)
    (update,) = net.block().validator_updates
    assert (net.app.height, update.power) == (12, 0)
    exposed = "Bond is still exposed to the evidence window"
    # Six blocks, and more than six seconds of them.
    for _ in range(PROFILE.params.evidence_blocks + 2):
        assert net.refused(ALICE, "withdraw", consensus_key=ALICE.consensus_key) == exposed
    before = balance(net, ALICE)
    net.do(ALICE, "withdraw", consensus_key=ALICE.consensus_key)
    assert balance(net, ALICE) == before + 2 * UNIT - FEE
    assert "Consensus key was used" in net.refused(ALICE, "bond", **bond_fields(net, ALICE))


def test_time_must_pass_too_before_a_bond_is_free() -> None:
    net = Net()
    net.do(ALICE, "bond", **bond_fields(net, ALICE))
    net.skip(6)
    net.do(ALICE, "unbond", consensus_key=ALICE.consensus_key)
    net.skip(30, seconds=0)
    assert "exposed" in net.refused(ALICE, "withdraw", consensus_key=ALICE.consensus_key)
    net.skip(1, seconds=7)
    net.do(ALICE, "withdraw", consensus_key=ALICE.consensus_key)


@pytest.mark.parametrize(
    ("changes", "log"),
    [
        ({"amount": UNIT + 1}, "Bond must be a multiple of the voting unit"),
        ({"amount": 0}, "Integer outside protocol bounds"),
        ({"amount": 40 * UNIT}, "Consensus-key possession proof failed"),
        ({"possession": "00"}, "Consensus-key possession proof failed"),
        ({"possession": 5}, "Consensus-key possession proof failed"),
        ({"consensus_key": "AB" * 32}, "Invalid consensus key"),
        ({"consensus_key": VALIDATOR.consensus_key}, "Consensus key was used before"),
        ({"consensus_key": BOB.consensus_key}, "Consensus-key possession proof failed"),
    ],
)
def test_what_is_wrong_with_a_bond(changes: Body, log: str) -> None:
    net = Net()
    assert net.refused(ALICE, "bond", **{**bond_fields(net, ALICE), **changes}) == log


def test_the_possession_is_for_one_bond_only() -> None:
    net = Net()
    fields = bond_fields(net, ALICE)
    net.do(ALICE, "transfer", to=BOB.key, amount=1)
    assert "possession" in net.refused(ALICE, "bond", **fields)
    assert "possession" in net.refused(BOB, "bond", **fields)


def test_the_last_validator_stays() -> None:
    net = Net()
    assert "replacement" in net.refused(VALIDATOR, "unbond", consensus_key=VALIDATOR.consensus_key)
    assert "different account" in net.refused(
        ALICE, "unbond", consensus_key=VALIDATOR.consensus_key
    )


def test_evidence_burns_a_quarter_once_and_jails() -> None:
    net = Net()
    net.do(ALICE, "bond", **bond_fields(net, ALICE))
    net.skip(6)
    offence = Misbehaviour(1, ALICE.address, 6)
    burned = net.query("/summary")["burned"]
    finalized = net.block(misbehaviour=(offence, offence))
    assert [(u.consensus_key, u.power) for u in finalized.validator_updates] == [
        (ALICE.consensus_key, 0)
    ]
    assert net.query("/summary")["burned"] == burned + UNIT // 2
    net.block(misbehaviour=(offence,))
    assert net.query("/summary")["burned"] == burned + UNIT // 2
    net.skip(9)
    before = balance(net, ALICE)
    net.do(ALICE, "withdraw", consensus_key=ALICE.consensus_key)
    assert balance(net, ALICE) == before + 2 * UNIT - UNIT // 2 - FEE


@pytest.mark.parametrize(
    "offence",
    [
        Misbehaviour(3, VALIDATOR.address, 1),
        Misbehaviour(1, ALICE.address, 1),
        Misbehaviour(1, VALIDATOR.address, 0),
        Misbehaviour(1, VALIDATOR.address, 2),
    ],
)
def test_evidence_must_name_a_validator_of_its_height(offence: Misbehaviour) -> None:
    net = Net()
    net.skip(1)
    with pytest.raises(InvalidEvidence):
        net.app.process(Block(BlockFrame(2, 9 * SECOND, misbehaviour=(offence,))))


def test_somebody_always_has_power() -> None:
    net = Net()
    net.skip(1)
    offence = Misbehaviour(1, VALIDATOR.address, 1)
    with pytest.raises(NoVotingPowerLeft):
        net.app.process(Block(BlockFrame(2, 9 * SECOND, misbehaviour=(offence,))))


def test_validators_are_paged_by_key() -> None:
    net = Net()
    net.do(ALICE, "bond", **bond_fields(net, ALICE))
    net.skip(6)
    first = net.query("/validators", limit=1)
    assert (first["total"], len(first["validators"])) == (2, 1)
    second = net.query("/validators", limit=1, after=first["next_after"])
    assert [one["public_key"] for one in first["validators"] + second["validators"]] == sorted(
        [ALICE.consensus_key, VALIDATOR.consensus_key]
    )
    assert net.query("/validators", limit=1, after=second["next_after"])["validators"] == []
    assert net.query("/validators")["next_after"] is None


# Training tasks.


def reservation(net: Net, **changes: Json) -> Body:
    summary = net.query("/summary")
    return {
        "task_kind": "train",
        "parent": summary["model_root"],
        "round": summary["round"],
        "workers": [BOB.key, CAROL.key],
        "request": {},
        "price": 0,
        **changes,
    }


def submission(task: str, round_number: int = 0, parent: str = ROOT) -> Body:
    bodies = receipt_bodies(task, parent, round_number)
    signed: list[Json] = [
        sign_envelope(body, who.seed) for body, who in zip(bodies, (BOB, CAROL), strict=True)
    ]
    return {"task_id": task, "result_root": next_root(round_number), "receipts": signed}


def test_a_training_step_is_issued_and_promoted() -> None:
    net = Net()
    task = net.do(ALICE, "reserve", **reservation(net))
    assert balance(net, ALICE) == 5_000_000 - 2_000_000 - FEE
    lease = net.query("/summary")["lease"]
    assert (lease["task_id"], lease["escrow"], lease["expires"]) == (task, 2_000_000, 6)
    assert net.query("/task")["lease"] == lease

    net.do(ALICE, "submit", **submission(task))
    assert balance(net, ALICE) == 5_000_000 - 2 * FEE
    assert (balance(net, BOB), balance(net, CAROL)) == (3_400_000, 400_000)
    summary = net.query("/summary")
    assert (summary["round"], summary["issued"], summary["lease"]) == (1, 1_000_000, None)
    assert summary["model_root"] == summary["serving_root"] == next_root(0)
    assert summary["last_training_evaluation"]["promoted"] is True
    net.skip(1)
    assert balance(net, VALIDATOR) == 10_200_000

    # The second step is worse on validation: it is the latest, not the one that is served.
    task = net.do(ALICE, "reserve", **reservation(net))
    net.do(ALICE, "submit", **submission(task, 1, next_root(0)))
    summary = net.query("/summary")
    assert (summary["model_root"], summary["serving_root"]) == (next_root(1), next_root(0))
    assert summary["last_training_evaluation"]["promoted"] is False


def test_a_lease_that_runs_out_burns_the_bond() -> None:
    net = Net()
    task = net.do(ALICE, "reserve", **reservation(net))
    assert net.refused(BOB, "reserve", **reservation(net)) == "A task is already reserved"
    burned = net.query("/summary")["burned"]
    net.skip(4)
    assert net.query("/summary")["lease"] is not None
    assert "not reserved" in net.refused(ALICE, "submit", **submission(task))
    assert net.query("/summary")["burned"] == burned + 2_000_000


@pytest.mark.parametrize(
    ("changes", "log"),
    [
        ({"task_kind": "infer"}, "Use an independent inference request"),
        ({"parent": "0" * 64}, "Wrong task parent or round"),
        ({"round": 1}, "Wrong task parent or round"),
        ({"round": False}, "Wrong task parent or round"),
        ({"workers": [BOB.key]}, "Wrong number of worker identities"),
        ({"workers": BOB.key}, "Wrong number of worker identities"),
        ({"workers": [BOB.key, 5]}, "Invalid public key"),
        ({"price": 1}, "Invalid or exhausted training budget"),
        ({"price": False}, "Invalid or exhausted training budget"),
        ({"request": []}, "Invalid or exhausted training budget"),
    ],
)
def test_what_is_wrong_with_a_reservation(changes: Body, log: str) -> None:
    net = Net()
    assert net.refused(ALICE, "reserve", **reservation(net, **changes)) == log


def test_what_is_wrong_with_a_submission() -> None:
    net = Net()
    task = net.do(ALICE, "reserve", **reservation(net))
    good = submission(task)
    receipts = good["receipts"]
    assert isinstance(receipts, list)
    wrong_body = sign_envelope({"stage": 0}, BOB.seed)
    stranger: list[Json] = [
        sign_envelope(body, ALICE.seed) for body in receipt_bodies(task, ROOT, 0)
    ]
    refusals: list[tuple[Body, str]] = [
        ({"task_id": "0" * 64}, "Task is not reserved by this account"),
        ({"receipts": []}, "Missing worker receipts"),
        ({"receipts": [1, 2]}, "Invalid signed envelope"),
        ({"receipts": receipts[::-1]}, "Worker receipt differs from full replay"),
        ({"receipts": stranger}, "Worker receipt differs from full replay"),
    ]
    for changes, log in refusals:
        assert net.refused(ALICE, "submit", **{**good, **changes}) == log
    net = Net()
    good = submission(net.do(ALICE, "reserve", **reservation(net)))
    receipts = good["receipts"]
    assert isinstance(receipts, list)
    refusals = [
        ({"receipts": [wrong_body, receipts[1]]}, "Worker receipt differs from full replay"),
        ({"result_root": "0" * 64}, "Result differs from full replay"),
    ]
    for changes, log in refusals:
        assert net.refused(ALICE, "submit", **{**good, **changes}) == log
    assert "not reserved" in net.refused(BOB, "submit", **good)


# Stakes.


def stake(net: Net, who: Actor) -> dict[str, Any]:
    return net.query("/stake", public_key=who.key)


def test_a_stake_unlocks_cools_down_and_comes_back() -> None:
    net = Net()
    net.do(ALICE, "stake", amount=2_000_000, duration_days=10)
    start = net.app.time_ns
    record = stake(net, ALICE)
    assert (record["amount"], record["unlock_ns"]) == (2_000_000, start + 10 * DAY)
    assert balance(net, ALICE) == 3_000_000 - FEE
    assert "unlock date" in net.refused(ALICE, "unstake", amount=1_000_000)
    net.skip(1, seconds=10 * 86_400)
    net.do(ALICE, "unstake", amount=500_000)
    assert "minimum" in net.refused(ALICE, "unstake", amount=1_499_001)
    assert "exceeds" in net.refused(ALICE, "unstake", amount=1_500_001)
    net.do(ALICE, "unstake", amount=1_500_000)
    assert balance(net, ALICE) == 3_000_000 - 3 * FEE
    assert [amount for amount, _ in stake(net, ALICE)["cooling"]] == [500_000, 1_500_000]
    net.skip(1, seconds=2 * 86_400 - 4)
    assert balance(net, ALICE) == 3_000_000 - 3 * FEE
    # Available as soon as it has cooled: to look at, and to spend.
    net.skip(1, seconds=4)
    assert balance(net, ALICE) == 5_000_000 - 3 * FEE
    net.do(ALICE, "transfer", to=BOB.key, amount=5_000_000 - 4 * FEE)
    assert net.account(ALICE)["total"] == 0
    assert f"stake/{ALICE.key}" not in net.store.entries()


def test_adding_to_a_stake_never_shortens_it() -> None:
    net = Net()
    net.do(ALICE, "stake", amount=1_000_000, duration_days=20)
    first = stake(net, ALICE)
    net.do(ALICE, "stake", amount=1, duration_days=1)
    second = stake(net, ALICE)
    assert second == {**first, "amount": 1_000_001}
    net.do(ALICE, "stake", amount=1, duration_days=30)
    assert stake(net, ALICE)["unlock_ns"] == net.app.time_ns + 30 * DAY


def test_cooldowns_are_bounded() -> None:
    net = Net()
    net.do(ALICE, "stake", amount=2_000_000, duration_days=1)
    net.skip(1, seconds=86_400)
    net.do(ALICE, "unstake", amount=10)
    net.do(ALICE, "unstake", amount=10)
    assert "Too many" in net.refused(ALICE, "unstake", amount=10)


@pytest.mark.parametrize(
    ("amount", "days", "log"),
    [
        (999, 1, "Stake is below the minimum"),
        (1000, 0, "Integer outside protocol bounds"),
        (1000, 31, "Integer outside protocol bounds"),
        (0, 1, "Integer outside protocol bounds"),
        (5_000_000, 1, "Insufficient available balance"),
    ],
)
def test_what_is_wrong_with_a_stake(amount: int, days: int, log: str) -> None:
    assert Net().refused(ALICE, "stake", amount=amount, duration_days=days) == log


# Proofs.


def test_a_proof_is_paid_by_vote_weighed_by_the_stake_and_capped() -> None:
    net = Net()
    rewards = []
    for number in range(4):
        proof = net.do(ALICE, "prove", work_kind="forward", layer=3, statement=digest(number))
        raw = net.tx(
            VALIDATOR, "vote", proof_id=proof, consensus_key=VALIDATOR.consensus_key, approve=True
        )
        (result,) = net.block([raw]).results
        rewards.append([(e.amount, e.reason, e.reference == proof) for e in result.effects])
    # The budget is 25,000: two full rewards and a half one.
    assert [reward[0][0] for reward in rewards] == [10_000, 10_000, 5000, 0]
    assert rewards[0] == [(10_000, "proof reward", True)]
    assert net.query("/proofs") == {"open": [], "submitted": 4, "verified": 4, "paid": 25_000}
    assert "already claimed" in net.refused(
        BOB, "prove", work_kind="forward", layer=0, statement=digest(0)
    )


def test_a_refused_or_forgotten_proof_can_be_claimed_again() -> None:
    net = Net()
    fields: Body = {"work_kind": "backward", "layer": 0, "statement": digest("work")}
    proof = net.do(ALICE, "prove", **fields)
    assert "already claimed" in net.refused(BOB, "prove", **fields)
    vote: Body = {"proof_id": proof, "consensus_key": VALIDATOR.consensus_key}
    assert "owns no active" in net.refused(ALICE, "vote", **vote, approve=True)
    assert "Invalid proof" in net.refused(VALIDATOR, "vote", **vote, approve=1)
    net.do(VALIDATOR, "vote", **vote, approve=False)
    assert "No open proof" in net.refused(VALIDATOR, "vote", **vote, approve=True)
    net.do(BOB, "prove", **fields)
    net.skip(5)
    assert net.query("/proofs")["open"] == []
    net.do(ALICE, "prove", **fields)


# Queries.


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
