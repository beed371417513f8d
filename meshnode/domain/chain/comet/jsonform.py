"""CometBFT 0.38's RPC results as JSON values: ``/rpc`` writes them and a follower reads them.

Forms: 64-bit integers are decimal strings, smaller ones numbers; hashes and addresses uppercase
hex; transactions, signatures and public keys base64; times RFC 3339. An ``omitempty`` field is left
out when its value is zero.

Invariant: ``read_block(block_result(x)) == x`` and ``read_commit(commit_result(*x)) == x``. Readers
ignore members that they do not know, and raise MalformedBlock for values of another form.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.commits import BlockId, Commit, CommitEntry, PartSet
from meshnode.domain.chain.comet.headers import BLOCK_PROTOCOL, CometBlock, Header
from meshnode.domain.chain.comet.times import format_time, parse_time
from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.domain.chain.errors import MalformedBlock

COMET_VERSION = "0.38"
"""The version of the formats, which ``status`` reports."""
P2P_PROTOCOL = 8
KEY_TYPE = "tendermint/PubKeyEd25519"

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_HEX = re.compile(r"(?:[0-9A-F]{2})*", re.ASCII)

JsonObject = dict[str, Json]


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
        "block_id": block_id_json(block.id),
        "block": {
            "header": header_json(block.header),
            "data": {"txs": [_base64(raw) for raw in block.transactions]},
            "evidence": {"evidence": []},
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
        "last_block_id": block_id_json(header.last_block_id),
        "last_commit_hash": _hex(header.last_commit_hash),
        "data_hash": _hex(header.data_hash),
        "validators_hash": _hex(header.validators_hash),
        "next_validators_hash": _hex(header.next_validators_hash),
        "consensus_hash": _hex(header.consensus_hash),
        "app_hash": _hex(header.app_hash),
        "last_results_hash": _hex(header.last_results_hash),
        "evidence_hash": _hex(header.evidence_hash),
        "proposer_address": header.proposer,
    }


def block_id_json(block_id: BlockId) -> JsonObject:
    """A block id as JSON."""
    parts: JsonObject = {"total": block_id.parts.total, "hash": _hex(block_id.parts.hash)}
    return {"hash": _hex(block_id.hash), "parts": parts}


def commit_json(commit: Commit) -> JsonObject:
    """A commit as JSON."""
    return {
        "height": str(commit.height),
        "round": commit.round,
        "block_id": block_id_json(commit.block_id),
        "signatures": [
            {
                "block_id_flag": entry.flag,
                "validator_address": entry.address,
                "timestamp": format_time(entry.time_ns),
                "signature": _base64(entry.signature) if entry.signature else None,
            }
            for entry in commit.entries
        ],
    }


def read_block(result: Json) -> CometBlock:
    """The block of a ``block`` result; its id must be the one that the result names."""
    document = _object(result)
    body = _object(document.get("block"))
    evidence = _object(body.get("evidence")).get("evidence")
    # Blocks with evidence have another encoding, which is not read here (decision 0065).
    if evidence not in ([], None):
        raise MalformedBlock
    transactions = _object(body.get("data")).get("txs")
    block = CometBlock(
        _read_header(body.get("header")),
        tuple(_read_base64(raw) for raw in _list(transactions)),
        _read_commit(body.get("last_commit")),
    )
    if _read_block_id(document.get("block_id")) != block.id:
        raise MalformedBlock
    return block


def read_commit(result: Json) -> tuple[Header, Commit]:
    """Header and commit of a ``commit`` result."""
    signed = _object(_object(result).get("signed_header"))
    return _read_header(signed.get("header")), _read_commit(signed.get("commit"))


def _read_header(value: Json) -> Header:
    fields = _object(value)
    version = _object(fields.get("version"))
    hashes = [
        _read_hex(fields.get(name))
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
        _text(fields.get("chain_id")),
        _read_number(fields.get("height")),
        parse_time(_text(fields.get("time"))),
        _read_block_id(fields.get("last_block_id")),
        *(hashes[0], hashes[1], hashes[2], hashes[3]),
        *(hashes[4], hashes[5], hashes[6], hashes[7]),
        _read_address(fields.get("proposer_address")),
        _read_number(version.get("block")),
        _read_number(version.get("app", "0")),
    )


def _read_block_id(value: Json) -> BlockId:
    fields = _object(value)
    parts = _object(fields.get("parts"))
    total = _small(parts.get("total"))
    return BlockId(_read_hex(fields.get("hash")), PartSet(total, _read_hex(parts.get("hash"))))


def _read_commit(value: Json) -> Commit:
    fields = _object(value)
    entries = [_object(entry) for entry in _list(fields.get("signatures"))]
    return Commit(
        _read_number(fields.get("height")),
        _small(fields.get("round")),
        _read_block_id(fields.get("block_id")),
        tuple(
            CommitEntry(
                _small(entry.get("block_id_flag")),
                _read_address(entry.get("validator_address")),
                parse_time(_text(entry.get("timestamp"))),
                _read_base64(entry["signature"]) if entry.get("signature") is not None else b"",
            )
            for entry in entries
        ),
    )


# Status and validators.


def status_result(info: SyncInfo, node_id: str, validator: CometValidator | None) -> JsonObject:
    """Result of ``status``. ``node_id`` is 40 hex characters."""
    return {
        "node_info": {
            "protocol_version": {
                "p2p": str(P2P_PROTOCOL),
                "block": str(BLOCK_PROTOCOL),
                "app": "0",
            },
            "id": node_id,
            "listen_addr": "",
            "network": info.chain_id,
            "version": COMET_VERSION,
            "channels": "",
            "moniker": "",
            "other": {"tx_index": "on", "rpc_address": ""},
        },
        "sync_info": {
            "latest_block_hash": _hex(info.hash),
            "latest_app_hash": _hex(info.app_hash),
            "latest_block_height": str(info.height),
            "latest_block_time": format_time(info.time_ns),
            "catching_up": info.catching_up,
        },
        "validator_info": None if validator is None else _validator_json(validator, "voting_power"),
    }


def read_status(result: Json) -> SyncInfo:
    """The part of a ``status`` result that a follower needs."""
    document = _object(result)
    sync = _object(document.get("sync_info"))
    catching_up = sync.get("catching_up")
    if not isinstance(catching_up, bool):
        raise MalformedBlock
    return SyncInfo(
        chain_id=_text(_object(document.get("node_info")).get("network")),
        height=_read_number(sync.get("latest_block_height")),
        hash=_read_hex(sync.get("latest_block_hash")),
        app_hash=_read_hex(sync.get("latest_app_hash")),
        time_ns=parse_time(_text(sync.get("latest_block_time"))),
        catching_up=catching_up,
    )


def validators_result(
    height: int, validators: Sequence[CometValidator], total: int | None = None
) -> JsonObject:
    """Result of ``validators``: one page of a set of ``total``."""
    page: list[Json] = [
        {**_validator_json(one, "voting_power"), "proposer_priority": "0"} for one in validators
    ]
    return {
        "block_height": str(height),
        "validators": page,
        "count": str(len(page)),
        "total": str(len(page) if total is None else total),
    }


def _validator_json(validator: CometValidator, power: str) -> JsonObject:
    key = _base64(bytes.fromhex(validator.consensus_key))
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
            "value": _base64(value) if value else None,
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


# Single values.


def _hex(data: bytes) -> str:
    return data.hex().upper()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise MalformedBlock
    return value


def _list(value: Json) -> list[Json]:
    # Go writes a list to which nothing was ever added as null.
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedBlock
    return value


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise MalformedBlock
    return value


def _small(value: Json) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise MalformedBlock
    return value


def _read_number(value: Json) -> int:
    text = _text(value)
    if not _NUMBER.fullmatch(text) or int(text) >= 2**63:
        raise MalformedBlock
    return int(text)


def _read_hex(value: Json) -> bytes:
    text = _text(value)
    if len(text) not in (0, 64) or not _HEX.fullmatch(text):
        raise MalformedBlock
    return bytes.fromhex(text)


def _read_address(value: Json) -> str:
    text = _text(value)
    if len(text) not in (0, 40) or not _HEX.fullmatch(text):
        raise MalformedBlock
    return text


def _read_base64(value: Json) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError:
        # Text outside ASCII raises a plain ValueError, other bad text a subclass of it.
        raise MalformedBlock from None
