"""Proofs of work and the validators' votes: ``prove`` and ``vote`` (interface 2.1 "Proof entry").

==========  ==========================================  =============
from        by                                          to
==========  ==========================================  =============
(none)      ``prove``                                   open
open        votes of more than 2/3 of the power for     verified, paid
open        votes of at least 1/3 of the power against  (dropped), penalty burned
open        first block above ``expires``               (dropped)
==========  ==========================================  =============

Voters check the work outside the state machine; this module only counts their votes. Validators
that belong to the prover count neither as votes nor in the total power. The reward is multiplied
according to the prover's stake and issued until ``budget`` is spent (decision 0064).

Invariants: a statement is open or paid at most once; a validator votes at most once on a proof, and
never on a proof of its own owner; a proof is opened only if the prover's stake covers the penalty
for each of its open proofs.
"""

from __future__ import annotations

from dataclasses import replace

from meshnode.domain.chain.accounts import burn, issue, pay
from meshnode.domain.chain.bonds import voting_powers
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.errors import (
    AlreadyVoted,
    InvalidProof,
    NoOpenProof,
    NothingAtStake,
    NoVotingPower,
    OwnProof,
    ProofKnown,
    ProofQueueFull,
)
from meshnode.domain.chain.profile import NetworkProfile
from meshnode.domain.chain.records import Claim, Proof, Proofs, Stake, Validator
from meshnode.domain.chain.stakes import MULTIPLIER_ONE, settle_cooldowns, stake_multiplier
from meshnode.domain.chain.values import consensus_key, integer, sha256_hex

PROVE_FIELDS = frozenset({"work_kind", "layer", "statement"})
VOTE_FIELDS = frozenset({"proof_id", "consensus_key", "approve"})

WORK_KINDS = ("forward", "backward", "training", "data")
MAX_LAYER = 4095


def apply_prove(context: Context, transaction: Transaction) -> None:
    """Open a proof: a claim that the sender did the work whose digest is ``statement``."""
    view, body = context.view, transaction.body
    if body["work_kind"] not in WORK_KINDS:
        raise InvalidProof
    layer = integer(body["layer"], 0, MAX_LAYER)
    statement = sha256_hex(body["statement"])
    # Work is paid once and has at most one open proof.
    if view.find(Claim, statement) is not None:
        raise ProofKnown
    proofs = view.find(Proofs) or Proofs()
    if len(proofs.pending) >= context.profile.proving.open_proofs:
        raise ProofQueueFull
    # A refusal must cost something, so the stake must cover this proof and those still open.
    mine = sum(view.get(Proof, name).owner == transaction.sender for _, name in proofs.pending)
    stake = view.find(Stake, transaction.sender) or Stake()
    if stake.amount < (mine + 1) * context.profile.proving.penalty:
        raise NothingAtStake
    expires = context.height + context.profile.proving.open_blocks
    view.put(
        Proof(
            owner=transaction.sender,
            work_kind=str(body["work_kind"]),
            layer=layer,
            statement=statement,
            created_ns=context.time_ns,
            expires=expires,
        ),
        transaction.id,
    )
    view.put(Claim(transaction.id, 0), statement)
    pending = tuple(sorted((*proofs.pending, (expires, transaction.id))))
    view.put(replace(proofs, pending=pending, submitted=proofs.submitted + 1))


def apply_vote(context: Context, transaction: Transaction) -> None:
    """Count a validator's vote, and close the proof if the vote decides it."""
    view, body = context.view, transaction.body
    proof_id, key = sha256_hex(body["proof_id"]), consensus_key(body["consensus_key"])
    if not isinstance(body["approve"], bool):
        raise InvalidProof
    proof = view.find(Proof, proof_id)
    if proof is None:
        raise NoOpenProof
    powers = voting_powers(view, context.height)
    if key not in powers or view.get(Validator, key).owner != transaction.sender:
        raise NoVotingPower
    # Provers do not vote on their own work, however many validators they own.
    if proof.owner == transaction.sender:
        raise OwnProof
    if any(voter == key for voter, _ in proof.votes):
        raise AlreadyVoted
    proof = replace(proof, votes=(*proof.votes, (key, body["approve"])))
    view.put(proof, proof_id)
    powers = {k: n for k, n in powers.items() if view.get(Validator, k).owner != proof.owner}
    total = sum(powers.values())
    in_favour = sum(powers.get(voter, 0) for voter, approves in proof.votes if approves)
    against = sum(powers.get(voter, 0) for voter, approves in proof.votes if not approves)
    if 3 * in_favour > 2 * total:
        _verify(context, proof_id, proof)
    elif 3 * against >= total:
        _refuse(context, proof_id, proof)


def expire_proofs(context: Context) -> None:
    """Drop proofs that expired undecided; their statements may be claimed again."""
    for expires, proof_id in (context.view.find(Proofs) or Proofs()).pending:
        if expires >= context.height:
            break
        context.view.drop(Claim, context.view.get(Proof, proof_id).statement)
        _close(context, proof_id)


def proof_reward(context: Context, owner: str) -> int:
    """Atoms that a proof verified now would earn: reward times multiplier, within the budget."""
    stake = context.view.find(Stake, owner) or Stake()
    paid = (context.view.find(Proofs) or Proofs()).paid
    return rewards_of(1, stake.amount, paid, context.profile)


def rewards_of(proofs: int, stake: int, paid: int, profile: NetworkProfile) -> int:
    """Atoms that ``proofs`` of one owner earn who has ``stake``, if ``paid`` is spent already."""
    multiplier = stake_multiplier(stake, profile.params.atom_scale)
    each = profile.proving.reward * multiplier // MULTIPLIER_ONE
    return min(proofs * each, profile.proving.budget - paid)


def _verify(context: Context, proof_id: str, proof: Proof) -> None:
    view, reward = context.view, proof_reward(context, proof.owner)
    _close(context, proof_id)
    proofs = view.get(Proofs)
    view.put(replace(proofs, verified=proofs.verified + 1, paid=proofs.paid + reward))
    view.put(Claim(proof_id, reward), proof.statement)
    issue(view, reward)
    pay(view, proof.owner, reward, "proof reward", proof_id)


def _refuse(context: Context, proof_id: str, proof: Proof) -> None:
    view, left = context.view, context.profile.proving.penalty
    _close(context, proof_id)
    view.drop(Claim, proof.statement)
    settle_cooldowns(view, proof.owner, context.time_ns)
    stake = view.find(Stake, proof.owner) or Stake()
    # The penalty comes from the stake first, then from what is cooling down, the latest first.
    taken = min(left, stake.amount)
    amount, left, cooling = stake.amount - taken, left - taken, list(stake.cooling)
    while left and cooling:
        cooled, available_ns = cooling.pop()
        part = min(left, cooled)
        left -= part
        if cooled > part:
            cooling.append((cooled - part, available_ns))
    changed = replace(stake, amount=amount, cooling=tuple(cooling))
    burn(view, stake.money - changed.money)
    if changed.money:
        view.put(changed, proof.owner)
    elif stake.money:
        view.drop(Stake, proof.owner)
    # No spendable money has moved; this note tells the account's owner why the stake is smaller.
    pay(view, proof.owner, 0, "proof refused", proof_id)


def _close(context: Context, proof_id: str) -> None:
    view, proofs = context.view, context.view.get(Proofs)
    view.drop(Proof, proof_id)
    pending = tuple(entry for entry in proofs.pending if entry[1] != proof_id)
    view.put(replace(proofs, pending=pending))
