"""Votes and commits: what validators sign, and when a commit proves its block.

A commit is a list of precommits for one block: one entry for each validator of the height's set, in
the set's order. Invariant: :func:`verify_commit` accepts a commit only if more than two thirds of
the power signed exactly this block id, each signature covering chain id, height, round and its own
time.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature as BadSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from meshnode.domain.chain.comet.merkle import merkle_root
from meshnode.domain.chain.comet.proto import (
    ZERO_TIME_NS,
    bytes_field,
    delimited,
    fixed_field,
    integer_field,
    message_field,
    octets,
    read_fields,
    read_timestamp,
    signed,
    timestamp,
)
from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.domain.chain.errors import InvalidCommit, MalformedBlock

PREVOTE, PRECOMMIT = 1, 2
ABSENT, FOR_BLOCK, FOR_NIL = 1, 2, 3
"""The values of ``CommitEntry.flag``."""


@dataclass(frozen=True, slots=True)
class PartSet:
    """How a block's bytes are cut up for gossip: number of parts, and their Merkle root."""

    total: int = 0
    hash: bytes = b""

    def encode(self) -> bytes:
        """Protobuf bytes."""
        return integer_field(1, self.total) + bytes_field(2, self.hash)


@dataclass(frozen=True, slots=True)
class BlockId:
    """A block's identity: its header's hash and the part set of its bytes."""

    hash: bytes = b""
    parts: PartSet = PartSet()

    def encode(self) -> bytes:
        """Protobuf bytes, which are the same in the canonical form that is signed."""
        return bytes_field(1, self.hash) + message_field(2, self.parts.encode())

    @classmethod
    def decode(cls, data: bytes) -> BlockId:
        """Read what :meth:`encode` wrote."""
        block_hash, total, parts_hash = b"", 0, b""
        for field, value in read_fields(data):
            if field == 1:
                block_hash = octets(value)
            elif field == 2:
                for inner, part in read_fields(octets(value)):
                    total = signed(part) if inner == 1 else total
                    parts_hash = octets(part) if inner == 2 else parts_hash
        return cls(block_hash, PartSet(total, parts_hash))


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One validator's precommit. ``address`` is uppercase hex, empty when absent."""

    flag: int
    address: str = ""
    time_ns: int = ZERO_TIME_NS
    signature: bytes = b""

    def encode(self) -> bytes:
        """Protobuf bytes."""
        return (
            integer_field(1, self.flag)
            + bytes_field(2, bytes.fromhex(self.address))
            + message_field(3, timestamp(self.time_ns))
            + bytes_field(4, self.signature)
        )

    @classmethod
    def decode(cls, data: bytes) -> CommitEntry:
        """Read what :meth:`encode` wrote."""
        flag, address, time_ns, signature = 0, "", ZERO_TIME_NS, b""
        for field, value in read_fields(data):
            if field == 1:
                flag = signed(value)
            elif field == 2:
                address = octets(value).hex().upper()
            elif field == 3:
                time_ns = read_timestamp(octets(value))
            elif field == 4:
                signature = octets(value)
        return cls(flag, address, time_ns, signature)


@dataclass(frozen=True, slots=True)
class Commit:
    """The precommits that decided a block."""

    height: int = 0
    round: int = 0
    block_id: BlockId = BlockId()
    entries: tuple[CommitEntry, ...] = ()

    def encode(self) -> bytes:
        """Protobuf bytes."""
        return (
            integer_field(1, self.height)
            + integer_field(2, self.round)
            + message_field(3, self.block_id.encode())
            + b"".join(message_field(4, entry.encode()) for entry in self.entries)
        )

    @classmethod
    def decode(cls, data: bytes) -> Commit:
        """Read what :meth:`encode` wrote; MalformedBlock for anything else."""
        height = round_number = 0
        block_id, entries = BlockId(), list[CommitEntry]()
        for field, value in read_fields(data):
            if field == 1:
                height = signed(value)
            elif field == 2:
                round_number = signed(value)
            elif field == 3:
                block_id = BlockId.decode(octets(value))
            elif field == 4:
                entries.append(CommitEntry.decode(octets(value)))
        commit = cls(height, round_number, block_id, tuple(entries))
        # Only one encoding is accepted, so that the bytes of a commit determine its hash.
        if commit.encode() != data:
            raise MalformedBlock
        return commit

    @property
    def hash(self) -> bytes:
        """The Merkle root of the entries: the next header's ``last_commit_hash``."""
        return merkle_root([entry.encode() for entry in self.entries])

    @property
    def committers(self) -> frozenset[str]:
        """Addresses of the validators that voted for the block."""
        return frozenset(entry.address for entry in self.entries if entry.flag == FOR_BLOCK)


def vote_sign_bytes(
    chain_id: str, kind: int, height: int, round_number: int, block_id: BlockId | None, time_ns: int
) -> bytes:
    """The bytes that a vote's signature covers. ``block_id`` None is a vote for no block."""
    return delimited(
        integer_field(1, kind)
        + fixed_field(2, height)
        + fixed_field(3, round_number)
        + (b"" if block_id is None else message_field(4, block_id.encode()))
        + message_field(5, timestamp(time_ns))
        + bytes_field(6, chain_id.encode())
    )


def sign_commit(
    chain_id: str,
    height: int,
    block_id: BlockId,
    time_ns: int,
    validator: CometValidator,
    seed: bytes,
) -> Commit:
    """The commit of a chain with one validator, whose Ed25519 private key is ``seed``."""
    message = vote_sign_bytes(chain_id, PRECOMMIT, height, 0, block_id, time_ns)
    signature = Ed25519PrivateKey.from_private_bytes(seed).sign(message)
    entry = CommitEntry(FOR_BLOCK, validator.address, time_ns, signature)
    return Commit(height, 0, block_id, (entry,))


def verify_commit(
    chain_id: str,
    validators: tuple[CometValidator, ...],
    height: int,
    block_id: BlockId,
    commit: Commit,
) -> None:
    """Raise InvalidCommit unless ``commit`` proves the block of that id at that height."""
    # It must be for this block, at this height, with an entry for each of these validators.
    if commit.height != height or commit.block_id != block_id:
        raise InvalidCommit
    if len(commit.entries) != len(validators):
        raise InvalidCommit
    power = 0
    for validator, entry in zip(validators, commit.entries, strict=True):
        if entry.flag == ABSENT:
            if entry != CommitEntry(ABSENT):
                raise InvalidCommit
            continue
        if entry.flag not in (FOR_BLOCK, FOR_NIL) or entry.address != validator.address:
            raise InvalidCommit
        voted = block_id if entry.flag == FOR_BLOCK else None
        message = vote_sign_bytes(chain_id, PRECOMMIT, height, commit.round, voted, entry.time_ns)
        _verify(validator.consensus_key, entry.signature, message)
        power += validator.power if entry.flag == FOR_BLOCK else 0
    # More than two thirds of all power must have signed.
    if 3 * power <= 2 * sum(validator.power for validator in validators):
        raise InvalidCommit


def _verify(consensus_key: str, signature: bytes, message: bytes) -> None:
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(consensus_key))
        key.verify(signature, message)
    except (ValueError, BadSignature):
        raise InvalidCommit from None
