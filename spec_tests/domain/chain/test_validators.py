"""Bonds and validators: joining, leaving, punishment, and the rule behind each refusal."""

import pytest

from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.bonds import Misbehaviour
from meshnode.domain.chain.errors import (
    InvalidEvidence,
    NoVotingPowerLeft,
)
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    FEE,
    PROFILE,
    SECOND,
    UNIT,
    VALIDATOR,
    Actor,
    Body,
    Net,
    balance,
)


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
    # Headers need the validators of the next block and of the block after it.
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
    # The bond stays exposed until the evidence window has passed, in blocks and in seconds.
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
def test_wrong_bonds_are_refused_with_the_reason(changes: Body, log: str) -> None:
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
