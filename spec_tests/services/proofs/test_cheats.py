"""Only work that others can recompute is paid: one test for each way to cheat, on real services."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.proofs.judging import Verdict
from meshnode.domain.proofs.statements import Signed, Vote, read_order, sign_vote
from meshnode.services.shards.messages import ForwardAnswer
from meshnode.services.signer.submission import TransactionRefused
from meshnode.wire import node_pb2 as pb
from spec_tests.domain.chain.net import ALICE, BOB, CAROL, FEE, Actor
from spec_tests.services.ledger.ledgers import account, eventually
from spec_tests.services.proofs.provers import (
    CONSENSUS,
    MALLORY,
    NEVER,
    PROVING,
    Forged,
    Network,
    ProofNode,
    ask_for_work,
    forge,
    order_for,
    over_a_chain,
    work_of,
)

pytestmark = pytest.mark.wire


def worse(answer: ForwardAnswer) -> ForwardAnswer:
    """Return another output of the same shape."""
    values = np.frombuffer(answer.data, "<f4") + np.float32(0.5)
    return replace(answer, data=values.tobytes())


@over_a_chain
async def test_work_for_another_is_proved_validated_and_paid_once(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    carol = await network.node(CAROL, [2, 3])
    bob = await network.node(BOB, [2, 3])
    await network.stake(BOB)
    before = await network.balance(BOB)
    await ask_for_work(alice, bob)
    await network.until(0, 1)
    # Alice recomputed it from the model directory, Carol with the layers that she holds.
    assert await network.balance(BOB) == before - FEE + PROVING.reward
    assert (await network.totals()) == (0, 1, PROVING.reward)
    assert await bob.staked() == 100_000
    await eventually(lambda: not alice.proofs.gossip.known and not carol.proofs.gossip.known)
    assert bob.proofs.prover.claimed == 1


@over_a_chain
async def test_replay_a_claim_is_paid_once_however_it_is_dressed_up(network: Network) -> None:
    alice, bob = await network.node(ALICE, [0, 1]), await network.node(BOB, [2, 3])
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    await network.until(0, 1)
    call, _ = bob.observed[-1]
    order = read_order(call.order)
    paid = await network.balance(BOB)
    # The same order again, with a proof of another time and so another signature.
    again = forge(BOB, order, work_of(bob))
    with pytest.raises(TransactionRefused, match="already claimed"):
        await bob.proofs.prover.submit(again.order, again.signed, again.work)
    answer = await bob.gossip_proof(alice, again.signed)
    assert not answer.accepted
    assert answer.reason == "proof: the chain has no such open proof"
    assert await network.balance(BOB) == paid


@over_a_chain
async def test_changed_output_is_refused_and_costs_the_penalty(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], distort=worse)
    await network.stake(BOB)
    before = await network.balance(BOB)
    await ask_for_work(alice, bob)
    await network.until(0, 0)
    assert await network.balance(BOB) == before - FEE
    assert await bob.staked() == 100_000 - PROVING.penalty


async def claim(cheat: ProofNode, forged: Forged) -> str:
    """Claim through ``submit`` of the cheat's node, and return the proof's id."""
    return await cheat.proofs.prover.submit(forged.order, forged.signed, forged.work)


@asynccontextmanager
async def abstaining(node: ProofNode, name: str, reason: str) -> AsyncIterator[None]:
    """Check that a validator abstains from this proof, with this reason."""
    await eventually(lambda: name in node.proofs.validator.judgements)
    judgement = node.proofs.validator.judgements[name]
    assert judgement.verdict is Verdict.ABSTAIN
    assert reason in judgement.reason
    yield


@over_a_chain
async def test_foreign_request_is_refused_and_left_to_its_holder(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    mallory = await network.node(MALLORY, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await network.stake(MALLORY)
    await ask_for_work(alice, bob)
    call, _ = bob.observed[-1]
    # Mallory has seen Bob's order and his work, and claims them as her own.
    stolen = forge(MALLORY, read_order(call.order), work_of(bob))
    before = await network.balance(MALLORY)
    await claim(mallory, stolen)
    await network.until(0, 0)
    assert await network.balance(MALLORY) == before - FEE
    assert await mallory.staked() == 100_000 - PROVING.penalty
    # Bob can still claim it.
    await claim(bob, forge(BOB, read_order(call.order), work_of(bob)))
    await network.until(0, 1)
    assert (await network.totals())[2] == PROVING.reward


@over_a_chain
async def test_a_stolen_claim_is_refused_by_the_holders_own_statement(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(MALLORY)
    await ask_for_work(alice, bob)
    call, _ = bob.observed[-1]
    order = read_order(call.order)
    # Mallory copies the digest from Bob's transaction, and publishes no statement.
    await network.send(MALLORY, "prove", work_kind="forward", layer=2, statement=order[0].claim)
    answer = await bob.gossip_proof(alice, forge(BOB, order, work_of(bob)).signed)
    assert answer.accepted, answer.reason
    await network.until(0, 0)
    stake = await bob.query("/stake", public_key=MALLORY.key)
    assert stake["amount"] == 100_000 - PROVING.penalty


@over_a_chain
async def test_a_holder_that_comes_too_late_with_its_claim_shows_whose_it_is(
    network: Network,
) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await network.stake(MALLORY)
    await ask_for_work(alice, bob)
    call, _ = bob.observed[-1]
    order = read_order(call.order)
    mine = forge(BOB, order, work_of(bob))
    # Mallory's claim waits for a block, or is in one, when Bob's arrives.
    body = {
        "kind": "prove",
        "chain_id": network.ledger.chain_id,
        "nonce": (await account(network.ledger, MALLORY))["nonce"],
        "work_kind": "forward",
        "layer": 2,
        "statement": order[0].claim,
    }
    await network.ledger.submit(encode(sign_envelope(body, MALLORY.seed)))
    with pytest.raises(TransactionRefused, match="already claimed"):
        await claim(bob, mine)
    await network.until(0, 0)
    stake = await bob.query("/stake", public_key=MALLORY.key)
    assert stake["amount"] == 100_000 - PROVING.penalty
    # Bob can claim it again.
    await claim(bob, mine)
    await network.until(0, 1)


@over_a_chain
async def test_fabricated_input_by_a_name_without_a_stake_earns_nothing(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    # The work is right, but nobody ordered it: the requester is a key that Bob made up.
    order = order_for(MALLORY, BOB, network.ledger.chain_id, work_of(bob), 2, time.time_ns())
    name = await claim(bob, forge(BOB, order, work_of(bob)))
    async with abstaining(alice, name, "neither a stake nor a validator"):
        assert await network.totals() == (1, 0, 0)


@over_a_chain
async def test_fabricated_input_under_a_real_order_earns_nothing(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await ask_for_work(alice, bob, seed=1)
    other = work_of(bob)
    await ask_for_work(alice, bob, seed=2)
    call, _ = bob.observed[-1]
    # The order is for one input; the proof has another input and that one's correct output.
    name = await claim(bob, forge(BOB, read_order(call.order), other))
    async with abstaining(alice, name, "the inputs are not those that were ordered"):
        assert await network.totals() == (1, 0, 0)


@over_a_chain
async def test_work_for_oneself_is_refused(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    order = order_for(BOB, BOB, network.ledger.chain_id, work_of(bob), 2, time.time_ns())
    await claim(bob, forge(BOB, order, work_of(bob)))
    await network.until(0, 0)
    assert await bob.staked() == 100_000 - PROVING.penalty


@over_a_chain
async def test_an_old_order_earns_nothing(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    hour_ago = time.time_ns() - 3600 * 10**9
    order = order_for(ALICE, BOB, network.ledger.chain_id, work_of(bob), 2, hour_ago)
    name = await claim(bob, forge(BOB, order, work_of(bob)))
    async with abstaining(alice, name, "not of that time"):
        assert await network.totals() == (1, 0, 0)


def vote_of(
    who: Actor, network: Network, name: str, claim: str, *, key: str = "", approve: bool = True
) -> Signed:
    """Return a vote, signed for gossip."""
    vote = Vote(
        chain_id=network.ledger.chain_id,
        proof_id=name,
        claim=claim,
        voter=who.key,
        consensus_key=key or CONSENSUS[who],
        approve=approve,
    )
    return sign_vote(vote, key_of(who))


@over_a_chain
async def test_self_validation_counts_for_nothing(network: Network) -> None:
    # Alice makes the blocks, has most of the power, and proves work of her own.
    alice = await network.node(ALICE, [2, 3], policy=NEVER)
    carol = await network.node(CAROL, [0, 1], validates=False)
    await network.stake(ALICE)
    await ask_for_work(carol, alice)
    call, _ = alice.observed[-1]
    forged = forge(ALICE, read_order(call.order), work_of(alice))
    name = await claim(alice, forged)
    key = CONSENSUS[ALICE]
    with pytest.raises(TransactionRefused, match="Voter is the prover"):
        await network.send(ALICE, "vote", proof_id=name, consensus_key=key, approve=True)
    await carol.gossip_proof(carol, forged.signed)
    answer = await alice.gossip_vote(carol, vote_of(ALICE, network, name, forged.order.claim))
    assert (answer.accepted, answer.proof_status) == (False, "pending")
    assert answer.reason == "vote: a validator may not vote on a proof of its owner"
    assert name not in alice.proofs.validator.judgements
    assert await network.totals() == (1, 0, 0)


@over_a_chain
async def test_the_others_decide_on_the_block_makers_own_proof(network: Network) -> None:
    alice, carol = await network.node(ALICE, [2, 3]), await network.node(CAROL, [0, 1])
    await network.stake(ALICE)
    await ask_for_work(carol, alice)
    await network.until(0, 1)


@over_a_chain
async def test_a_vote_without_stake_is_refused_everywhere(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await network.stake(MALLORY)
    await ask_for_work(alice, bob)
    call, _ = bob.observed[-1]
    forged = forge(BOB, read_order(call.order), work_of(bob))
    name = await claim(bob, forged)
    assert (await bob.gossip_proof(alice, forged.signed)).accepted
    # First with a key of no validator, then with the key of Alice's validator.
    for key in (MALLORY.consensus_key, CONSENSUS[ALICE]):
        with pytest.raises(TransactionRefused, match="owns no active validator"):
            await network.send(MALLORY, "vote", proof_id=name, consensus_key=key, approve=True)
        vote = vote_of(MALLORY, network, name, forged.order.claim, key=key)
        answer = await bob.gossip_vote(alice, vote)
        assert not answer.accepted
        assert answer.reason == "vote: its signer does not own the validator that it names"
    assert await network.totals() == (1, 0, 0)


def key_of(who: Actor) -> NodeKey:
    return key_from_seed(who.seed)


@over_a_chain
async def test_a_double_vote_counts_once(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    call, _ = bob.observed[-1]
    forged = forge(BOB, read_order(call.order), work_of(bob))
    name = await claim(bob, forged)
    assert (await bob.gossip_proof(alice, forged.signed)).accepted
    # Carol has a quarter of the power: her vote alone decides nothing, however often it is sent.
    key = CONSENSUS[CAROL]
    await network.send(CAROL, "vote", proof_id=name, consensus_key=key, approve=True)
    for approve in (True, False):
        with pytest.raises(TransactionRefused, match="has voted"):
            await network.send(CAROL, "vote", proof_id=name, consensus_key=key, approve=approve)
    for approve, accepted in ((True, True), (True, True), (False, False)):
        vote = vote_of(CAROL, network, name, forged.order.claim, approve=approve)
        answer = await bob.gossip_vote(alice, vote)
        assert answer.accepted is accepted, answer.reason
    assert answer.reason == "vote: a different vote of this validator is already known"
    assert await network.totals() == (1, 0, 0)


@over_a_chain
async def test_inputs_are_shown_to_validators_and_to_nobody_else(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3])
    mallory = await network.node(MALLORY, [2, 3])
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    await network.until(1, 0)
    await eventually(lambda: bob.proofs.gossip.known)
    name = next(iter(bob.proofs.gossip.known))
    stub = await mallory.pool.stub("127.0.0.1", bob.port)
    for validator_id in (mallory.key.node_id, "", "00" * 20):
        request = pb.ProofValidationRequest(proof_id=name, validator_id=validator_id)
        answer = await stub.RequestProofValidation(request)
        assert (answer.success, answer.input_states) == (False, b"")
        assert answer.error_message == "validator_id is not the id of a validator"
    # Carol is a validator, but no node of hers is known at the caller's address.
    carol = key_of(CAROL).node_id
    request = pb.ProofValidationRequest(proof_id=name, validator_id=carol)
    assert "does not come from" in (await stub.RequestProofValidation(request)).error_message
    request = pb.ProofValidationRequest(proof_id="00" * 32, validator_id=carol)
    assert "no open proof" in (await stub.RequestProofValidation(request)).error_message
    request = pb.ProofValidationRequest(proof_id=name, validator_id=alice.key.node_id)
    answer = await stub.RequestProofValidation(request)
    assert answer.success
    assert answer.input_states == bob.observed[-1][0].data


@over_a_chain
async def test_nobody_claims_without_a_stake_and_forward_calls_go_on(network: Network) -> None:
    alice, bob = await network.node(ALICE, [0, 1]), await network.node(BOB, [2, 3])
    await ask_for_work(alice, bob)
    await eventually(lambda: bob.proofs.prover.trouble)
    assert "below the penalty" in bob.proofs.prover.trouble
    await ask_for_work(alice, bob)
    assert await network.totals() == (0, 0, 0)
