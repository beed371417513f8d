"""Blocks and commits: their bytes are read back exactly, and a commit proves one block only."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.comet.commits import (
    ABSENT,
    FOR_BLOCK,
    FOR_NIL,
    PRECOMMIT,
    BlockId,
    Commit,
    CommitEntry,
    PartSet,
    sign_commit,
    verify_commit,
    vote_sign_bytes,
)
from meshnode.domain.chain.comet.headers import (
    NOTHING_HASH,
    CometBlock,
    Header,
    consensus_hash,
    data_hash,
    part_set,
    results_hash,
)
from meshnode.domain.chain.comet.merkle import merkle_root
from meshnode.domain.chain.comet.times import format_time, parse_time
from meshnode.domain.chain.comet.validators import validator_set, validators_hash
from meshnode.domain.chain.errors import InvalidCommit, MalformedBlock
from spec_tests.domain.chain.net import CHAIN_ID, SECOND, Actor, actor

VOTERS = [actor(f"voter {number}") for number in range(4)]
SET = validator_set({voter.consensus_key: 10 for voter in VOTERS})
IN_ORDER = [next(v for v in VOTERS if v.consensus_key == one.consensus_key) for one in SET]
TIME = 1_767_225_600 * SECOND + 5


def header(**changes: Any) -> Header:
    plain = Header(
        chain_id=CHAIN_ID,
        height=7,
        time_ns=TIME,
        last_block_id=BlockId(b"\x01" * 32, PartSet(1, b"\x02" * 32)),
        last_commit_hash=b"\x03" * 32,
        data_hash=data_hash([b"a", b"b"]),
        validators_hash=validators_hash(SET),
        next_validators_hash=validators_hash(SET),
        consensus_hash=consensus_hash(65_536, -1),
        app_hash=b"\x04" * 32,
        last_results_hash=results_hash([0, 1]),
        evidence_hash=NOTHING_HASH,
        proposer=SET[0].address,
    )
    return replace(plain, **changes)


BLOCK = CometBlock(header(), (b"a", b"b"), Commit(6, 0, header().last_block_id, ()))
ID = BLOCK.id


def entry(voter: Actor, block_id: BlockId | None = ID, flag: int = FOR_BLOCK) -> CommitEntry:
    message = vote_sign_bytes(CHAIN_ID, PRECOMMIT, 7, 0, block_id, TIME)
    return CommitEntry(flag, voter.address, TIME, voter.consensus.sign(message))


def commit(*entries: CommitEntry) -> Commit:
    return Commit(7, 0, ID, entries)


def accepts(candidate: Commit, height: int = 7, block_id: BlockId = ID) -> bool:
    try:
        verify_commit(CHAIN_ID, SET, height, block_id, candidate)
    except InvalidCommit:
        return False
    return True


ALL = commit(*(entry(voter) for voter in IN_ORDER))


@given(st.lists(st.sampled_from([FOR_BLOCK, ABSENT, FOR_NIL]), min_size=4, max_size=4))
def test_more_than_two_thirds_of_the_power_decide(flags: list[int]) -> None:
    entries = [
        CommitEntry(ABSENT)
        if flag == ABSENT
        else entry(voter, ID if flag == FOR_BLOCK else None, flag)
        for voter, flag in zip(IN_ORDER, flags, strict=True)
    ]
    assert accepts(commit(*entries)) == (flags.count(FOR_BLOCK) >= 3)


@pytest.mark.parametrize(
    "candidate",
    [
        replace(ALL, height=8),
        replace(ALL, round=1),
        replace(ALL, block_id=BlockId()),
        replace(ALL, entries=ALL.entries[:3]),
        replace(ALL, entries=(*ALL.entries, CommitEntry(ABSENT))),
        replace(ALL, entries=ALL.entries[::-1]),
        replace(ALL, entries=(ALL.entries[0],) * 4),
        commit(*(replace(one, time_ns=TIME + 1) for one in ALL.entries)),
        commit(*(replace(one, signature=b"") for one in ALL.entries)),
        commit(*(replace(one, flag=FOR_NIL) for one in ALL.entries)),
        commit(*(replace(one, flag=7) for one in ALL.entries)),
        # One bad signature spoils the commit, even where the others would suffice.
        commit(*ALL.entries[:3], replace(ALL.entries[3], signature=bytes(64))),
        commit(*ALL.entries[:3], replace(CommitEntry(ABSENT), signature=b"x")),
    ],
)
def test_commits_that_do_not_prove_the_block_are_refused(candidate: Commit) -> None:
    assert accepts(ALL)
    assert not accepts(candidate)


def test_exactly_two_thirds_are_not_enough() -> None:
    three = validator_set({voter.consensus_key: 10 for voter in IN_ORDER[:3]})
    assert three == SET[:3]
    entries = ALL.entries[:2]
    with pytest.raises(InvalidCommit):
        verify_commit(CHAIN_ID, three, 7, ID, commit(*entries, CommitEntry(ABSENT)))
    verify_commit(CHAIN_ID, three, 7, ID, commit(*ALL.entries[:3]))


def test_a_commit_is_for_one_chain_one_height_and_one_block() -> None:
    assert not accepts(ALL, height=8)
    assert not accepts(ALL, block_id=replace(ID, parts=PartSet(2, ID.parts.hash)))
    with pytest.raises(InvalidCommit):
        verify_commit("test-chain-2", SET, 7, ID, ALL)


def test_a_chain_of_one_validator_signs_its_own_commits() -> None:
    alone = validator_set({VOTERS[0].consensus_key: 8})
    signed = sign_commit(CHAIN_ID, 7, ID, TIME, alone[0], bytes.fromhex(VOTERS[0].seed))
    verify_commit(CHAIN_ID, alone, 7, ID, signed)
    assert signed.committers == {VOTERS[0].address}
    assert Commit.decode(signed.encode()) == signed


def test_a_block_is_read_back_as_it_was_written() -> None:
    assert CometBlock.decode(BLOCK.encode()) == BLOCK
    first = CometBlock(header(height=1, last_block_id=BlockId()), (), Commit())
    assert CometBlock.decode(first.encode()) == first
    assert first.last_commit.hash == NOTHING_HASH
    assert replace(BLOCK, last_commit=ALL).id != ID


@given(st.integers(0, len(BLOCK.encode()) - 1), st.integers(1, 255))
def test_changed_bytes_give_another_block_or_are_refused(place: int, mask: int) -> None:
    data = bytearray(BLOCK.encode())
    data[place] ^= mask
    try:
        changed = CometBlock.decode(bytes(data))
    except MalformedBlock:
        return
    assert changed != BLOCK
    assert changed.id != ID


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for kind in (Commit, CometBlock):
        try:
            assert kind.decode(data).encode() == data
        except MalformedBlock:
            continue


@pytest.mark.parametrize("name", list(Header.__dataclass_fields__))
def test_every_field_is_in_the_header_s_hash(name: str) -> None:
    value = getattr(header(), name)
    other: Any = value + 1 if isinstance(value, int) else None
    if isinstance(value, bytes):
        other = b"\x09" * 32
    elif isinstance(value, str):
        other = "AB" * 20
    elif isinstance(value, BlockId):
        other = BlockId()
    assert header(**{name: other}).hash != header().hash


def test_sets_are_ordered_by_power_then_address() -> None:
    powers = {voter.consensus_key: power for voter, power in zip(VOTERS, (5, 9, 5, 9), strict=True)}
    ordered = validator_set(powers)
    assert [one.power for one in ordered] == [9, 9, 5, 5]
    assert ordered[0].address < ordered[1].address
    assert ordered[2].address < ordered[3].address
    assert validator_set(dict(reversed(powers.items()))) == ordered


def test_a_large_block_has_parts() -> None:
    assert part_set(bytes(65_536)) == PartSet(1, merkle_root([bytes(65_536)]))
    assert part_set(bytes(65_537)).total == 2


@given(st.datetimes(), st.integers(0, 999_999_999))
def test_times_are_those_of_the_calendar(moment: datetime, nanos: int) -> None:
    seconds = (moment.replace(microsecond=0) - datetime(1970, 1, 1)) // timedelta(seconds=1)
    text = format_time(seconds * SECOND + nanos)
    assert text[:19] == moment.isoformat()[:19]
    assert parse_time(text) == seconds * SECOND + nanos
    assert not text.endswith("0Z") or "." not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+01:00",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00.1234567890Z",
        "0000-01-01T00:00:00Z",
        "\u0662\u0660\u0662\u0666-01-01T00:00:00Z",
    ],
)
def test_malformed_times(text: str) -> None:
    with pytest.raises(MalformedBlock):
        parse_time(text)
    assert parse_time("2024-02-29T00:00:00.000000001Z") == 1_709_164_800 * SECOND + 1
    assert format_time(-62_135_596_800 * SECOND) == "0001-01-01T00:00:00Z"
