"""Snapshots: what the state root proves of their chunks (decision 0220)."""

from __future__ import annotations

import random
import zlib
from functools import cache

import pytest

from meshnode.domain.chain.snapshots import (
    CHUNK_BYTES,
    MAX_DEPTH,
    InvalidChunk,
    InvalidSnapshot,
    Snapshot,
    depth_for,
    encode_chunk,
    read_chunk,
    read_snapshot,
    snapshot_hash,
)
from meshnode.domain.chain.statetree import MemoryStore, StateTree, bucket_of

DEPTH = 3


@cache
def made() -> tuple[bytes, Snapshot, tuple[bytes, ...]]:
    """The root of a state, its snapshot in eight chunks, and the chunks."""
    store, some = MemoryStore(), random.Random(5)
    store.write({f"account/{number}": some.randbytes(40) for number in range(500)})
    tree = StateTree()
    tree.rebuild(store)
    nodes = tree.copy_nodes()
    snapshot = Snapshot(9, tuple(nodes[1 << DEPTH : 2 << DEPTH]))
    ordered = sorted(store.entries().items(), key=lambda entry: (bucket_of(entry[0]), entry[0]))
    chunks = tuple(
        encode_chunk(
            (key.encode(), value)
            for key, value in ordered
            if bucket_of(key) in snapshot.buckets(index)
        )
        for index in range(1 << DEPTH)
    )
    return tree.root, snapshot, chunks


def read(index: int, data: bytes) -> list[tuple[int, str, bytes]]:
    _, snapshot, _ = made()
    return read_chunk(data, snapshot.buckets(index), snapshot.hashes[index])


def test_the_chunks_have_the_state_and_their_hashes_combine_to_its_root() -> None:
    root, snapshot, chunks = made()
    assert snapshot.root == root
    entries = [entry for index, data in enumerate(chunks) for entry in read(index, data)]
    assert len(entries) == 500
    store = MemoryStore()
    store.write({key: value for _, key, value in entries})
    tree = StateTree()
    tree.rebuild(store)
    assert tree.root == root
    assert all(bucket == bucket_of(key) for bucket, key, _ in entries)


def test_what_is_sent_is_read() -> None:
    _, snapshot, chunks = made()
    found = read_snapshot(9, len(chunks), snapshot.metadata, snapshot.hash)
    assert found == snapshot
    # Another compression of the same entries is the same chunk.
    again = zlib.compress(zlib.decompress(chunks[0]), 9)
    assert read(0, again) == read(0, chunks[0])


@pytest.mark.parametrize(
    ("height", "chunks", "metadata"),
    [
        (0, 1, bytes(32)),
        (1 << 63, 1, bytes(32)),
        (9, 0, b""),
        (9, 3, bytes(96)),
        (9, 2, bytes(32)),
        (9, 1, bytes(33)),
        (9, 2 << MAX_DEPTH, bytes(32)),
    ],
)
def test_a_malformed_description_is_refused(height: int, chunks: int, metadata: bytes) -> None:
    given = snapshot_hash(height % (1 << 63), metadata)
    with pytest.raises(InvalidSnapshot):
        read_snapshot(height, chunks, metadata, given)


def test_a_description_with_another_hash_is_refused() -> None:
    _, snapshot, chunks = made()
    with pytest.raises(InvalidSnapshot):
        read_snapshot(8, len(chunks), snapshot.metadata, snapshot.hash)


def test_no_changed_chunk_is_taken() -> None:
    _, _, chunks = made()
    content = zlib.decompress(chunks[2])
    some = random.Random(1)
    for _ in range(200):
        at, by = some.randrange(len(content)), some.randrange(1, 256)
        changed = bytearray(content)
        changed[at] ^= by
        with pytest.raises(InvalidChunk):
            read(2, zlib.compress(bytes(changed)))


def test_entries_that_are_missing_more_or_elsewhere_are_refused() -> None:
    _, _, chunks = made()
    entries = [(key.encode(), value) for _, key, value in read(0, chunks[0])]
    other = [(key.encode(), value) for _, key, value in read(1, chunks[1])]
    for wrong in (entries[1:], [*entries, entries[0]], [*entries, other[0]], other, []):
        with pytest.raises(InvalidChunk):
            read(0, encode_chunk(wrong))


@pytest.mark.parametrize("data", [b"", b"not zlib", zlib.compress(b"\0"), zlib.compress(b"\0\5ab")])
def test_bytes_that_are_no_chunk_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidChunk):
        read(0, data)


def test_what_follows_a_chunk_or_is_cut_off_is_refused() -> None:
    _, _, chunks = made()
    for data in (chunks[0] + b"x", chunks[0][:-1]):
        with pytest.raises(InvalidChunk):
            read(0, data)


def test_a_chunk_that_unpacks_to_too_much_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(InvalidChunk):
        read(0, zlib.compress(bytes(60_000_000), 1))


def test_an_empty_part_of_the_state_is_a_chunk() -> None:
    tree = StateTree()
    node = tree.copy_nodes()[2]
    assert read_chunk(encode_chunk([]), range(1 << 15), node) == []


def test_chunks_are_as_many_as_the_state_needs() -> None:
    assert depth_for(0) == 0
    assert depth_for(CHUNK_BYTES) == 0
    assert depth_for(CHUNK_BYTES + 1) == 1
    assert depth_for(5 * CHUNK_BYTES) == 3
    assert depth_for(10**15) == MAX_DEPTH
