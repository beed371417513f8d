"""Evidence in blocks: two votes of one validator for different blocks in one round.

A header's ``evidence_hash`` covers it, and the application punishes the offence that it proves. The
engine has checked both votes; a follower relies on the two thirds of the power that decided the
block. The other kind of evidence, an attack on light clients, has whole headers in it and is not
read (decision 0179).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.domain.chain.bonds import Misbehaviour
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.commits import BlockId
from meshnode.domain.chain.comet.jsonvalues import (
    JsonObject,
    base64_of,
    read_address,
    read_base64,
    read_block_id,
    read_list,
    read_number,
    read_object,
    read_small,
    read_text,
    write_block_id,
)
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
from meshnode.domain.chain.comet.times import format_time, parse_time
from meshnode.domain.chain.errors import MalformedBlock

DUPLICATE_VOTE = "tendermint/DuplicateVoteEvidence"
DOUBLE_SIGN = 1
"""The kind of offence, as ABCI numbers them."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One vote, with its signature."""

    kind: int
    height: int
    round: int
    block_id: BlockId
    time_ns: int
    address: str
    index: int
    signature: bytes

    def encode(self) -> bytes:
        """Protobuf bytes."""
        return (
            integer_field(1, self.kind)
            + integer_field(2, self.height)
            + integer_field(3, self.round)
            + message_field(4, self.block_id.encode())
            + message_field(5, timestamp(self.time_ns))
            + bytes_field(6, bytes.fromhex(self.address))
            + integer_field(7, self.index)
            + bytes_field(8, self.signature)
        )

    @classmethod
    def decode(cls, data: bytes) -> Vote:
        """Read what :meth:`encode` wrote."""
        found = dict(read_fields(data))
        return cls(
            signed(found.get(1, 0)),
            signed(found.get(2, 0)),
            signed(found.get(3, 0)),
            BlockId.decode(octets(found.get(4, b""))),
            read_timestamp(octets(found.get(5, b""))),
            octets(found.get(6, b"")).hex().upper(),
            signed(found.get(7, 0)),
            octets(found.get(8, b"")),
        )

    def json(self) -> JsonObject:
        """As CometBFT writes it."""
        return {
            "type": self.kind,
            "height": str(self.height),
            "round": self.round,
            "block_id": write_block_id(self.block_id),
            "timestamp": format_time(self.time_ns),
            "validator_address": self.address,
            "validator_index": self.index,
            "signature": base64_of(self.signature),
            "extension": None,
            "extension_signature": None,
        }

    @classmethod
    def read(cls, value: Json) -> Vote:
        """Read what CometBFT wrote. Raises MalformedBlock."""
        fields = read_object(value)
        if fields.get("extension") or fields.get("extension_signature"):
            raise MalformedBlock
        return cls(
            read_small(fields.get("type")),
            read_number(fields.get("height")),
            read_small(fields.get("round")),
            read_block_id(fields.get("block_id")),
            parse_time(read_text(fields.get("timestamp"))),
            read_address(fields.get("validator_address")),
            read_small(fields.get("validator_index")),
            read_base64(fields.get("signature")),
        )


@dataclass(frozen=True, slots=True)
class DoubleVote:
    """Two votes that contradict each other, and the powers at that height."""

    first: Vote
    second: Vote
    total_power: int
    power: int
    time_ns: int

    @property
    def offence(self) -> Misbehaviour:
        """What the application is told."""
        return Misbehaviour(DOUBLE_SIGN, self.first.address, self.first.height)

    def encode(self) -> bytes:
        """Protobuf bytes, which the header's hash covers."""
        return (
            message_field(1, self.first.encode())
            + message_field(2, self.second.encode())
            + integer_field(3, self.total_power)
            + integer_field(4, self.power)
            + message_field(5, timestamp(self.time_ns))
        )

    @classmethod
    def decode(cls, data: bytes) -> DoubleVote:
        """Read what :meth:`encode` wrote."""
        found = dict(read_fields(data))
        return cls(
            Vote.decode(octets(found.get(1, b""))),
            Vote.decode(octets(found.get(2, b""))),
            signed(found.get(3, 0)),
            signed(found.get(4, 0)),
            read_timestamp(octets(found.get(5, b""))),
        )

    def json(self) -> JsonObject:
        """As CometBFT writes it."""
        value: JsonObject = {
            "vote_a": self.first.json(),
            "vote_b": self.second.json(),
            "TotalVotingPower": str(self.total_power),
            "ValidatorPower": str(self.power),
            "Timestamp": format_time(self.time_ns),
        }
        return {"type": DUPLICATE_VOTE, "value": value}

    @classmethod
    def read(cls, document: Json) -> DoubleVote:
        """Read what CometBFT wrote. Raises MalformedBlock, also for the other kind of evidence."""
        fields = read_object(document)
        if fields.get("type") != DUPLICATE_VOTE:
            raise MalformedBlock
        value = read_object(fields.get("value"))
        return cls(
            Vote.read(value.get("vote_a")),
            Vote.read(value.get("vote_b")),
            read_number(value.get("TotalVotingPower")),
            read_number(value.get("ValidatorPower")),
            parse_time(read_text(value.get("Timestamp"))),
        )


Evidence = tuple[DoubleVote, ...]


def evidence_hash(evidence: Sequence[DoubleVote]) -> bytes:
    """The Merkle root of a block's evidence."""
    return merkle_root([one.encode() for one in evidence])


def encode_evidence(evidence: Sequence[DoubleVote]) -> bytes:
    """Protobuf bytes of a block's list of evidence."""
    return b"".join(message_field(1, message_field(1, one.encode())) for one in evidence)


def decode_evidence(data: bytes) -> Evidence:
    """Read what :func:`encode_evidence` wrote; MalformedBlock for the other kind of evidence."""
    found: list[DoubleVote] = []
    for _, item in read_fields(data):
        for kind, value in read_fields(octets(item)):
            if kind != 1:
                raise MalformedBlock
            found.append(DoubleVote.decode(octets(value)))
    return tuple(found)


def read_evidence(value: Json) -> Evidence:
    """The evidence of a ``block`` result."""
    return tuple(DoubleVote.read(one) for one in read_list(read_object(value).get("evidence")))
