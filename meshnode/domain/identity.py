"""The node's key and the identity derived from it (interface 2.3: DHTNodeInfo).

Terms: the *seed* is 64 lowercase hex characters; the secp256k1 private scalar is the SHA-256 of
that text, so that key files of the existing network can be used here. The *public key* is
compressed, 66 lowercase hex characters. The *node id* is the SHA-1 digest of the compressed key's
33 bytes: 20 bytes, shown as 40 hex characters.

Invariant: a seed never appears in ``repr``, in a log line or in an error message.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from coincurve import PrivateKey

_SEED = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A key pair. Build it with :func:`key_from_seed`."""

    seed: str = field(repr=False)
    public_key: str

    @property
    def node_id(self) -> str:
        """The SHA-1 digest of the public key, 40 hex characters (interface 2.3)."""
        return node_id_of(self.public_key)


def node_id_of(public_key: str) -> str:
    """The id of the node that has this compressed key."""
    return hashlib.sha1(bytes.fromhex(public_key), usedforsecurity=False).hexdigest()


def private_key(seed: str) -> PrivateKey:
    """The secp256k1 key of a seed that was checked."""
    return PrivateKey(hashlib.sha256(seed.encode("ascii")).digest())


def key_from_seed(seed: str) -> NodeKey:
    """Derive the key pair of ``seed``; ValueError when it is not 64 lowercase hex characters."""
    if not _SEED.fullmatch(seed):
        raise ValueError("a seed is 64 lowercase hexadecimal characters")
    private = private_key(seed)
    return NodeKey(seed=seed, public_key=private.public_key.format(compressed=True).hex())
