"""What can be told of a proof without computing it again (decision 0098).

Three verdicts: *approve*, *refuse* what the prover itself has signed and is wrong, and *abstain*
from what cannot be told. Nobody is punished for what somebody else may have sent in its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import node_id_of
from meshnode.domain.proofs.statements import ForwardProof

MOST_AGE_NS = 600 * 10**9
"""From the order to the claim, by the block's clock."""
MOST_SKEW_NS = 60 * 10**9
"""Clocks of nodes differ from that of the blocks, which lags."""


class Verdict(Enum):
    """What a validator does."""

    APPROVE = "approve"
    REFUSE = "refuse"
    ABSTAIN = "abstain"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and why."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What the chain says of an open proof."""

    proof_id: str
    owner: str
    work_kind: str
    layer: int
    statement: str
    created_ns: int
    expires: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What this node knows of the chain and of the model."""

    chain_id: str
    model_hash: str
    num_layers: int


def validate_gossiped(proof: ForwardProof, claimed: Claimed | None, terms: Terms) -> None:
    """Whether a proof is worth keeping and passing on. Raises InvalidRequest if it is not."""
    # It is of this network's chain and model: others cannot be checked here.
    if proof.order.chain_id != terms.chain_id:
        raise InvalidRequest("chain_id", "is of another chain")
    if proof.order.model_hash != terms.model_hash:
        raise InvalidRequest("model_hash", "is of another model")
    if proof.last_layer >= terms.num_layers:
        raise InvalidRequest("last_layer", "is beyond the model")
    # The chain has it open: a fee and a stake stand behind it, and so it is not noise.
    if claimed is None:
        raise InvalidRequest("proof", "the chain has no such open proof")
    # Who claims may be a thief of the order; who signs must be one of the two.
    if claimed.owner != proof.prover and node_id_of(proof.prover) != proof.order.holder:
        raise InvalidRequest("proof", "was claimed by another, and is of another's order")


def judge_words(proof: ForwardProof, claimed: Claimed) -> Judgement | None:
    """A judgement that needs no computing; None if the work has to be computed again."""
    order = proof.order
    # Foreign request: the order was given to somebody else than who claims to have done it.
    if node_id_of(claimed.owner) != order.holder:
        return Judgement(Verdict.REFUSE, "the order was given to another node")
    # What another has signed says nothing of who claims.
    if proof.prover != claimed.owner:
        return Judgement(Verdict.ABSTAIN, "signed by another than who claims")
    # Work for oneself earns nothing.
    if order.requester == proof.prover:
        return Judgement(Verdict.REFUSE, "the prover ordered it from itself")
    # The entry on the chain says what the statement says.
    if claimed.work_kind != "forward" or claimed.layer != order.first_layer:
        return Judgement(Verdict.REFUSE, "the chain's entry names another kind or layer")
    # Old orders are not kept for a rainy day. By the block's clock, so that all validators agree;
    # and without a penalty, since the clock of who ordered may be wrong.
    age = claimed.created_ns - order.time_ns
    if not -MOST_SKEW_NS <= age <= MOST_AGE_NS:
        return Judgement(Verdict.ABSTAIN, "the order is not of that time")
    return None
