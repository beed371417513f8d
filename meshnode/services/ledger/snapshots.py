"""The snapshots that this node offers to others: taken while blocks go on, a few kept.

A snapshot is read from one transaction of the database, which begins at the commit of its height
and sees that state however many blocks follow. It is written in a thread of its own, beside the
state machine. The folder ``snapshots/HEIGHT`` has a file for each chunk and one for the metadata;
it is made under another name and then renamed, so a folder with that name is complete.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from meshnode.datadir import sync_folder
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.chain.snapshots import (
    CHUNK_BYTES,
    HASH_BYTES,
    Snapshot,
    bucket_range,
    depth_for,
    encode_chunk,
    read_snapshot,
    snapshot_hash,
)
from meshnode.services.ledger.database import LedgerReader

log = logging.getLogger(__name__)

FOLDER = "snapshots"
METADATA = "metadata"
KEPT = 3
"""Snapshots that are kept: who has begun with the oldest still gets it to its end."""
ROWS = 512
"""Rows that are read at one time, so that other threads wait for well below a millisecond."""


class SnapshotStore:
    """The folder of this node's snapshots. May be used from any thread."""

    def __init__(self, data_dir: Path) -> None:
        """Read what earlier starts have left; nothing is written yet."""
        self._folder = data_dir / FOLDER
        self._changing = threading.Lock()
        self._known = self._read()

    @property
    def known(self) -> tuple[Snapshot, ...]:
        """The complete snapshots, oldest first."""
        return self._known

    def load(self, height: int, index: int) -> bytes:
        """A chunk; empty when it is not here (any more)."""
        try:
            return (self._folder / str(height) / f"{index:05}").read_bytes()
        except OSError:
            return b""

    def take(self, pinned: PinnedState, chunk_bytes: int = CHUNK_BYTES) -> Snapshot:
        """Write a snapshot of a pinned state, and remove the oldest. Raises OSError, sqlite3.Error.

        Blocks for some microseconds an entry.
        """
        with self._changing:
            depth = depth_for(pinned.content_bytes(), chunk_bytes)
            made = Snapshot(pinned.height, pinned.hashes(depth))
            new = self._folder / f"{pinned.height}.new"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(mode=0o700, parents=True)
            for index in range(1 << depth):
                chunk = encode_chunk(pinned.entries(bucket_range(index, 1 << depth)))
                _write(new / f"{index:05}", chunk)
            _write(new / METADATA, made.metadata)
            sync_folder(new)
            shutil.rmtree(self._folder / str(made.height), ignore_errors=True)
            new.rename(self._folder / str(made.height))
            sync_folder(self._folder)
            self._known = self._read()
            self._prune()
            return made

    def _read(self) -> tuple[Snapshot, ...]:
        found = []
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if not folder.name.isdecimal():
                # An earlier start was killed.
                shutil.rmtree(folder, ignore_errors=True)
                continue
            with suppress(OSError, Rejected):
                height, metadata = int(folder.name), (folder / METADATA).read_bytes()
                chunks, given = len(metadata) // HASH_BYTES, snapshot_hash(height, metadata)
                found.append(read_snapshot(height, chunks, metadata, given))
        return tuple(sorted(found, key=lambda one: one.height))

    def _prune(self) -> None:
        old, self._known = self._known[:-KEPT], self._known[-KEPT:]
        for one in old:
            shutil.rmtree(self._folder / str(one.height), ignore_errors=True)


class PinnedState:
    """The state of one height, for as long as this is open. Used in one thread at a time."""

    def __init__(self, data_dir: Path, height: int, nodes: list[bytes]) -> None:
        """Pin the state that was committed last; ``nodes`` are those of its tree."""
        self.height = height
        self._nodes = nodes
        self._reader = LedgerReader(data_dir)
        self._reader.begin()
        # A transaction of SQLite begins with its first read.
        self._root = self._reader.fact("app_hash")

    @property
    def is_sound(self) -> bool:
        """Whether nodes and root are of the same state."""
        return self._root == self._nodes[1]

    def content_bytes(self) -> int:
        """About how many bytes the entries take."""
        return self._reader.state_bytes()

    def hashes(self, depth: int) -> tuple[bytes, ...]:
        """The nodes at a depth."""
        return tuple(self._nodes[1 << depth : 2 << depth])

    def entries(self, buckets: range) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of some buckets, in order."""
        return self._reader.entries(buckets, ROWS)

    def close(self) -> None:
        """Let the state go."""
        self._reader.close()


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)
