"""Published vectors: the public network's identifiers, and CometBFT's hashes and sign bytes."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from meshnode.domain.chain.canonical import digest
from meshnode.domain.chain.comet.commits import (
    ABSENT,
    FOR_BLOCK,
    BlockId,
    Commit,
    CommitEntry,
    PartSet,
    vote_sign_bytes,
)
from meshnode.domain.chain.comet.headers import (
    NOTHING_HASH,
    Header,
    consensus_hash,
    data_hash,
)
from meshnode.domain.chain.comet.merkle import merkle_root
from meshnode.domain.chain.comet.proto import ZERO_TIME_NS
from meshnode.domain.chain.comet.validators import CometValidator, validators_hash
from meshnode.domain.chain.envelope import application_id
from meshnode.domain.chain.jobs import request_root
from meshnode.domain.chain.tasks import batch_index
from meshnode.domain.identity import key_from_seed

VECTORS = Path(__file__).parent / "vectors"
PUBLIC: dict[str, Any] = json.loads((VECTORS / "chain.json").read_text())
COMET: dict[str, Any] = json.loads((VECTORS / "chain_comet.json").read_text())
SECOND = 1_000_000_000


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@pytest.mark.parametrize("request_", PUBLIC["requests"])
def test_request_ids_of_recorded_runs(request_: dict[str, Any]) -> None:
    assert application_id(request_["body"], request_["owner"]) == request_["id"]


def test_request_roots_and_the_output_digest() -> None:
    prompt = PUBLIC["requests"][0]["body"]["request"]["prompt"]
    for tokens, root in PUBLIC["request_roots"].items():
        assert request_root(prompt, int(tokens)) == root
    assert digest(PUBLIC["output"]) == PUBLIC["output_digest"]


def test_the_public_key_of_the_zero_seed() -> None:
    assert key_from_seed("0" * 64).public_key == PUBLIC["zero_seed_public_key"]


def test_batch_indices() -> None:
    batch = PUBLIC["batch"]
    indices = [batch_index(batch["domain"], t, batch["count"]) for t in (0, 1)]
    assert indices == batch["indices"]


def test_header_hash() -> None:
    header = Header(
        chain_id="chainId",
        height=3,
        time_ns=1_570_983_284 * SECOND,
        last_block_id=BlockId(bytes(32), PartSet(6, bytes(32))),
        last_commit_hash=sha("last_commit_hash"),
        data_hash=sha("data_hash"),
        validators_hash=sha("validators_hash"),
        next_validators_hash=sha("next_validators_hash"),
        consensus_hash=sha("consensus_hash"),
        app_hash=sha("app_hash"),
        last_results_hash=sha("last_results_hash"),
        evidence_hash=sha("evidence_hash"),
        proposer=sha("proposer_address")[:20].hex().upper(),
        block_version=1,
        app_version=2,
    )
    assert header.hash.hex() == COMET["header_hash"]
    assert Header.decode(header.encode()) == header


def test_validators_data_and_consensus_hashes() -> None:
    assert (
        validators_hash((CometValidator(COMET["validators_key"], 1),)).hex()
        == (COMET["validators_hash"])
    )
    assert data_hash([b"\x01\x02\x03"]).hex() == COMET["data_hash"]
    # CometBFT 1.0's default parameters: 4 MiB, ten million gas.
    assert consensus_hash(4_194_304, 10_000_000).hex() == COMET["consensus_hash"]


BLOCK_ID = BlockId(sha("blockID_hash"), PartSet(1_000_000, sha("blockID_part_set_header_hash")))


def test_block_id_bytes_and_the_commit_hash() -> None:
    assert BLOCK_ID.encode().hex() == COMET["block_id"]
    address = sha("validator_address")[:20].hex().upper()
    entry = CommitEntry(FOR_BLOCK, address, 1_515_151_515 * SECOND, bytes(64))
    commit = Commit(1, 0, BLOCK_ID, (CommitEntry(ABSENT), entry))
    assert commit.hash.hex() == COMET["last_commit_hash"]
    assert Commit.decode(commit.encode()) == commit


@pytest.mark.parametrize("vote", COMET["votes"])
def test_vote_sign_bytes(vote: dict[str, Any]) -> None:
    signed = vote_sign_bytes(
        vote["chain_id"], vote["kind"], vote["height"], vote["round"], None, ZERO_TIME_NS
    )
    assert signed.hex() == vote["bytes"]


def test_merkle_roots_of_rfc_6962() -> None:
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
    last = "606162636465666768696a6b6c6d6e6f"
    assert NOTHING_HASH.hex() == hashlib.sha256(b"").hexdigest()
    # The list of the reference implementation's tests, with the root that it publishes.
    root = merkle_root([bytes.fromhex(leaf) for leaf in [*leaves, last]])
    assert root.hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
