"""The next header, as a proposer makes it and a follower checks it.

Terms: the *tip* is the result of the latest block: its id and time, and the root and the results
that the next header carries. BFT time: a block's time is the weighted median of the times in the
commit of the block before; the first block has the time of the genesis (CometBFT 0.38, spec "BFT
time").

Invariant: given a tip, the sets of validators and the commit of the tip, only the transactions, the
evidence and the proposer are free. A check therefore compares the whole header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from meshnode.domain.chain.comet.commits import (
    ABSENT,
    FOR_BLOCK,
    BlockId,
    Commit,
    CommitEntry,
    sign_commit,
    verify_commit,
)
from meshnode.domain.chain.comet.evidence import DoubleVote, evidence_hash
from meshnode.domain.chain.comet.headers import (
    CometBlock,
    Header,
    data_hash,
)
from meshnode.domain.chain.comet.validators import CometValidator, validators_hash
from meshnode.domain.chain.errors import (
    ForkedBlock,
    InvalidCommit,
    MalformedBlock,
    WrongHeader,
    WrongHeight,
)

TIME_STEP_NS = 1_000_000
"""Nanoseconds by which a vote is at least later than its block, so that block times rise."""


@dataclass(frozen=True, slots=True)
class Tip:
    """Facts of the latest block that the next header needs; ``block_id`` is empty at the start."""

    chain_id: str
    height: int
    time_ns: int
    block_id: BlockId
    app_hash: bytes
    results_hash: bytes
    consensus_hash: bytes


@dataclass(frozen=True, slots=True)
class Signers:
    """The validator sets that a height needs: the previous block's, its own, and the next one's."""

    last: tuple[CometValidator, ...]
    own: tuple[CometValidator, ...]
    following: tuple[CometValidator, ...]


def next_header(
    tip: Tip,
    signers: Signers,
    last_commit: Commit,
    transactions: Sequence[bytes],
    proposer: str,
    evidence: Sequence[DoubleVote] = (),
) -> Header:
    """The only header that can follow ``tip`` with these contents and this proposer."""
    first = tip.height == 0
    return Header(
        chain_id=tip.chain_id,
        height=tip.height + 1,
        time_ns=tip.time_ns if first else median_time(last_commit, signers.last),
        last_block_id=tip.block_id,
        last_commit_hash=last_commit.hash,
        data_hash=data_hash(transactions),
        validators_hash=validators_hash(signers.own),
        next_validators_hash=validators_hash(signers.following),
        consensus_hash=tip.consensus_hash,
        app_hash=tip.app_hash,
        last_results_hash=tip.results_hash,
        evidence_hash=evidence_hash(evidence),
        proposer=proposer,
    )


def median_time(commit: Commit, validators: tuple[CometValidator, ...]) -> int:
    """The time by which half of the power that voted had voted."""
    powers = {validator.address: validator.power for validator in validators}
    votes = sorted(
        (entry.time_ns, powers.get(entry.address, 0))
        for entry in commit.entries
        if entry.flag != ABSENT
    )
    half = sum(power for _, power in votes) // 2
    for time_ns, power in votes:
        if half <= power:
            return time_ns
        half -= power
    raise InvalidCommit


def sign_alone(
    chain_id: str,
    block: CometBlock,
    validators: tuple[CometValidator, ...],
    now_ns: int,
    seed: bytes,
) -> Commit:
    """The commit of a block that only the holder of ``seed`` signs; the others are absent.

    Raises InvalidCommit unless that is more than two thirds of the power. ``now_ns`` is the time of
    the vote, which is moved to TIME_STEP_NS after the block's if it is earlier than that.
    """
    time_ns = max(now_ns, block.header.time_ns + TIME_STEP_NS)
    height, block_id = block.header.height, block.id
    proposer = next((one for one in validators if one.address == block.header.proposer), None)
    if proposer is None:
        raise InvalidCommit
    (vote,) = sign_commit(chain_id, height, block_id, time_ns, proposer, seed).entries
    entries = tuple(vote if one == proposer else CommitEntry(ABSENT) for one in validators)
    commit = Commit(height, 0, block_id, entries)
    verify_commit(chain_id, validators, height, block_id, commit)
    return commit


def check_block(tip: Tip, signers: Signers, block: CometBlock, commit: Commit) -> None:
    """Raise a subclass of Rejected if a block cannot follow ``tip`` or is not decided.

    Its transactions are not executed here: the next header commits to their results.
    """
    header, last = block.header, block.last_commit
    # It must have the next height: neither a gap nor an earlier block.
    if header.height != tip.height + 1:
        raise WrongHeight
    # It must follow the tip that this node has: anything else is a fork.
    if header.last_block_id != tip.block_id:
        raise ForkedBlock
    # The block before must be decided; the first block has none before it.
    if tip.height == 0:
        if last != Commit():
            raise InvalidCommit
    else:
        verify_commit(tip.chain_id, signers.last, tip.height, tip.block_id, last)
    # The proposer must be a validator of this height.
    if all(header.proposer != validator.address for validator in signers.own):
        raise MalformedBlock
    # The rest of the header is determined by the tip and the validator sets.
    due = next_header(tip, signers, last, block.transactions, header.proposer, block.evidence)
    for field in fields(Header):
        if getattr(header, field.name) != getattr(due, field.name):
            raise WrongHeader(field.name)
    # Block times must rise.
    if tip.height and header.time_ns <= tip.time_ns:
        raise WrongHeader("time_ns")
    verify_commit(tip.chain_id, signers.own, header.height, block.id, commit)
    # Votes must be later than their block: the next header's time is their median.
    for entry in commit.entries:
        if entry.flag == FOR_BLOCK and entry.time_ns <= header.time_ns:
            raise InvalidCommit
