"""The ledger's thread: one call at a time, blocks before checks (decisions 0071, 0215).

A check may have the model regenerate an answer, and takes as long as that. Checks therefore wait
outside the thread, in a bounded queue, so that a block waits for one check at most. Reads of
committed data have a thread and a connection of their own, and wait for neither.

A check that is known to be brief, of a transfer, is made in the event loop's own thread if nobody
has the ledger's turn or waits for it: handing it to another thread and back costs more than it
does.

A consensus engine's checks have a thread of their own, which takes turns with the ledger's: a hand
over to another thread and back costs as much as three checks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from meshnode.domain.errors import Unavailable

T = TypeVar("T")

MAX_CHECKS = 64
"""The most queued checks. Ordinary checks take some milliseconds altogether. When one takes
seconds, the bound lets a client know at once that the node is busy."""
MAX_READS = 256
"""The most queued reads. Each takes well below 1 ms."""


class LedgerThread:
    """Runs synchronous calls in threads. A call that has begun is always awaited to its end."""

    def __init__(self) -> None:
        self._thread = trio.CapacityLimiter(1)
        self._turns = Turns()
        self._checks = BoundedLock(MAX_CHECKS)
        self._reads = BoundedLock(MAX_READS)
        self._reading = trio.CapacityLimiter(1)
        self._closed = False

    async def block(self, call: Callable[[], T]) -> T:
        """Make or take a block; it runs next in the thread, before waiting checks."""
        with self._turns.before_checks():
            return await trio.to_thread.run_sync(self._turns.take, call, limiter=self._thread)

    async def check(self, call: Callable[[], T], *, brief: bool = False) -> T:
        """Check a transaction; Unavailable when too many wait.

        A ``brief`` one may hold up the event loop, for well below a millisecond.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if brief and not self._checks.taken and not self._closed and self._turns.begin_now():
            try:
                return call()
            finally:
                self._turns.end()
        async with self._checks:
            self._require_open()
            return await trio.to_thread.run_sync(self._turns.take, call, limiter=self._thread)

    def check_here(self, call: Callable[[], T]) -> T:
        """Check transactions in the calling thread, which is not trio's, once no block waits."""
        self._require_open()
        return self._turns.take_after_blocks(call)

    async def read(self, call: Callable[[], T]) -> T:
        """Read committed data; Unavailable when too many wait."""
        async with self._reads:
            self._require_open()
            return await trio.to_thread.run_sync(call, limiter=self._reading)

    async def alone(self, call: Callable[[], T]) -> T:
        """Run ``call`` while no other call, reads included, runs."""
        async with self._reading:
            return await self.block(call)

    async def close(self, *closers: Callable[[], None]) -> None:
        """Refuse further calls, and run ``closers`` once the running calls have ended."""
        self._closed = True
        async with self._thread, self._reading:
            for close in closers:
                # The last one writes the log back into the file.
                await trio.to_thread.run_sync(self._turns.take, close)

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger has stopped")


class Turns:
    """Lets one thread at a time call the ledger; checks wait for blocks that are due."""

    def __init__(self) -> None:
        """Nobody has the turn."""
        self._changed = threading.Condition()
        self._taken = False
        self._blocks = 0

    @contextmanager
    def before_checks(self) -> Iterator[None]:
        """While this lasts, no further checks begin with :meth:`take_after_blocks`."""
        with self._changed:
            self._blocks += 1
        try:
            yield
        finally:
            with self._changed:
                self._blocks -= 1
                self._changed.notify_all()

    def begin_now(self) -> bool:
        """Take the turn, for the caller to ``end`` it, if nobody has it and no block is due."""
        with self._changed:
            if self._taken or self._blocks:
                return False
            self._taken = True
            return True

    def end(self) -> None:
        """Let the next one have its turn."""
        with self._changed:
            self._taken = False
            self._changed.notify_all()

    def take(self, call: Callable[[], T]) -> T:
        """Call when no other thread does."""
        return self._take(call, lambda: not self._taken)

    def take_after_blocks(self, call: Callable[[], T]) -> T:
        """Call when no other thread does, and no block is due."""
        return self._take(call, lambda: not self._taken and not self._blocks)

    def _take(self, call: Callable[[], T], may: Callable[[], bool]) -> T:
        with self._changed:
            self._changed.wait_for(may)
            self._taken = True
        try:
            return call()
        finally:
            self.end()


class BoundedLock:
    """A fair lock with a bounded number of waiters."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = trio.Lock()

    @property
    def taken(self) -> bool:
        """Whether somebody has the lock."""
        return self._lock.locked()

    async def __aenter__(self) -> None:
        """Wait for the lock. Raises Unavailable when too many wait already."""
        if self._lock.statistics().tasks_waiting >= self._most:
            raise Unavailable("the ledger is busy")
        await self._lock.acquire()

    async def __aexit__(self, *failure: object) -> None:
        """Release the lock to the next waiter."""
        self._lock.release()
