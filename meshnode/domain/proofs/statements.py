"""Orders, forward proofs and votes, and their signatures (interface 2.1 and 4.3; decision 0098).

Terms: an *order* is a requester's signature over a message that it sends to a holder of layers; the
*holder* that computed it becomes its *prover*. The *claim* is the digest of an order, which
identifies the work on the chain: an order can be claimed only once, even if it is signed again.
Times are nanoseconds since 1970, keys are compressed public keys, and node ids are derived from
them.

Invariants: every statement names its purpose and its chain, so that its signature is valid for no
other; a statement is accepted only with exactly the members listed here, in canonical form.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.envelope import Envelope, application_id, open_envelope, sign_envelope
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import NodeKey

ORDER_DOMAIN = "meshnode/work-order/v1"
PROOF_DOMAIN = "meshnode/forward-proof/v1"
VOTE_DOMAIN = "meshnode/validation-vote/v1"

MAX_BYTES = 4096
"""Limit for the bytes of a statement. An order takes 700, a proof twice as many."""
MAX_LAYER = 4095
MAX_TIME_NS = 2**63 - 1
MAX_REQUEST_ID = 128
MAX_CHAIN_ID = 64

_HASH = re.compile(r"[0-9a-f]{64}")
_NODE_ID = re.compile(r"[0-9a-f]{40}")
_LIMITS = JsonLimits(MAX_BYTES, depth=6, fractions=False)


@dataclass(frozen=True, slots=True)
class Signed:
    """The bytes that were signed, the signer and the signature, all of them unchecked."""

    body: bytes
    public_key: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """The statement that a requester signs for the holder to which it sends a message."""

    chain_id: str
    requester: str
    """The requester's public key."""
    holder: str
    """The holder's node id."""
    request_id: str
    model_hash: str
    first_layer: int
    input_hash: str
    time_ns: int

    def body(self) -> dict[str, Json]:
        """The members that the requester signs."""
        return {
            "domain": ORDER_DOMAIN,
            "chain_id": self.chain_id,
            "holder": self.holder,
            "request_id": self.request_id,
            "model_hash": self.model_hash,
            "first_layer": self.first_layer,
            "input_hash": self.input_hash,
            "time_ns": self.time_ns,
        }

    @property
    def claim(self) -> str:
        """The digest that identifies the work on the chain. Signing again does not change it."""
        return application_id(self.body(), self.requester)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardProof:
    """A holder's statement that it ran layers for an order."""

    order: WorkOrder
    prover: str
    """The prover's public key."""
    last_layer: int
    output_hash: str
    time_ns: int
    digest: str
    """SHA-256 of the signed bytes."""

    @property
    def layers(self) -> range:
        """The layers that were run."""
        return range(self.order.first_layer, self.last_layer + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """A validator's verdict in gossiped form; only the vote on the chain counts."""

    chain_id: str
    proof_id: str
    claim: str
    voter: str
    """Public key of the account that owns the validator."""
    consensus_key: str
    approve: bool


def tensor_hash(shape: Sequence[int], data: bytes) -> str:
    """SHA-256 of a tensor as it was sent: its shape, then its bytes."""
    hasher = hashlib.sha256(encode([int(size) for size in shape]))
    hasher.update(data)
    return hasher.hexdigest()


def sign(body: dict[str, Json], key: NodeKey) -> Signed:
    """Sign a statement."""
    envelope = sign_envelope(body, key.seed)
    return Signed(
        encode(body), bytes.fromhex(key.public_key), bytes.fromhex(str(envelope["signature"]))
    )


def sign_order(order: WorkOrder, key: NodeKey) -> str:
    """Sign an order. Returns the text that is sent beside the message."""
    return encode(sign_envelope(order.body(), key.seed)).decode("ascii")


def read_order(text: str) -> tuple[WorkOrder, dict[str, Json]]:
    """An order with a valid signature, and its envelope. Raises InvalidRequest."""
    value = _parsed(text.encode("utf-8", "replace"), "order")
    return order_in(value), _members(value, "order")


def order_in(value: Json) -> WorkOrder:
    """An order in an envelope; the signature is verified. Raises InvalidRequest."""
    try:
        envelope = open_envelope(value)
    except Rejected as refusal:
        raise InvalidRequest("order", str(refusal)) from None
    body = _body(
        envelope,
        ORDER_DOMAIN,
        "order",
        {"chain_id", "holder", "request_id", "model_hash", "first_layer", "input_hash", "time_ns"},
    )
    return WorkOrder(
        chain_id=_text(body, "chain_id", MAX_CHAIN_ID),
        requester=envelope.signer,
        holder=_matching(body, "holder", _NODE_ID),
        request_id=_text(body, "request_id", MAX_REQUEST_ID),
        model_hash=_matching(body, "model_hash", _HASH),
        first_layer=_integer(body, "first_layer", MAX_LAYER),
        input_hash=_matching(body, "input_hash", _HASH),
        time_ns=_integer(body, "time_ns", MAX_TIME_NS),
    )


def sign_proof(
    order: dict[str, Json], last_layer: int, output_hash: str, time_ns: int, key: NodeKey
) -> Signed:
    """A forward proof for the order in this envelope."""
    return sign(
        {
            "domain": PROOF_DOMAIN,
            "kind": "forward",
            "order": order,
            "last_layer": last_layer,
            "output_hash": output_hash,
            "time_ns": time_ns,
        },
        key,
    )


def read_proof(signed: Signed) -> ForwardProof:
    """A proof with valid signatures of prover and requester. Raises InvalidRequest."""
    envelope = _opened(signed, "proof")
    body = _body(
        envelope,
        PROOF_DOMAIN,
        "proof",
        {"kind", "order", "last_layer", "output_hash", "time_ns"},
    )
    if body["kind"] != "forward":
        raise InvalidRequest("proof", "must be of the kind forward, the only one that is checked")
    order = order_in(body["order"])
    last = _integer(body, "last_layer", MAX_LAYER)
    if last < order.first_layer:
        raise InvalidRequest("last_layer", "must not be before first_layer")
    return ForwardProof(
        order=order,
        prover=envelope.signer,
        last_layer=last,
        output_hash=_matching(body, "output_hash", _HASH),
        time_ns=_integer(body, "time_ns", MAX_TIME_NS),
        digest=hashlib.sha256(signed.body).hexdigest(),
    )


def sign_vote(vote: Vote, key: NodeKey) -> Signed:
    """Sign a vote for gossip with the key of ``vote.voter``, whom readers know by the signature."""
    return sign(
        {
            "domain": VOTE_DOMAIN,
            "chain_id": vote.chain_id,
            "proof_id": vote.proof_id,
            "claim": vote.claim,
            "consensus_key": vote.consensus_key,
            "approve": vote.approve,
        },
        key,
    )


def read_vote(signed: Signed) -> Vote:
    """A vote with a valid signature. Raises InvalidRequest."""
    envelope = _opened(signed, "vote")
    names = {"chain_id", "proof_id", "claim", "consensus_key", "approve"}
    body = _body(envelope, VOTE_DOMAIN, "vote", names)
    if not isinstance(body["approve"], bool):
        raise InvalidRequest("approve", "must be true or false")
    return Vote(
        chain_id=_text(body, "chain_id", MAX_CHAIN_ID),
        proof_id=_matching(body, "proof_id", _HASH),
        claim=_matching(body, "claim", _HASH),
        voter=envelope.signer,
        consensus_key=_matching(body, "consensus_key", _HASH),
        approve=body["approve"],
    )


def _opened(signed: Signed, name: str) -> Envelope:
    value = _parsed(signed.body, name)
    # The signed bytes must be the canonical form, so that a statement has only one digest.
    if encode(value) != signed.body:
        raise InvalidRequest(name, "is not in canonical form")
    try:
        return open_envelope(
            {
                "body": value,
                "public_key": signed.public_key.hex(),
                "signature": signed.signature.hex(),
            }
        )
    except Rejected as refusal:
        raise InvalidRequest(name, str(refusal)) from None


def _parsed(data: bytes, name: str) -> Json:
    try:
        return parse(data, _LIMITS)
    except Rejected as refusal:
        raise InvalidRequest(name, str(refusal)) from None


def _members(value: Json, name: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise InvalidRequest(name, "must be an object")
    return value


def _body(envelope: Envelope, domain: str, name: str, members: set[str]) -> dict[str, Any]:
    body = envelope.body
    # It must be signed for this purpose, and must have no unknown members.
    if body.get("domain") != domain or set(body) != members | {"domain"}:
        raise InvalidRequest(name, "has other members than such a statement")
    return body


def _text(body: dict[str, Any], name: str, most: int) -> str:
    value = body[name]
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise InvalidRequest(name, f"must be 1 to {most} characters")
    return value


def _matching(body: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = body[name]
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise InvalidRequest(name, "is malformed")
    return value


def _integer(body: dict[str, Any], name: str, most: int) -> int:
    value = body[name]
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidRequest(name, f"must be an integer from 0 to {most}")
    return value
