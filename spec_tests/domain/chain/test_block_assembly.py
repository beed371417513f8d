"""The next header, its time, and which validators may sign it, for one and for several."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.comet.assembly import (
    TIME_STEP_NS,
    Signers,
    Tip,
    check_block,
    median_time,
    next_header,
    sign_alone,
)
from meshnode.domain.chain.comet.commits import (
    FOR_BLOCK,
    FOR_NIL,
    PRECOMMIT,
    BlockId,
    Commit,
    CommitEntry,
    vote_sign_bytes,
)
from meshnode.domain.chain.comet.headers import NOTHING_HASH, CometBlock, consensus_hash
from meshnode.domain.chain.comet.validators import CometValidator, validator_set
from meshnode.domain.chain.errors import ForkedBlock, InvalidCommit, WrongHeader, WrongHeight

SECOND = 1_000_000_000
SEEDS = [bytes([n]) * 32 for n in range(1, 5)]
KEYS = [Ed25519PrivateKey.from_private_bytes(seed) for seed in SEEDS]
NAMES = [key.public_key().public_bytes_raw().hex() for key in KEYS]
CHAIN = "assembly"


def tip(height: int = 0, time_ns: int = 5 * SECOND, block_id: BlockId | None = None) -> Tip:
    return Tip(
        CHAIN,
        height,
        time_ns,
        block_id or BlockId(),
        b"\x01" * 32,
        NOTHING_HASH,
        consensus_hash(1000, -1),
    )


def commit_of(
    block: CometBlock, validators: tuple[CometValidator, ...], flags: list[int], times: list[int]
) -> Commit:
    """A signed commit in which each validator votes according to its flag and its time."""
    height, entries = block.header.height, []
    for validator, flag, time_ns in zip(validators, flags, times, strict=True):
        if flag not in (FOR_BLOCK, FOR_NIL):
            entries.append(CommitEntry(1))
            continue
        voted = block.id if flag == FOR_BLOCK else None
        message = vote_sign_bytes(CHAIN, PRECOMMIT, height, 0, voted, time_ns)
        signature = KEYS[NAMES.index(validator.consensus_key)].sign(message)
        entries.append(CommitEntry(flag, validator.address, time_ns, signature))
    return Commit(height, 0, block.id, tuple(entries))


def first_block(validators: tuple[CometValidator, ...]) -> tuple[CometBlock, Signers]:
    signers = Signers((), validators, validators)
    header = next_header(tip(), signers, Commit(), (b"tx",), validators[0].address)
    return CometBlock(header, (b"tx",), Commit()), signers


FOUR = validator_set(dict.fromkeys(NAMES, 1))


@pytest.mark.parametrize(
    ("flags", "enough"),
    [
        ([2, 2, 2, 2], True),
        ([2, 2, 2, 1], True),
        ([2, 2, 2, 3], True),
        ([2, 2, 1, 1], False),
        ([2, 2, 3, 3], False),
        ([1, 1, 1, 1], False),
    ],
)
def test_more_than_two_thirds_decide(flags: list[int], enough: bool) -> None:
    block, signers = first_block(FOUR)
    commit = commit_of(block, FOUR, flags, [6 * SECOND] * 4)
    if enough:
        check_block(tip(), signers, block, commit)
    else:
        with pytest.raises(InvalidCommit):
            check_block(tip(), signers, block, commit)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=4),
)
def test_the_median_time_is_weighted_by_power(votes: list[tuple[int, int]]) -> None:
    powers = {NAMES[n]: power for n, (power, _) in enumerate(votes)}
    times = {NAMES[n]: time_ns for n, (_, time_ns) in enumerate(votes)}
    validators = validator_set(powers)
    entries = tuple(
        CommitEntry(FOR_BLOCK, one.address, times[one.consensus_key], b"x") for one in validators
    )
    found = median_time(Commit(1, 0, BlockId(), entries), validators)
    total = sum(powers.values())
    # Half of the power, rounded down, voted at this time or before, and at least half at it or
    # later.
    assert 2 * sum(p for p, t in votes if t <= found) >= total - 1
    assert 2 * sum(p for p, t in votes if t >= found) >= total


def test_a_minority_cannot_move_time() -> None:
    block, signers = first_block(FOUR)
    honest = 7 * SECOND
    for lie in (1, 10**6 * SECOND):
        commit = commit_of(block, FOUR, [2] * 4, [honest, honest, honest, lie])
        assert median_time(commit, FOUR) == honest
        header = next_header(
            tip(1, block.header.time_ns, block.id),
            Signers(FOUR, FOUR, FOUR),
            commit,
            (),
            FOUR[0].address,
        )
        assert header.time_ns == honest
    assert signers.own == FOUR


def test_one_signature_is_a_commit_where_it_has_the_power() -> None:
    powers = {NAMES[0]: 5, NAMES[1]: 1, NAMES[2]: 1}
    validators = validator_set(powers)
    block, signers = first_block(validators)
    commit = sign_alone(CHAIN, block, validators, 0, SEEDS[0])
    assert [entry.flag for entry in commit.entries] == [2, 1, 1]
    # The signer's clock shows 0, and its vote is still later than the block.
    assert commit.entries[0].time_ns == block.header.time_ns + TIME_STEP_NS
    check_block(tip(), signers, block, commit)
    weak = validator_set({NAMES[0]: 2, NAMES[1]: 1})
    with pytest.raises(InvalidCommit):
        sign_alone(CHAIN, first_block(weak)[0], weak, 0, SEEDS[0])
    with pytest.raises(InvalidCommit):
        sign_alone(CHAIN, block, validator_set({NAMES[1]: 1}), 0, SEEDS[0])


def test_the_second_block_needs_the_commit_of_the_first() -> None:
    block, signers = first_block(FOUR)
    good = commit_of(block, FOUR, [2] * 4, [6 * SECOND, 7 * SECOND, 8 * SECOND, 9 * SECOND])
    after = tip(1, block.header.time_ns, block.id)
    signers = Signers(FOUR, FOUR, FOUR)
    header = next_header(after, signers, good, (), FOUR[1].address)
    second = CometBlock(header, (), good)
    own = commit_of(second, FOUR, [2] * 4, [20 * SECOND] * 4)
    check_block(after, signers, second, own)
    # A last commit with too few votes, with none, or for another height.
    few = commit_of(block, FOUR, [2, 2, 1, 1], [6 * SECOND] * 4)
    for wrong in (few, Commit(), replace(good, height=2)):
        with pytest.raises(InvalidCommit):
            check_block(after, signers, replace(second, last_commit=wrong), own)
    # Another valid commit for the same block gives another time than the header's.
    also = commit_of(block, FOUR, [2, 2, 2, 1], [6 * SECOND, 6 * SECOND, 6 * SECOND, 0])
    with pytest.raises(WrongHeader):
        check_block(after, signers, replace(second, last_commit=also), own)
    # The first block has no last commit.
    changed = replace(block, last_commit=good)
    with pytest.raises(InvalidCommit):
        check_block(tip(), Signers((), FOUR, FOUR), changed, good)
    with pytest.raises(WrongHeight):
        check_block(after, signers, block, good)
    with pytest.raises(ForkedBlock):
        check_block(replace(after, block_id=BlockId(b"\x09" * 32)), signers, second, own)
    # Votes must be later than their block.
    early = commit_of(second, FOUR, [2] * 4, [second.header.time_ns] * 4)
    with pytest.raises(InvalidCommit):
        check_block(after, signers, second, early)
