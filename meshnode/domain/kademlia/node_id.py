"""Node ids, record keys and the distance between them (interface 2.3 DHTNodeInfo; interface 8).

Terms: an *id* is 20 bytes. A node's id is the SHA-1 digest of its public key. A record's *key* is
an id too, the SHA-1 digest of the record's name. The *distance* of two ids is their exclusive or,
read as a number. *Bucket* i of a node holds the ids at distances from 2**i up to, but not
including, 2**(i+1). There are 160 buckets, each twice as wide as the one before.

Invariants: distance(a, b) == distance(b, a); it is 0 only if a == b; for every id and distance
there is exactly one id that far away, so two nodes are never equally near to a key.
"""

from __future__ import annotations

import hashlib
from typing import NewType

from meshnode.domain.kademlia.refusals import BadIdLength, OwnId

ID_BYTES = 20
ID_BITS = 8 * ID_BYTES

NodeId = NewType("NodeId", bytes)


def parse_id(raw: bytes) -> NodeId:
    """The id in ``raw``, as it came over the wire. Raises BadIdLength."""
    # A DHT node id has 20 bytes (interface 8), and so has a key.
    if len(raw) != ID_BYTES:
        raise BadIdLength
    return NodeId(bytes(raw))


def key_of(name: str) -> NodeId:
    """The key of the record called ``name``."""
    return NodeId(hashlib.sha1(name.encode(), usedforsecurity=False).digest())


def distance(a: NodeId, b: NodeId) -> int:
    """Exclusive or of the two, 0 up to 2**160 - 1."""
    return int.from_bytes(a) ^ int.from_bytes(b)


def bucket_of(own: NodeId, other: NodeId) -> int:
    """The bucket of node ``own`` for the id ``other``, 0 to 159. Raises OwnId."""
    # A node is not in its own routing table: there is no bucket for distance 0.
    if own == other:
        raise OwnId
    return distance(own, other).bit_length() - 1


def id_in_bucket(own: NodeId, bucket: int, random_bits: int) -> NodeId:
    """A random id in ``bucket`` of ``own``: a target to refresh that bucket with.

    ``random_bits`` is a number of at least 160 random bits; the lowest ``bucket`` bits are used.
    """
    width = 1 << bucket
    away = width | (random_bits & (width - 1))
    return NodeId((int.from_bytes(own) ^ away).to_bytes(ID_BYTES))
