"""Headers and blocks: their bytes, their hashes, and the links from one to the next.

A header of height H carries the state root, the results and the commit of H-1. Its own hash and the
part set of the whole block form the block id that validators sign.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.domain.chain.comet.commits import BlockId, Commit, PartSet
from meshnode.domain.chain.comet.evidence import DoubleVote, decode_evidence, encode_evidence
from meshnode.domain.chain.comet.merkle import merkle_root
from meshnode.domain.chain.comet.proto import (
    bytes_field,
    integer_field,
    message_field,
    octets,
    read_fields,
    read_timestamp,
    signed,
    timestamp,
)
from meshnode.domain.chain.errors import MalformedBlock

BLOCK_PROTOCOL = 11
"""CometBFT's block version."""
PART_SIZE = 65_536
"""Bytes in a part of a block."""
NOTHING_HASH = merkle_root([])
"""The hash of an empty list: no transactions, no evidence, no results."""


@dataclass(frozen=True, slots=True)
class Header:
    """A block header. Hashes are 32 bytes; ``proposer`` is an address in uppercase hex."""

    chain_id: str
    height: int
    time_ns: int
    last_block_id: BlockId
    last_commit_hash: bytes
    data_hash: bytes
    validators_hash: bytes
    next_validators_hash: bytes
    consensus_hash: bytes
    app_hash: bytes
    last_results_hash: bytes
    evidence_hash: bytes
    proposer: str
    block_version: int = BLOCK_PROTOCOL
    app_version: int = 0

    def _hashes(self) -> tuple[bytes, ...]:
        return (
            self.last_commit_hash,
            self.data_hash,
            self.validators_hash,
            self.next_validators_hash,
            self.consensus_hash,
            self.app_hash,
            self.last_results_hash,
            self.evidence_hash,
            bytes.fromhex(self.proposer),
        )

    def _version(self) -> bytes:
        return integer_field(1, self.block_version) + integer_field(2, self.app_version)

    @property
    def hash(self) -> bytes:
        """The Merkle root of the fourteen fields, each in its own encoding."""
        return merkle_root(
            [
                self._version(),
                bytes_field(1, self.chain_id.encode()),
                integer_field(1, self.height),
                timestamp(self.time_ns),
                self.last_block_id.encode(),
                *(bytes_field(1, value) for value in self._hashes()),
            ]
        )

    def encode(self) -> bytes:
        """Protobuf bytes."""
        return (
            message_field(1, self._version())
            + bytes_field(2, self.chain_id.encode())
            + integer_field(3, self.height)
            + message_field(4, timestamp(self.time_ns))
            + message_field(5, self.last_block_id.encode())
            + b"".join(bytes_field(6 + i, value) for i, value in enumerate(self._hashes()))
        )

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Read what :meth:`encode` wrote."""
        found = dict(read_fields(data))
        version = dict(read_fields(octets(found.get(1, b""))))
        hashes = [octets(found.get(field, b"")) for field in range(6, 15)]
        try:
            chain_id = octets(found.get(2, b"")).decode()
        except UnicodeDecodeError:
            raise MalformedBlock from None
        return cls(
            chain_id,
            signed(found.get(3, 0)),
            read_timestamp(octets(found.get(4, b""))),
            BlockId.decode(octets(found.get(5, b""))),
            *(hashes[0], hashes[1], hashes[2], hashes[3]),
            *(hashes[4], hashes[5], hashes[6], hashes[7]),
            hashes[8].hex().upper(),
            signed(version.get(1, 0)),
            signed(version.get(2, 0)),
        )


@dataclass(frozen=True, slots=True)
class CometBlock:
    """A whole block: header, transactions, the commit of the block before, and evidence."""

    header: Header
    transactions: tuple[bytes, ...]
    last_commit: Commit
    evidence: tuple[DoubleVote, ...] = ()

    def encode(self) -> bytes:
        """Protobuf bytes, which are cut into parts."""
        return (
            message_field(1, self.header.encode())
            + message_field(2, b"".join(message_field(1, raw) for raw in self.transactions))
            + message_field(3, encode_evidence(self.evidence))
            + message_field(4, self.last_commit.encode())
        )

    @classmethod
    def decode(cls, data: bytes) -> CometBlock:
        """Read what :meth:`encode` wrote; MalformedBlock for anything else."""
        found = dict(read_fields(data))
        transactions = read_fields(octets(found.get(2, b"")))
        block = cls(
            Header.decode(octets(found.get(1, b""))),
            tuple(octets(value) for _, value in transactions),
            Commit.decode(octets(found.get(4, b""))),
            decode_evidence(octets(found.get(3, b""))),
        )
        # Only one encoding is accepted, because the parts of these bytes are hashed.
        if block.encode() != data:
            raise MalformedBlock
        return block

    @property
    def id(self) -> BlockId:
        """The block id that validators sign."""
        return BlockId(self.header.hash, part_set(self.encode()))


def part_set(data: bytes) -> PartSet:
    """The number and the Merkle root of the parts of a block's bytes."""
    parts = [data[start : start + PART_SIZE] for start in range(0, len(data), PART_SIZE)]
    return PartSet(len(parts), merkle_root(parts))


def data_hash(transactions: Sequence[bytes]) -> bytes:
    """The Merkle root of the transactions' hashes."""
    return merkle_root([hashlib.sha256(raw).digest() for raw in transactions])


def results_hash(codes: Sequence[int]) -> bytes:
    """The Merkle root of the results: only their codes, since this chain uses no data or gas."""
    return merkle_root([integer_field(1, code) for code in codes])


def consensus_hash(max_bytes: int, max_gas: int) -> bytes:
    """The hash of the consensus parameters that a header commits to."""
    return hashlib.sha256(integer_field(1, max_bytes) + integer_field(2, max_gas)).digest()
