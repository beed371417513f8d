"""CometBFT 0.38's RPC results as JSON values: ``/rpc`` writes them and a follower reads them.

Forms: 64-bit integers are decimal strings, smaller ones numbers; hashes and addresses uppercase
hex; transactions, signatures and public keys base64; times RFC 3339. An ``omitempty`` field is left
out when its value is zero.

Invariant: ``read_block(block_result(x)) == x`` and ``read_commit(commit_result(*x)) == x``. Readers
ignore members that they do not know, and raise MalformedBlock for values of another form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.commits import Commit, CommitEntry
from meshnode.domain.chain.comet.evidence import read_evidence
from meshnode.domain.chain.comet.headers import BLOCK_PROTOCOL, CometBlock, Header
from meshnode.domain.chain.comet.jsonvalues import (
    JsonObject,
    base64_of,
    hex_of,
    read_address,
    read_base64,
    read_block_id,
    read_hex,
    read_list,
    read_number,
    read_object,
    read_small,
    read_text,
    write_block_id,
)
from meshnode.domain.chain.comet.times import format_time, parse_time
from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.domain.chain.errors import MalformedBlock

COMET_VERSION = "0.38.25"
"""The version of the formats, which ``status`` reports."""
P2P_PROTOCOL = 8
KEY_TYPE = "tendermint/PubKeyEd25519"


@dataclass(frozen=True, slots=True)
class SyncInfo:
    """The latest block that ``status`` reports; ``hash``, ``app_hash`` are 32 bytes or empty."""

    chain_id: str
    height: int
    hash: bytes = b""
    app_hash: bytes = b""
    time_ns: int = 0
    catching_up: bool = False


# Blocks and commits.


def block_result(block: CometBlock) -> JsonObject:
    """Result of ``block``."""
    return {
        "block_id": write_block_id(block.id),
        "block": {
            "header": header_json(block.header),
            "data": {"txs": [base64_of(raw) for raw in block.transactions]},
            "evidence": {"evidence": [one.json() for one in block.evidence]},
            "last_commit": commit_json(block.last_commit),
        },
    }


def commit_result(header: Header, commit: Commit, *, canonical: bool = True) -> JsonObject:
    """Result of ``commit``; ``canonical`` means that the next block already holds the commit."""
    return {
        "signed_header": {"header": header_json(header), "commit": commit_json(commit)},
        "canonical": canonical,
    }


def header_json(header: Header) -> JsonObject:
    """A header as JSON."""
    version: JsonObject = {"block": str(header.block_version)}
    if header.app_version:
        version["app"] = str(header.app_version)
    return {
        "version": version,
        "chain_id": header.chain_id,
        "height": str(header.height),
        "time": format_time(header.time_ns),
        "last_block_id": write_block_id(header.last_block_id),
        "last_commit_hash": hex_of(header.last_commit_hash),
        "data_hash": hex_of(header.data_hash),
        "validators_hash": hex_of(header.validators_hash),
        "next_validators_hash": hex_of(header.next_validators_hash),
        "consensus_hash": hex_of(header.consensus_hash),
        "app_hash": hex_of(header.app_hash),
        "last_results_hash": hex_of(header.last_results_hash),
        "evidence_hash": hex_of(header.evidence_hash),
        "proposer_address": header.proposer,
    }


def commit_json(commit: Commit) -> JsonObject:
    """A commit as JSON."""
    return {
        "height": str(commit.height),
        "round": commit.round,
        "block_id": write_block_id(commit.block_id),
        "signatures": [
            {
                "block_id_flag": entry.flag,
                "validator_address": entry.address,
                "timestamp": format_time(entry.time_ns),
                "signature": base64_of(entry.signature) if entry.signature else None,
            }
            for entry in commit.entries
        ],
    }


def read_block(result: Json) -> CometBlock:
    """The block of a ``block`` result; its id must be the one that the result names."""
    document = read_object(result)
    body = read_object(document.get("block"))
    transactions = read_object(body.get("data")).get("txs")
    block = CometBlock(
        _read_header(body.get("header")),
        tuple(read_base64(raw) for raw in read_list(transactions)),
        _read_commit(body.get("last_commit")),
        read_evidence(body.get("evidence")),
    )
    if read_block_id(document.get("block_id")) != block.id:
        raise MalformedBlock
    return block


def read_commit(result: Json) -> tuple[Header, Commit]:
    """Header and commit of a ``commit`` result."""
    signed = read_object(read_object(result).get("signed_header"))
    return _read_header(signed.get("header")), _read_commit(signed.get("commit"))


def _read_header(value: Json) -> Header:
    fields = read_object(value)
    version = read_object(fields.get("version"))
    hashes = [
        read_hex(fields.get(name))
        for name in (
            "last_commit_hash",
            "data_hash",
            "validators_hash",
            "next_validators_hash",
            "consensus_hash",
            "app_hash",
            "last_results_hash",
            "evidence_hash",
        )
    ]
    return Header(
        read_text(fields.get("chain_id")),
        read_number(fields.get("height")),
        parse_time(read_text(fields.get("time"))),
        read_block_id(fields.get("last_block_id")),
        *(hashes[0], hashes[1], hashes[2], hashes[3]),
        *(hashes[4], hashes[5], hashes[6], hashes[7]),
        read_address(fields.get("proposer_address")),
        read_number(version.get("block")),
        read_number(version.get("app", "0")),
    )


def _read_commit(value: Json) -> Commit:
    fields = read_object(value)
    entries = [read_object(entry) for entry in read_list(fields.get("signatures"))]
    return Commit(
        read_number(fields.get("height")),
        read_small(fields.get("round")),
        read_block_id(fields.get("block_id")),
        tuple(
            CommitEntry(
                read_small(entry.get("block_id_flag")),
                read_address(entry.get("validator_address")),
                parse_time(read_text(entry.get("timestamp"))),
                read_base64(entry["signature"]) if entry.get("signature") is not None else b"",
            )
            for entry in entries
        ),
    )


# Status and validators.


def status_result(
    info: SyncInfo,
    node_id: str,
    validator: CometValidator | None,
    *,
    address: str = "",
    earliest: Header | None = None,
) -> JsonObject:
    """Result of ``status``.

    ``node_id`` is 40 hex characters, ``address`` is HOST:PORT, and ``earliest`` the header of the
    first block that the node still has.
    """
    first: JsonObject = {}
    if earliest is not None:
        first = {
            "earliest_block_hash": hex_of(earliest.hash),
            "earliest_app_hash": hex_of(earliest.app_hash),
            "earliest_block_height": str(earliest.height),
            "earliest_block_time": format_time(earliest.time_ns),
        }
    return {
        "node_info": {
            "protocol_version": {
                "p2p": str(P2P_PROTOCOL),
                "block": str(BLOCK_PROTOCOL),
                "app": "0",
            },
            "id": node_id,
            "listen_addr": f"tcp://{address}" if address else "",
            "network": info.chain_id,
            "version": COMET_VERSION,
            "channels": "",
            "moniker": f"meshnode-{node_id[:8]}",
            "other": {"tx_index": "on", "rpc_address": ""},
        },
        "sync_info": {
            "latest_block_hash": hex_of(info.hash),
            "latest_app_hash": hex_of(info.app_hash),
            "latest_block_height": str(info.height),
            "latest_block_time": format_time(info.time_ns),
            **first,
            "catching_up": info.catching_up,
        },
        "validator_info": None if validator is None else _validator_json(validator, "voting_power"),
    }


def read_status(result: Json) -> SyncInfo:
    """The part of a ``status`` result that a follower needs."""
    document = read_object(result)
    sync = read_object(document.get("sync_info"))
    catching_up = sync.get("catching_up")
    if not isinstance(catching_up, bool):
        raise MalformedBlock
    return SyncInfo(
        chain_id=read_text(read_object(document.get("node_info")).get("network")),
        height=read_number(sync.get("latest_block_height")),
        hash=read_hex(sync.get("latest_block_hash")),
        app_hash=read_hex(sync.get("latest_app_hash")),
        time_ns=parse_time(read_text(sync.get("latest_block_time"))),
        catching_up=catching_up,
    )


def validators_result(
    height: int,
    validators: Sequence[CometValidator],
    total: int | None = None,
    priorities: Mapping[str, int] | None = None,
) -> JsonObject:
    """Result of ``validators``: one page of a set of ``total``.

    ``priorities`` say whose turn it is to propose, by consensus key; 0 where they are unknown.
    """
    turns = priorities or {}
    page: list[Json] = [
        {
            **_validator_json(one, "voting_power"),
            "proposer_priority": str(turns.get(one.consensus_key, 0)),
        }
        for one in validators
    ]
    return {
        "block_height": str(height),
        "validators": page,
        "count": str(len(page)),
        "total": str(len(page) if total is None else total),
    }


def _validator_json(validator: CometValidator, power: str) -> JsonObject:
    key = base64_of(bytes.fromhex(validator.consensus_key))
    return {
        "address": validator.address,
        "pub_key": {"type": KEY_TYPE, "value": key},
        power: str(validator.power),
    }


# Queries and broadcasts.


def query_result(code: int, log: str, value: bytes, height: int) -> JsonObject:
    """Result of ``abci_query``."""
    return {
        "response": {
            "code": code,
            "log": log,
            "info": "",
            "index": "0",
            "key": None,
            "value": base64_of(value) if value else None,
            "proofOps": None,
            "height": str(height),
            "codespace": "",
        }
    }


def broadcast_result(code: int, log: str, transaction_hash: str) -> JsonObject:
    """Result of ``broadcast_tx_sync``."""
    return {"code": code, "data": "", "log": log, "codespace": "", "hash": transaction_hash}


def broadcast_commit_result(
    check: tuple[int, str], result: tuple[int, str], transaction_hash: str, height: int
) -> JsonObject:
    """Result of ``broadcast_tx_commit``; each part is a code and a log."""
    return {
        "check_tx": _result_json(*check),
        "tx_result": _result_json(*result),
        "hash": transaction_hash,
        "height": str(height),
    }


def _result_json(code: int, log: str) -> JsonObject:
    return {
        "code": code,
        "data": None,
        "log": log,
        "info": "",
        "gas_wanted": "0",
        "gas_used": "0",
        "events": [],
        "codespace": "",
    }
