"""The handle of a ledger whose blocks a consensus engine orders (decision 0176).

A transaction goes to the engine, which asks this ledger to check it. A block's outcome is committed
first; the block itself is fetched from the engine a moment later, and only then announced.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from meshnode.domain.chain.blocks import Block, BlockFrame, TransactionResult
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.queries import QueryResult
from meshnode.domain.errors import Unavailable
from meshnode.services.ledger.database import LedgerReader
from meshnode.services.ledger.handle import MAX_HOPS, Ledger
from meshnode.services.ledger.snapshots import PinnedState, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshnode.domain.chain.application import Finalized
    from meshnode.domain.chain.canonical import Json
    from meshnode.domain.chain.comet.commits import Commit
    from meshnode.domain.chain.comet.headers import CometBlock
    from meshnode.domain.chain.context import ModelPort
    from meshnode.services.ledger.decided import DecidedKeeper

log = logging.getLogger(__name__)

ANNOUNCED_WITHIN_S = 10.0
"""How long an answer about the state waits for the block of that state. The engine has the block
before it asks to execute it, so this is milliseconds unless the engine has just ended."""


class Broadcast(Protocol):
    """Gives a transaction to the engine."""

    async def __call__(self, raw: bytes) -> TransactionResult:
        """The result of its check. Raises Unavailable when the engine does not answer."""


class AskPriorities(Protocol):
    """Asks the engine whose turn it is."""

    async def __call__(self, height: int) -> Mapping[str, int]:
        """See :meth:`Ledger.priorities`. Raises Unavailable."""


async def _no_priorities(height: int) -> Mapping[str, int]:
    raise Unavailable("the consensus engine has not started yet")


async def _no_engine(raw: bytes) -> TransactionResult:
    raise Unavailable("the consensus engine has not started yet")


class OrderedLedger(Ledger):
    """A ledger under a consensus engine."""

    def __init__(
        self,
        keeper: DecidedKeeper,
        reader: LedgerReader,
        model: ModelPort,
        clock_ns: Callable[[], int],
        data_dir: Path,
        snapshot_every: int = 0,
    ) -> None:
        """A snapshot is due at each multiple of ``snapshot_every``; never if that is 0."""
        super().__init__(keeper, reader, model, clock_ns)
        self.engine = "cometbft"
        self.catching_up = True
        self.data_dir = data_dir
        self.snapshots = SnapshotStore(data_dir)
        self.executing = False
        """Whether the engine waits for this node, which executes or commits a decided block."""
        self.silent = False
        """Whether the engine, when last asked how far it is, did not answer."""
        self._pinned: PinnedState | None = None
        self._pinning = trio.Event()
        self._snapshot_every = snapshot_every
        self.broadcast: Broadcast = _no_engine
        """Set by the engine's service, as the next one is."""
        self.ask_priorities: AskPriorities = _no_priorities
        self.committed = trio.Event()
        """Set when a block's outcome was committed; replaced by who waits for it."""
        self._ordered = keeper
        self.state_height = keeper.state_height
        """The height of the committed state; at least that of the last announced block."""
        self.state_app_hash = keeper.app_hash

    async def submit(self, raw: bytes, ttl: int = MAX_HOPS) -> TransactionResult:
        """Have the engine check a transaction and keep it for a block. See :class:`Ledger`."""
        if self.catching_up or self.latest is None:
            raise Unavailable("the ledger is catching up")
        return await self.broadcast(raw)

    @property
    def waiting(self) -> int:
        """Transactions that wait for a block."""
        return len(self._ordered.waiting)

    def is_waiting(self, name: str) -> bool:
        """See :class:`Ledger`."""
        return name in self._ordered.waiting

    async def query(self, path: str, options: Mapping[str, Json] | bytes = b"") -> QueryResult:
        """See :class:`Ledger`. Raises Unavailable while the state's own block is missing."""
        with trio.move_on_after(ANNOUNCED_WITHIN_S):
            return await super().query(path, options)
        raise Unavailable("the engine does not give the block of this state")

    async def priorities(self, height: int) -> Mapping[str, int]:
        """See :class:`Ledger`. Engines that begin with a snapshot take them from light clients."""
        return await self.ask_priorities(height)

    # What the engine asks.

    def check_here(
        self, transactions: Sequence[bytes], *, again: bool, until: Callable[[], bool]
    ) -> list[TransactionResult]:
        """Results of checking ``transactions`` in order: at least one, and those before ``until``.

        Runs in the calling thread, which is not trio's. Raises Unavailable at the end.
        """
        # Signatures need no turn, so that blocks do not wait for them.
        for raw in transactions:
            self._ordered.verify(raw)

        def run() -> list[TransactionResult]:
            results: list[TransactionResult] = []
            for raw in transactions:
                results.append(self._ordered.check(raw, again=again))
                if until():
                    break
            return results

        return self.thread.check_here(run)

    async def propose(
        self, frame: BlockFrame, candidates: Sequence[bytes], max_bytes: int
    ) -> tuple[bytes, ...]:
        """The candidates for a block of this node. Raises Rejected if none can follow the state."""
        call = partial(self._ordered.propose, frame, candidates, max_bytes)
        return await self.thread.block(call)

    async def process(self, block: Block) -> None:
        """Raises Rejected unless a proposed block is valid and all its transactions succeed."""
        await self.thread.block(partial(self._ordered.process, block))

    @contextmanager
    def execution(self) -> Iterator[None]:
        """What the engine waits for, for however long it takes."""
        self.executing = True
        try:
            yield
        finally:
            self.executing = False

    async def decide(self, block: Block, block_hash: bytes) -> Finalized:
        """Execute a decided block without writing anything. Raises Rejected."""
        return await self.thread.block(partial(self._ordered.decide, block, block_hash))

    async def commit(self) -> None:
        """Make the decided block's outcome the state. Raises StorageRefused; may be repeated."""
        await self.thread.block(self._ordered.commit)
        self.state_height, self.state_app_hash = self._ordered.state_height, self._ordered.app_hash
        every = self._snapshot_every
        if every and self.state_height % every == 0 and not self.catching_up:
            await self._pin()
        self.committed.set()

    async def _pin(self) -> None:
        """Have a snapshot taken of the state that was just committed, unless one is being taken.

        The engine waits for this, so it does no more than begin to read.
        """
        if self._pinned is not None:
            return

        def pin() -> PinnedState:
            return PinnedState(self.data_dir, self.state_height, self._ordered.tree_nodes())

        try:
            self._pinned = await self.thread.block(pin)
            self._pinning.set()
        except (OSError, sqlite3.Error, LedgerBroken) as failure:
            log.warning("no snapshot of block %d: %s", self.state_height, failure)

    async def take_snapshots(self) -> None:
        """Write a snapshot of each state for which one is due, until cancelled."""
        while True:
            await self.take_snapshot()

    async def take_snapshot(self) -> None:
        """Wait until a snapshot is due, and write it."""
        await self._pinning.wait()
        pinned, self._pinning = self._pinned, trio.Event()
        if pinned is None:
            return
        try:
            made = await trio.to_thread.run_sync(self.snapshots.take, pinned)
            chunks = len(made.hashes)
            log.info("ledger: a snapshot of block %d, %d chunks", made.height, chunks)
        except (OSError, sqlite3.Error, LedgerBroken) as failure:
            log.warning("no snapshot of block %d: %s", pinned.height, failure)
        finally:
            pinned.close()
            self._pinned = None

    @property
    def may_be_restored(self) -> bool:
        """Whether no block was executed here, so that a snapshot may take the ledger's place."""
        return self.state_height == self.base.height

    async def adopt(self, staged: Path) -> None:
        """Go on with a staged ledger. Raises StartupError and StorageRefused."""

        def swap() -> LedgerReader:
            self._reader.close()
            try:
                self._ordered.adopt(staged)
            finally:
                self._reader = LedgerReader(self.data_dir)
            return self._reader

        await self.thread.alone(swap)
        self.base = self._ordered.opened.base
        self.state_height, self.state_app_hash = self._ordered.state_height, self._ordered.app_hash
        self.committed.set()

    async def complete(self, block: CometBlock, commit: Commit) -> None:
        """Store and announce the block of the oldest outcome. Raises Rejected, StorageRefused."""
        self.announce(await self.thread.block(partial(self._ordered.complete, block, commit)))

    async def wait_committed(self, height: int) -> None:
        """Wait until the state is higher than ``height``."""
        while self.state_height <= height:
            if self.committed.is_set():
                self.committed = trio.Event()
            await self.committed.wait()
