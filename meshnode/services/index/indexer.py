"""The explorer index: histories derived from the chain's blocks (interface 2.2; decision 0078).

It follows the ledger and may lag behind it, or fail, without any effect except on its readers:
readiness, balances and consensus never use it. Every answer comes with ``indexed_height`` and
``error``, so that a reader sees how far the index has come.

States::

    behind  --block indexed-->  behind or level      level --new block--> behind
    any     --file damaged-->   moved aside, empty, behind
    any     --other failure-->  failing (``error`` says what), tried again after a pause
    any     --run has ended-->  closed (readers get Unavailable) until it runs again
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from meshnode.domain.errors import MeshnodeError, Unavailable
from meshnode.services.index.entries import (
    AcceptedUpdate,
    BlockEntries,
    HistoryEntry,
    ProofPage,
    block_entries,
)
from meshnode.services.index.store import Damaged, IndexStore, move_aside

if TYPE_CHECKING:
    from meshnode.services.ledger.handle import Ledger

__all__ = ["AcceptedUpdate", "HistoryEntry", "Index", "serve_indexer"]

log = logging.getLogger(__name__)

INDEX_FILE = "explorer.sqlite"
BATCH_BLOCKS = 100
"""Blocks in one database transaction while catching up: some tens of milliseconds of work."""
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0

FAILURES = (sqlite3.Error, OSError, MeshnodeError, LookupError, TypeError, ValueError)
"""What the disk, the ledger, or a block that this module misreads can raise: the index may fail,
but must not end the node."""

T = TypeVar("T")


async def serve_indexer(
    index: Index, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Keep ``index`` level with its ledger until cancelled; starts at once.

    ``Index.error`` says what is wrong with the file, which is tried again. The caller makes
    ``index``, so that a restart of this service goes on with it.
    """
    task_status.started()
    try:
        await index.run()
    finally:
        await index.close()


class Index:
    """The index's handle. Its answers are those of ``indexed_height``, which may lag."""

    def __init__(self, ledger: Ledger, data_dir: Path) -> None:
        """Index ``ledger``'s blocks, in a file in ``data_dir`` that :meth:`run` opens."""
        self._ledger = ledger
        self._path = data_dir / INDEX_FILE
        self._store: IndexStore | None = None
        # One thread at a time may use SQLite's connection; readers wait for one batch at most.
        self._turn = trio.CapacityLimiter(1)
        self._moved = trio.Event()
        self._suspect = False
        self.indexed_height = 0
        """The last block whose entries are in the index."""
        self.error: str | None = None
        """Why the index does not advance; None while it does."""

    async def account_history(
        self,
        public_key: str,
        limit: int,
        offset: int,
        *,
        upto: int | None = None,
        kinds: Collection[str] = (),
    ) -> tuple[list[HistoryEntry], int]:
        """The account's entries, newest first, and how many there are in all.

        ``upto`` is the ``indexed_height`` of the first page: with it, later pages continue the
        first whatever blocks arrive in between. Only entries of ``kinds`` are returned. Raises
        Unavailable while the file cannot be read.
        """
        height = self.indexed_height if upto is None else upto
        return await self._read(
            lambda store: store.history(public_key, limit, offset, height, kinds)
        )

    async def earned(self, public_key: str, since_ns: int) -> int:
        """Atoms of rewards and settlements since a time, in nanoseconds since 1970."""
        return await self._read(lambda store: store.earned(public_key, since_ns))

    async def proofs(self, public_key: str, limit: int) -> ProofPage:
        """The account's claims of work, newest first, and sums over all of them."""
        return await self._read(lambda store: store.proofs(public_key, limit))

    async def training(self, before: int, limit: int) -> tuple[list[AcceptedUpdate], int]:
        """Accepted updates of rounds below ``before``, newest first, and how many are indexed."""
        return await self._read(lambda store: store.training(before, limit))

    async def wait_indexed(self, height: int) -> None:
        """Wait until block ``height`` is in the index."""
        while self.indexed_height < height:
            await self._moved.wait()

    async def run(self) -> None:
        """Index every block that comes, until cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                await self.catch_up()
                pause = FIRST_PAUSE_S
                await self._ledger.wait_beyond(self.indexed_height)
                continue
            except Damaged:
                self.distrust()
            except FAILURES as error:
                # A full disk may get space, a defect stays: both are reported and tried again.
                self.fail(error)
            await trio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_S)

    async def catch_up(self) -> None:
        """Index every block that the ledger has. Raises Damaged when the file cannot be read."""
        if self._suspect:
            await self._rebuild()
        store = await self._opened()
        if self.indexed_height < self._ledger.base.height:
            # The ledger was restored from a snapshot in the meantime.
            await self._find_cursor(store)
        while self.indexed_height < self._ledger.height:
            await self._index_batch(store)
        self.error = None

    def distrust(self) -> None:
        """Have a damaged file moved aside before the next block is indexed."""
        self._suspect = True

    def fail(self, error: Exception) -> None:
        """Note why the index does not advance; logged once until it advances again."""
        if self.error is None:
            expected = isinstance(error, (sqlite3.Error, OSError, MeshnodeError))
            text = "the explorer index is stuck at block %d: %s"
            log.warning(text, self.indexed_height, error, exc_info=not expected)
        # The text is public, and an OSError's own text would name this machine's folders.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        self.error = f"{type(error).__name__}: {reason}"[:200]

    async def close(self) -> None:
        """Close the file; :meth:`run` opens it again."""
        store, self._store = self._store, None
        if store is not None:
            # After a crash readers may still run, so the lock is held while the connection closes.
            with trio.CancelScope(shield=True), suppress(sqlite3.Error):
                await self._run(store.close)

    async def _rebuild(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await self._run(store.close)
        await self._run(partial(move_aside, self._path))
        self._suspect = False
        self._move_to(0)

    async def _index_batch(self, store: IndexStore) -> None:
        first = self.indexed_height + 1
        last = min(self._ledger.height, self.indexed_height + BATCH_BLOCKS)
        profile = self._ledger.genesis.profile
        batch: list[BlockEntries] = []
        for height in range(first, last + 1):
            block = await self._ledger.block(height)
            if block is None:
                raise Unavailable(f"block {height} is not retained")
            batch.append(block_entries(block, profile))
        await self._run(partial(store.add, batch, self._ledger.base.rounds))
        self._move_to(last)

    async def _opened(self) -> IndexStore:
        if self._store is None:
            opening = partial(IndexStore, self._path, self._ledger.genesis_sha256)
            store = await self._run(opening)
            try:
                await self._find_cursor(store)
                self._store = store
            finally:
                if self._store is None:
                    store.close()
        return self._store

    async def _find_cursor(self, store: IndexStore) -> None:
        height, block_hash = await self._run(lambda: store.cursor)
        block = await self._ledger.block(height) if 0 < height <= self._ledger.height else None
        # The chain may have been restored from an older copy and have got other blocks since.
        base = self._ledger.base
        if height and height == base.height and not block_hash:
            self._move_to(height)
            return
        if height and (block is None or block.hash.hex().upper() != block_hash):
            log.warning("the explorer index is of other blocks than the chain: building it anew")
            await self._run(store.clear)
            height = 0
        if not height and base.height:
            # A ledger that began with a snapshot has no earlier blocks, and neither has the index.
            height = base.height
            await self._run(partial(store.begin_at, height))
        self._move_to(height)

    def _move_to(self, height: int) -> None:
        self.indexed_height = height
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    async def _read(self, question: Callable[[IndexStore], T]) -> T:
        store = self._store
        if store is None:
            raise Unavailable("the explorer index is not open yet")
        try:
            return await self._run(partial(question, store))
        except Damaged:
            self.distrust()
            raise Unavailable("the explorer index is damaged") from None
        except sqlite3.Error:
            raise Unavailable("the explorer index cannot be read") from None

    async def _run(self, work: Callable[[], T]) -> T:
        # Not abandoned on cancellation: the thread would go on using the connection unattended.
        return await trio.to_thread.run_sync(work, limiter=self._turn)
