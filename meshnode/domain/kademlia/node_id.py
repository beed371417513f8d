"""Node ids, record keys and the distance between them (document, 2.3 DHTNodeInfo; section 8).

Terms: an *id* is 20 bytes. A node's id is the SHA-1 digest of its public key; a record's *key* is
an id too, the SHA-1 digest of the record's name. The *distance* of two ids is their exclusive or,
read as a number. *Bucket* i of a node holds the ids at distances 2**i up to, not including,
2**(i+1): 160 buckets, each twice as wide as the one before.

Invariants: distance(a, b) == distance(b, a); it is 0 only for a == b; and for every id and distance
there is exactly one other id that far away, so two nodes never tie for the place nearest to a key.
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
    # A DHT node id has 20 bytes (document, 8), and so has a key.
    if len(raw) != ID_BYTES:
        raise BadIdLength
    return NodeId(bytes(raw))


def key_of(name: str) -> NodeId:
    """The key under which the record called ``name`` is stored."""
    return NodeId(hashlib.sha1(name.encode(), usedforsecurity=False).digest())


def distance(a: NodeId, b: NodeId) -> int:
    """Exclusive or of the two, 0 up to 2**160 - 1."""
    return int.from_bytes(a) ^ int.from_bytes(b)


def bucket_of(own: NodeId, other: NodeId) -> int:
    """The bucket of node ``own`` that ``other`` belongs to, 0 to 159. Raises OwnId."""
    # A node is not in its own routing table: it has no bucket at distance 0.
    if own == other:
        raise OwnId
    return distance(own, other).bit_length() - 1


def id_in_bucket(own: NodeId, bucket: int, random_bits: int) -> NodeId:
    """An id that falls into ``bucket`` of ``own``, the target of that bucket's refresh.

    ``random_bits`` is any number of at least 160 random bits; the lower ``bucket`` ones count.
    """
    width = 1 << bucket
    away = width | (random_bits & (width - 1))
    return NodeId((int.from_bytes(own) ^ away).to_bytes(ID_BYTES))
