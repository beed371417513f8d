"""Interface 2.3: keys of a DHT, some of which a node may take for one another."""

import os

from conformance.checks.dht import NODE_ID_BYTES
from conformance.editions import SIXTH

MANY = 18
# The first edition that stores under keys of other lengths.
STORED_SINCE = 4
# One bit of each byte is another one: the first, the last, or that of the case of a letter.
BITS = (0x80, 0x01, 0x20)


def alike(key: bytes) -> list[bytes]:
    """Return keys that begin or end alike, or differ in order, case, space, or what is no text."""
    found = [key, key[::-1]]
    found += [key[:4] + os.urandom(NODE_ID_BYTES - 4) for _ in range(3)]
    found += [os.urandom(NODE_ID_BYTES - 4) + key[-4:] for _ in range(3)]
    found += [bytes([0x80 + at]) * 4 + key[4:] for at in range(3)]
    # Two that are alike up to a zero.
    found += [key[:9] + b"\0" + os.urandom(NODE_ID_BYTES - 10) for _ in range(2)]
    found += [key[:9] + b"\xff" + key[10:]]
    word = key.hex()[:NODE_ID_BYTES].encode()
    found += [word[:-1] + end for end in (b"f", b"F", b" ", b"\n")]
    return found[:MANY]


def others(base: bytes, edition: int) -> list[bytes]:
    """Return keys of other lengths, and such that differ from the base in one bit of each byte."""
    found: list[bytes] = []
    if edition >= STORED_SINCE:
        # Longer keys may be refused; two that are kept are two.
        found += [base[::-1] + end for end in (b"one", b"two")]
        # So may shorter ones, and one that is filled up with zeros is another one.
        found += [bytes(2) + base[2:], base[2:], base[:-2] + bytes(2), base[:-2]]
    if edition >= SIXTH:
        found += [bytes(each ^ bit for each in base) for bit in BITS]
    return found
