"""Snapshots of the state: its entries in chunks that the state root proves (decision 0220).

A snapshot is the whole state after one block. Its chunks are the subtrees of the state tree
(:mod:`meshnode.domain.chain.statetree`) at one depth, so chunk ``i`` of ``2**depth`` has the
entries of ``2**(DEPTH - depth)`` buckets, and its node in the tree is its hash. The metadata lists
these hashes. Whoever trusts the root of that height needs no trust in who offers the snapshot: the
hashes must combine to the root, and the entries of a chunk to its hash.

===========  =====================================================================================
bytes        contents
===========  =====================================================================================
metadata     the hashes of all chunks, 32 bytes each
chunk        zlib over its entries, ordered by bucket and key: the length of the key (2 bytes,
             big-endian), the key, the length of the value (4 bytes), the value
hash         SHA-256 over height (8 bytes) and metadata
===========  =====================================================================================

Snapshots of one height are the same on every node; only the compression may differ. Pure functions.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshnode.domain.chain.errors import Rejected
from meshnode.domain.chain.statetree import DEPTH, bucket_hash, bucket_of, join_hashes

FORMAT = 1
HASH_BYTES = 32
CHUNK_BYTES = 1 << 20
"""Bytes of entries that a chunk has on average, before compression. A bad chunk costs one more."""
MAX_DEPTH = 14
"""At most 16,384 chunks. Their hashes take 512 KiB of a message in which CometBFT allows 4 MB."""
MAX_CHUNK_BYTES = 10_000_000
"""The longest chunk as it is sent; CometBFT's own limit is 16 MB. Reached with 160 GB of state."""
MAX_CONTENT_BYTES = 48 * 1024 * 1024
"""The most bytes that a chunk has after decompression, so that nobody can fill this memory."""
COMPRESSION = 1
"""zlib's fastest level: keys and hashes are random, so slower levels gain little."""
_KEY, _VALUE = struct.Struct(">H"), struct.Struct(">I")


class InvalidSnapshot(Rejected):
    """The snapshot is not that of the trusted state root."""


class InvalidChunk(Rejected):
    """The chunk is not the one that the snapshot's metadata names."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a snapshot before its chunks."""

    height: int
    hashes: tuple[bytes, ...]
    """The hash of each chunk; a power of two of them."""

    @property
    def metadata(self) -> bytes:
        """The hashes as they are sent."""
        return b"".join(self.hashes)

    @property
    def hash(self) -> bytes:
        """The snapshot's own hash, by which engines tell snapshots apart."""
        return snapshot_hash(self.height, self.metadata)

    @property
    def root(self) -> bytes:
        """The state root that the chunks combine to."""
        return join_hashes(self.hashes)

    def buckets(self, index: int) -> range:
        """The buckets of a chunk."""
        return bucket_range(index, len(self.hashes))


def snapshot_hash(height: int, metadata: bytes) -> bytes:
    """The hash of a snapshot."""
    return hashlib.sha256(height.to_bytes(8) + metadata).digest()


def bucket_range(index: int, chunks: int) -> range:
    """The buckets of chunk ``index`` of ``chunks``."""
    width = (1 << DEPTH) // chunks
    return range(index * width, (index + 1) * width)


def depth_for(content_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """The depth at which a state of this size has chunks of about ``chunk_bytes``, or fewer."""
    parts = max(1, -(-content_bytes // chunk_bytes))
    return min(MAX_DEPTH, (parts - 1).bit_length())


def read_snapshot(height: int, chunks: int, metadata: bytes, given: bytes) -> Snapshot:
    """The snapshot that a peer describes. Raises InvalidSnapshot when it is malformed.

    ``given`` is its own hash. Whether it has the trusted root is for the caller to compare.
    """
    is_power = chunks > 0 and chunks & (chunks - 1) == 0
    if not is_power or chunks > 1 << MAX_DEPTH or len(metadata) != chunks * HASH_BYTES:
        raise InvalidSnapshot
    if height < 1 or height >= 1 << 63 or snapshot_hash(height, metadata) != given:
        raise InvalidSnapshot
    hashes = (metadata[at : at + HASH_BYTES] for at in range(0, len(metadata), HASH_BYTES))
    return Snapshot(height, tuple(hashes))


def encode_chunk(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A chunk of keys and values, which are in the order of buckets and keys."""
    packer, parts = zlib.compressobj(COMPRESSION), []
    batch: list[bytes] = []
    for key, value in entries:
        batch += (_KEY.pack(len(key)), key, _VALUE.pack(len(value)), value)
        if len(batch) >= 4096:
            parts.append(packer.compress(b"".join(batch)))
            batch = []
    parts += (packer.compress(b"".join(batch)), packer.flush())
    return b"".join(parts)


def read_chunk(data: bytes, buckets: range, expected: bytes) -> list[tuple[int, str, bytes]]:
    """Bucket, key and value of a chunk's entries. Raises InvalidChunk.

    They are exactly those whose hashes combine to ``expected``, the hash of the chunk.
    """
    contents: dict[int, dict[str, bytes]] = {}
    entries = []
    for key, value in _entries(_unpacked(data)):
        bucket = bucket_of(key)
        contents.setdefault(bucket, {})[key] = value
        entries.append((bucket, key, value))
    # An entry of another bucket, or a second one with the same key, would not be in the hash.
    if contents and not (buckets.start <= min(contents) and max(contents) < buckets.stop):
        raise InvalidChunk
    if sum(map(len, contents.values())) != len(entries):
        raise InvalidChunk
    empty = bucket_hash({})
    leaves = [bucket_hash(contents[one]) if one in contents else empty for one in buckets]
    if join_hashes(leaves) != expected:
        raise InvalidChunk
    return entries


def _unpacked(data: bytes) -> bytes:
    if len(data) > MAX_CHUNK_BYTES:
        raise InvalidChunk
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, MAX_CONTENT_BYTES)
    except zlib.error:
        raise InvalidChunk from None
    if not unpacker.eof or unpacker.unused_data:
        raise InvalidChunk
    return content


def _entries(content: bytes) -> Sequence[tuple[str, bytes]]:
    found, at = [], 0
    try:
        while at < len(content):
            (length,) = _KEY.unpack_from(content, at)
            key = content[at + 2 : at + 2 + length]
            at += 2 + length
            (size,) = _VALUE.unpack_from(content, at)
            value = content[at + 4 : at + 4 + size]
            at += 4 + size
            if at > len(content):
                raise InvalidChunk
            found.append((key.decode(), value))
    except (struct.error, UnicodeDecodeError):
        raise InvalidChunk from None
    return found
