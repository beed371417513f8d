"""Stakes and proofs of the node API: their effects, and the rule behind each refusal."""

from typing import Any

import pytest

from meshnode.domain.chain.canonical import digest
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    DAY,
    FEE,
    PROFILE,
    UNIT,
    VALIDATOR,
    Actor,
    Body,
    Net,
    balance,
)

PENALTY = PROFILE.proving.penalty


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
    # Once the cooldown is over, the amount is shown as available and can be spent.
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
def test_wrong_stakes_are_refused_with_the_reason(amount: int, days: int, log: str) -> None:
    assert Net().refused(ALICE, "stake", amount=amount, duration_days=days) == log


def test_approved_proofs_are_paid_up_to_the_budget() -> None:
    net = Net()
    net.do(ALICE, "stake", amount=PENALTY, duration_days=1)
    rewards = []
    for number in range(4):
        proof = net.do(ALICE, "prove", work_kind="forward", layer=3, statement=digest(number))
        raw = net.tx(
            VALIDATOR, "vote", proof_id=proof, consensus_key=VALIDATOR.consensus_key, approve=True
        )
        (result,) = net.block([raw]).results
        rewards.append([(e.amount, e.reason, e.reference == proof) for e in result.effects])
    # The budget of 25,000 pays two full rewards and half of one.
    assert [reward[0][0] for reward in rewards] == [10_000, 10_000, 5000, 0]
    assert rewards[0] == [(10_000, "proof reward", True)]
    assert net.query("/proofs") == {"open": [], "submitted": 4, "verified": 4, "paid": 25_000}
    assert "already claimed" in net.refused(
        BOB, "prove", work_kind="forward", layer=0, statement=digest(0)
    )


def test_a_refused_or_forgotten_proof_can_be_claimed_again() -> None:
    net = Net()
    net.do(ALICE, "stake", amount=2 * PENALTY, duration_days=1)
    net.do(BOB, "stake", amount=PENALTY, duration_days=1)
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


def test_a_proof_needs_the_penalty_at_stake_for_every_open_proof() -> None:
    net = Net()
    fields: Body = {"work_kind": "forward", "layer": 0}
    below = "Stake is below the penalty for the prover's open proofs"
    assert net.refused(ALICE, "prove", **fields, statement=digest(0)) == below
    net.do(ALICE, "stake", amount=2 * PENALTY - 1, duration_days=1)
    net.do(ALICE, "prove", **fields, statement=digest(0))
    assert net.refused(ALICE, "prove", **fields, statement=digest(1)) == below
    net.skip(5)
    net.do(ALICE, "prove", **fields, statement=digest(1))


def test_a_refused_proof_burns_the_penalty_once_wherever_the_stake_has_gone() -> None:
    net = Net()
    net.do(ALICE, "stake", amount=PENALTY + 1000, duration_days=1)
    net.skip(1, seconds=86_400)
    proof = net.do(ALICE, "prove", work_kind="forward", layer=0, statement=digest("lie"))
    net.do(ALICE, "unstake", amount=PENALTY + 1000)
    net.skip(1)
    burned = net.query("/summary")["burned"]
    vote: Body = {"proof_id": proof, "consensus_key": VALIDATOR.consensus_key, "approve": False}
    (result,) = net.block([net.tx(VALIDATOR, "vote", **vote)]).results
    assert [(e.amount, e.reason) for e in result.effects] == [(0, "proof refused")]
    stake = net.query("/stake", public_key=ALICE.key)
    assert stake["amount"] == 0
    assert [amount for amount, _ in stake["cooling"]] == [1000]
    assert net.query("/summary")["burned"] == burned + PENALTY
    assert "No open proof" in net.refused(VALIDATOR, "vote", **vote)
    claim = net.query("/claim", statement=digest("lie"))
    assert claim["status"] == "none"


def test_nobody_votes_on_its_own_proof_and_its_power_does_not_count() -> None:
    net = Net()
    amount = 2 * UNIT
    fields: Body = {"consensus_key": BOB.consensus_key, "amount": amount}
    net.do(BOB, "bond", **fields, possession=BOB.possession(amount, 0))
    net.do(VALIDATOR, "stake", amount=PENALTY, duration_days=1)
    net.skip(10)
    assert net.query("/validators")["total"] == 2
    proof = net.do(VALIDATOR, "prove", work_kind="forward", layer=0, statement=digest("own"))
    own: Body = {"proof_id": proof, "consensus_key": VALIDATOR.consensus_key, "approve": True}
    assert net.refused(VALIDATOR, "vote", **own) == "Voter is the prover"
    # The prover has eight tenths of the power; the validator with the other two decides alone.
    assert net.query("/claim", statement=digest("own"))["status"] == "open"
    net.do(BOB, "vote", **{**own, "consensus_key": BOB.consensus_key})
    claim = net.query("/claim", statement=digest("own"))
    assert (claim["status"], claim["proof_id"], claim["reward"]) == ("verified", proof, 10_000)
