"""Judging a proof as far as that is possible without recomputing it (decision 0098).

There are three verdicts: *approve*; *refuse*, only for a wrong statement that the prover itself has
signed; and *abstain*, for everything else. No node is punished for a statement that another node
may have sent in its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import node_id_of
from meshnode.domain.proofs.statements import ForwardProof
from meshnode.domain.units import SECOND_NS

MAX_AGE_NS = 600 * SECOND_NS
"""Longest time from the order to the claim, by the block's clock."""
MAX_SKEW_NS = 60 * SECOND_NS
"""The most that an order may be ahead of the block's clock, which lags behind the nodes' clocks."""


class Verdict(Enum):
    """A validator's decision about a proof."""

    APPROVE = "approve"
    REFUSE = "refuse"
    ABSTAIN = "abstain"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the reason for it."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The chain's record of an open proof."""

    proof_id: str
    owner: str
    work_kind: str
    layer: int
    statement: str
    created_ns: int
    expires: int


@dataclass(frozen=True, slots=True)
class Terms:
    """This node's knowledge of the chain and the model."""

    chain_id: str
    model_hashes: frozenset[str]
    """Of the weights that this node can compute with, or has served lately."""
    num_layers: int


def validate_gossiped(proof: ForwardProof, claimed: Claimed | None, terms: Terms) -> None:
    """Check that a proof is worth keeping and passing on. Raises InvalidRequest if it is not."""
    # Proofs of another chain or model cannot be checked here.
    if proof.order.chain_id != terms.chain_id:
        raise InvalidRequest("chain_id", "is that of another chain")
    if proof.order.model_hash not in terms.model_hashes:
        raise InvalidRequest("model_hash", "is that of another model")
    if proof.last_layer >= terms.num_layers:
        raise InvalidRequest("last_layer", "is beyond the model's last layer")
    # The proof must be open on the chain: that has cost a fee and needs a stake, so it is not spam.
    if claimed is None:
        raise InvalidRequest("proof", "the chain has no such open proof")
    # The claimant may have stolen the order, so the signer must be the claimant or the holder.
    if claimed.owner != proof.prover and node_id_of(proof.prover) != proof.order.holder:
        reason = "is signed neither by the claimant nor by the node that the order names"
        raise InvalidRequest("proof", reason)


def judge_words(proof: ForwardProof, claimed: Claimed) -> Judgement | None:
    """The judgement if it needs no computing; None if the work has to be recomputed."""
    order = proof.order
    # The order was given to another node than the one that claims to have done it.
    if node_id_of(claimed.owner) != order.holder:
        return Judgement(Verdict.REFUSE, "the order was given to another node")
    # A statement with another's signature proves nothing about the claimant.
    if proof.prover != claimed.owner:
        return Judgement(Verdict.ABSTAIN, "signed by another than who claims")
    # Work for oneself earns nothing.
    if order.requester == proof.prover:
        return Judgement(Verdict.REFUSE, "the prover ordered it from itself")
    # The entry on the chain must agree with the statement.
    if claimed.work_kind != "forward" or claimed.layer != order.first_layer:
        return Judgement(Verdict.REFUSE, "the chain's entry names another kind or layer")
    # Old orders must not be saved up and claimed later. The block's clock decides, so that all
    # validators agree. There is no penalty, since the requester's clock may be wrong.
    age = claimed.created_ns - order.time_ns
    if not -MAX_SKEW_NS <= age <= MAX_AGE_NS:
        return Judgement(Verdict.ABSTAIN, "the order is not of that time")
    return None
