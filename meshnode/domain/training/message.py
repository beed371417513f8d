"""A contribution as it travels: signed, bounded, judged before it is used (document, 2.3).

Terms: the *statement* is everything of a GossipGradientRequest but ``ttl`` and ``signature``, as
canonical JSON in which each gradient stands as the SHA-256 of its bytes; the *digest* of a
contribution is the SHA-256 of its statement. The signature is a recoverable ECDSA signature over
the statement (secp256k1, SHA-256), 130 hex characters: the public key that it gives must hash to
the ``node_id`` (decisions/0096).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from coincurve import PublicKey

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import private_key

DOMAIN = "meshnode/gossip-gradient/v1"
MOST_TTL = 8
"""Hops. A network of hundreds is crossed in three or four."""
MOST_AGE_S = 3600.0
"""Clocks differ and rounds are long; older ones are replays of another day."""
MOST_NORM = 1e4
"""L2, of a whole contribution: far beyond what clipped steps add up to."""
_SIGNATURE_CHARS = 130
_MOST_ROUND = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Contribution:
    """The fields of a GossipGradientRequest."""

    node_id: str
    round_id: int
    model_hash: str
    timestamp: float
    """Seconds since 1970."""
    batch_size: int
    loss: float
    layer_gradients: Mapping[str, bytes]
    signature: str = ""
    ttl: int = 0

    def statement(self) -> bytes:
        """What is signed."""
        return json.dumps(
            {
                "domain": DOMAIN,
                "node_id": self.node_id,
                "round_id": self.round_id,
                "model_hash": self.model_hash,
                # As text that is exact, whatever writes numbers how.
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


def digest_of(statement: bytes) -> str:
    """What names a contribution in a set."""
    return hashlib.sha256(statement).hexdigest()


def sign(seed: str, statement: bytes) -> str:
    """The signature by the key of ``seed``, hexadecimal."""
    signature: bytes = private_key(seed).sign_recoverable(statement)
    return signature.hex()


def check(message: Contribution, names: frozenset[str], now: float) -> str:
    """Judge everything but the gradients' values. Returns the digest. Raises InvalidRequest.

    ``names`` are the model's tensors; ``now`` is seconds since 1970.
    """
    # It is forwarded a bounded number of times.
    if not 0 <= message.ttl <= MOST_TTL:
        raise InvalidRequest("ttl", f"must be between 0 and {MOST_TTL}")

    if not 1 <= message.round_id <= _MOST_ROUND:
        raise InvalidRequest("round_id", "must be positive")

    # Numbers that others will average are numbers.
    if not (math.isfinite(message.loss) and math.isfinite(message.timestamp)):
        raise InvalidRequest("loss", "must be finite")
    if message.batch_size < 1:
        raise InvalidRequest("batch_size", "must be positive")

    # Old rounds of another day are not replayed.
    if abs(now - message.timestamp) > MOST_AGE_S:
        raise InvalidRequest("timestamp", f"is more than {MOST_AGE_S:g} s away")

    # One gradient for each tensor of the model, and no others.
    if message.layer_gradients.keys() != names:
        raise InvalidRequest("layer_gradients", "must name exactly the model's tensors")

    # The signature covers everything but the time-to-live, by the node's key.
    statement = message.statement()
    if signer_of(message.signature, statement) != message.node_id:
        raise InvalidRequest("signature", "is not that of the node_id's key")
    return digest_of(statement)


def signer_of(signature: str, statement: bytes) -> str | None:
    """The node id of the key that signed, or None for what is no signature."""
    if len(signature) != _SIGNATURE_CHARS:
        return None
    try:
        key = PublicKey.from_signature_and_message(bytes.fromhex(signature), statement)
    except ValueError:
        return None
    compressed = key.format(compressed=True)
    return hashlib.sha1(compressed, usedforsecurity=False).hexdigest()
