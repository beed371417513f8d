"""The ledger's thread: one call at a time, blocks before checks (decision 0071).

A check may have the model regenerate an answer, and takes as long as that. Checks therefore wait
outside the thread, in a bounded queue, so that a block waits for one check at most. Reads of
committed data have a thread and a connection of their own, and wait for neither.
"""

from __future__ import annotations

from collections.abc import Callable
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
        self._checks = BoundedLock(MAX_CHECKS)
        self._reads = BoundedLock(MAX_READS)
        self._reading = trio.CapacityLimiter(1)
        self._closed = False

    async def block(self, call: Callable[[], T]) -> T:
        """Make or take a block; it runs next in the thread, before waiting checks."""
        return await trio.to_thread.run_sync(call, limiter=self._thread)

    async def check(self, call: Callable[[], T]) -> T:
        """Check a transaction; Unavailable when too many wait."""
        async with self._checks:
            self._require_open()
            return await trio.to_thread.run_sync(call, limiter=self._thread)

    async def read(self, call: Callable[[], T]) -> T:
        """Read committed data; Unavailable when too many wait."""
        async with self._reads:
            self._require_open()
            return await trio.to_thread.run_sync(call, limiter=self._reading)

    async def close(self, *closers: Callable[[], None]) -> None:
        """Refuse further calls, and run ``closers`` once the running calls have ended."""
        self._closed = True
        async with self._thread, self._reading:
            for close in closers:
                # The last one writes the log back into the file.
                await trio.to_thread.run_sync(close)

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger has stopped")


class BoundedLock:
    """A fair lock with a bounded number of waiters."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        """Wait for the lock. Raises Unavailable when too many wait already."""
        if self._lock.statistics().tasks_waiting >= self._most:
            raise Unavailable("the ledger is busy")
        await self._lock.acquire()

    async def __aexit__(self, *failure: object) -> None:
        """Release the lock to the next waiter."""
        self._lock.release()
