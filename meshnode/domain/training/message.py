"""The message of a contribution: its signature, its limits and its checks (interface 2.3).

Terms: the *statement* is everything of a GossipGradientRequest but ``ttl`` and ``signature``, as
canonical JSON in which each gradient stands as the SHA-256 of its bytes; the *digest* of a
contribution is the SHA-256 of its statement. The signature is a recoverable ECDSA signature over
the statement (secp256k1, SHA-256), 130 hex characters: the public key that it gives must hash to
the ``node_id`` (decision 0096).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from coincurve import PublicKey

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import private_key
from meshnode.domain.training.opinions import Opinion, check_opinions
from meshnode.domain.training.verdict import HeldOut

DOMAIN = "meshnode/gossip-gradient/v1"
MAX_TTL = 8
"""The most hops. Three or four cross a network of hundreds of nodes."""
MAX_AGE_S = 3600.0
"""Clocks differ and rounds are long; older contributions are replays."""
MAX_NORM = 1e4
"""Limit for the L2 norm of a whole contribution, far above what clipped steps add up to."""
MAX_SEQUENCES = 2**31 - 1
"""The type of ``batch_size`` has no more."""
_SIGNATURE_CHARS = 130
_MAX_ROUND = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Contribution:
    """The fields of a GossipGradientRequest."""

    node_id: str
    round_id: int
    model_hash: str
    timestamp: float
    """Seconds since 1970."""
    batch_size: int
    """Sequences that it was computed over (decision 0245)."""
    loss: float
    layer_gradients: Mapping[str, bytes]
    signature: str = ""
    ttl: int = 0
    held_out: HeldOut | None = None
    """What its maker has measured of the weights (decision 0226)."""
    opinions: Mapping[str, Opinion] = field(default_factory=dict)
    """What its maker has found of the contributions of others, by node id (decision 0209)."""

    def statement(self) -> bytes:
        """The bytes that are signed."""
        return json.dumps(
            {
                **self._measured(),
                "domain": DOMAIN,
                "node_id": self.node_id,
                "round_id": self.round_id,
                "model_hash": self.model_hash,
                # As exact text, because JSON libraries write numbers in different ways.
                "timestamp": self.timestamp.hex(),
                "batch_size": self.batch_size,
                "loss": self.loss.hex(),
                "layer_gradients": {
                    name: hashlib.sha256(data).hexdigest()
                    for name, data in self.layer_gradients.items()
                },
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()

    def _measured(self) -> dict[str, object]:
        found: dict[str, object] = {}
        if self.held_out is not None:
            losses = [self.held_out.before.hex(), self.held_out.after.hex()]
            found["held_out"] = {"previous": self.held_out.previous, "losses": losses}
        if self.opinions:
            found["opinions"] = {
                node_id: [opinion.assigned.hex(), opinion.others.hex()]
                for node_id, opinion in self.opinions.items()
            }
        return found


def digest_of(statement: bytes) -> str:
    """The digest that names a contribution in a set."""
    return hashlib.sha256(statement).hexdigest()


def sign(seed: str, statement: bytes) -> str:
    """The signature by the key of ``seed``, hexadecimal."""
    signature: bytes = private_key(seed).sign_recoverable(statement)
    return signature.hex()


def check(message: Contribution, names: frozenset[str], now: float) -> str:
    """Check everything but the gradients' values. Returns the digest. Raises InvalidRequest.

    ``names`` are the model's tensors; ``now`` is seconds since 1970.
    """
    # A contribution is forwarded a bounded number of times.
    if not 0 <= message.ttl <= MAX_TTL:
        raise InvalidRequest("ttl", f"must be between 0 and {MAX_TTL}")

    if not 1 <= message.round_id <= _MAX_ROUND:
        raise InvalidRequest("round_id", "must be positive")

    # Other nodes average the losses, so each must be finite.
    if not (math.isfinite(message.loss) and math.isfinite(message.timestamp)):
        raise InvalidRequest("loss", "must be finite")
    if message.batch_size < 1:
        raise InvalidRequest("batch_size", "must be positive")

    if message.held_out is not None:
        message.held_out.check()
    check_opinions(message.opinions)

    # Contributions of old rounds must not be replayed.
    if abs(now - message.timestamp) > MAX_AGE_S:
        raise InvalidRequest("timestamp", f"is more than {MAX_AGE_S:g} s away")

    # One gradient for each tensor of the model, and no others.
    if message.layer_gradients.keys() != names:
        raise InvalidRequest("layer_gradients", "must name exactly the model's tensors")

    # The node's key must have signed everything but the time-to-live.
    statement = message.statement()
    if signer_of(message.signature, statement) != message.node_id:
        raise InvalidRequest("signature", "is not that of the node_id's key")
    return digest_of(statement)


def signer_of(signature: str, statement: bytes) -> str | None:
    """The node id of the key that signed, or None if the signature is malformed."""
    if len(signature) != _SIGNATURE_CHARS:
        return None
    try:
        key = PublicKey.from_signature_and_message(bytes.fromhex(signature), statement)
    except ValueError:
        return None
    compressed = key.format(compressed=True)
    return hashlib.sha1(compressed, usedforsecurity=False).hexdigest()
