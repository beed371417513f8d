"""CometBFT's JSON: what is written is read back, and other forms are refused (decision 0065)."""

import base64
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.comet import jsonform
from meshnode.domain.chain.comet.commits import BlockId, Commit, CommitEntry, PartSet
from meshnode.domain.chain.comet.evidence import DoubleVote, Vote
from meshnode.domain.chain.comet.headers import CometBlock, Header
from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.domain.chain.errors import MalformedBlock
from spec_tests.services.ledger.ledgers import through_json

HASH = st.sampled_from([b""]) | st.binary(min_size=32, max_size=32)
ADDRESS = st.binary(min_size=20, max_size=20).map(lambda raw: raw.hex().upper())
NUMBER = st.integers(0, 2**63 - 1)
TIME = st.integers(0, 2**62)
BLOCK_ID = st.builds(BlockId, HASH, st.builds(PartSet, st.integers(0, 2**31 - 1), HASH))
ENTRY = st.builds(
    CommitEntry, st.sampled_from([2, 3]), ADDRESS, TIME, st.binary(min_size=1, max_size=64)
) | st.just(CommitEntry(1))
COMMIT = st.builds(
    Commit, NUMBER, st.integers(0, 9), BLOCK_ID, st.lists(ENTRY, max_size=4).map(tuple)
)
HEADER = st.builds(
    Header,
    st.text(max_size=20),
    NUMBER,
    TIME,
    BLOCK_ID,
    *(HASH,) * 8,
    ADDRESS,
    st.just(11),
    st.integers(0, 3),
)
VOTE = st.builds(
    Vote,
    st.just(2),
    NUMBER,
    st.integers(0, 9),
    BLOCK_ID,
    TIME,
    ADDRESS,
    st.integers(0, 9),
    st.binary(min_size=64, max_size=64),
)
DOUBLE_VOTE = st.builds(DoubleVote, VOTE, VOTE, NUMBER, NUMBER, TIME)
BLOCK = st.builds(
    CometBlock,
    HEADER,
    st.lists(st.binary(max_size=40), max_size=4).map(tuple),
    COMMIT,
    st.lists(DOUBLE_VOTE, max_size=2).map(tuple),
)


@given(BLOCK)
def test_a_block_is_read_as_it_was_written(block: CometBlock) -> None:
    assert jsonform.read_block(through_json(jsonform.block_result(block))) == block


@given(BLOCK)
def test_a_blocks_bytes_are_read_as_they_were_written(block: CometBlock) -> None:
    assert CometBlock.decode(block.encode()) == block


@given(HEADER, COMMIT)
def test_a_commit_is_read_as_it_was_written(header: Header, commit: Commit) -> None:
    result = through_json(jsonform.commit_result(header, commit))
    assert jsonform.read_commit(result) == (header, commit)


@given(st.builds(jsonform.SyncInfo, st.text(max_size=9), NUMBER, HASH, HASH, TIME, st.booleans()))
def test_a_status_is_read_as_it_was_written(info: jsonform.SyncInfo) -> None:
    assert jsonform.read_status(through_json(jsonform.status_result(info, "0" * 40, None))) == info


BLOCK_1 = CometBlock(
    Header(
        *("chain", 1, 1_767_225_600_500_000_000, BlockId(), b"\x01" * 32, b"\x02" * 32),
        *(b"\x03" * 32, b"\x04" * 32, b"\x05" * 32, b"\x06" * 32, b"\x07" * 32, b"\x08" * 32),
        "AB" * 20,
    ),
    (b"one", b"two"),
    Commit(),
)


def test_the_shapes_are_those_of_cometbft() -> None:
    result: Any = jsonform.block_result(BLOCK_1)
    assert result["block"]["header"]["height"] == "1"
    assert result["block"]["header"]["version"] == {"block": "11"}
    assert result["block"]["header"]["time"] == "2026-01-01T00:00:00.5Z"
    assert result["block"]["header"]["last_commit_hash"] == "01" * 32
    assert result["block"]["header"]["last_block_id"] == {
        "hash": "",
        "parts": {"total": 0, "hash": ""},
    }
    assert result["block"]["data"] == {"txs": ["b25l", "dHdv"]}
    assert result["block"]["evidence"] == {"evidence": []}
    assert result["block"]["last_commit"] == {
        "height": "0",
        "round": 0,
        "block_id": {"hash": "", "parts": {"total": 0, "hash": ""}},
        "signatures": [],
    }
    assert result["block_id"]["parts"]["total"] == 1
    absent = jsonform.commit_json(Commit(5, 0, BlockId(), (CommitEntry(1),)))["signatures"]
    assert absent == [
        {
            "block_id_flag": 1,
            "validator_address": "",
            "timestamp": "0001-01-01T00:00:00Z",
            "signature": None,
        }
    ]


def test_validators_queries_and_broadcasts_have_the_shapes_of_cometbft() -> None:
    one = CometValidator("ab" * 32, 7)
    page = jsonform.validators_result(9, [one], 3)
    assert page["block_height"] == "9"
    assert (page["count"], page["total"]) == ("1", "3")
    assert page["validators"] == [
        {
            "address": one.address,
            "pub_key": {
                "type": "tendermint/PubKeyEd25519",
                "value": base64.b64encode(b"\xab" * 32).decode(),
            },
            "voting_power": "7",
            "proposer_priority": "0",
        }
    ]
    response: Any = jsonform.query_result(0, "", b"{}", 4)["response"]
    assert (response["value"], response["height"]) == ("e30=", "4")
    refused: Any = jsonform.query_result(1, "no", b"", 4)["response"]
    assert refused["value"] is None
    assert jsonform.broadcast_result(1, "no", "AB")["hash"] == "AB"
    both: Any = jsonform.broadcast_commit_result((0, ""), (1, "no"), "AB", 12)
    assert (both["check_tx"]["code"], both["tx_result"]["log"], both["height"]) == (0, "no", "12")
    info = jsonform.SyncInfo("chain", 3)
    status: Any = jsonform.status_result(info, "0" * 40, one)
    assert status["validator_info"]["voting_power"] == "7"


def test_go_writes_empty_lists_as_null() -> None:
    result = through_json(jsonform.block_result(CometBlock(BLOCK_1.header, (), Commit())))
    result["block"]["data"]["txs"] = None
    result["block"]["evidence"]["evidence"] = None
    result["block"]["last_commit"]["signatures"] = None
    assert jsonform.read_block(result).transactions == ()


PATHS = [
    ("block_id", "hash"),
    ("block_id", "parts"),
    ("block_id", "parts", "total"),
    ("block",),
    ("block", "header"),
    ("block", "header", "height"),
    ("block", "header", "time"),
    ("block", "header", "version"),
    ("block", "header", "app_hash"),
    ("block", "header", "proposer_address"),
    ("block", "header", "chain_id"),
    ("block", "data", "txs"),
    ("block", "data", "txs", 0),
    ("block", "last_commit"),
    ("block", "last_commit", "round"),
    ("block", "last_commit", "signatures"),
    ("block", "evidence", "evidence"),
]
WRONG = [7, -1, "x", "é", "07", "ab" * 32, "9" * 20, ["x"], {}, {"hash": 1}, True, 1.5]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: "/".join(map(str, path)))
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_malformed_blocks_are_refused(path: tuple[Any, ...], wrong: object) -> None:
    result = copy.deepcopy(through_json(jsonform.block_result(BLOCK_1)))
    inner = result
    for name in path[:-1]:
        inner = inner[name]
    if inner[path[-1]] == wrong or (path[-1] == "chain_id" and isinstance(wrong, str)):
        return  # still a valid block, but not the one that its id names
    inner[path[-1]] = wrong
    with pytest.raises(MalformedBlock):
        jsonform.read_block(result)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_json_is_read_or_refused(value: Any) -> None:
    for read in (jsonform.read_block, jsonform.read_commit, jsonform.read_status):
        with pytest.raises(MalformedBlock):
            read(value)
