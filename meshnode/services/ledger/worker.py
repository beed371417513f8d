"""The ledger's thread: one call at a time, blocks before checks (decision 0071).

A check may regenerate an answer and take as long as the model does. Checks therefore wait for one
another outside, in a line of bounded length, so that a block waits for one of them at most; reads
of committed data have a thread and a connection of their own and wait for neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from meshnode.domain.errors import Unavailable

T = TypeVar("T")

MOST_CHECKS = 64
"""Checks in line. At the time of a plain one that is a few milliseconds; where one takes seconds, a
client hears at once that the node is busy."""
MOST_READS = 256
"""Reads in line, each well below a millisecond: the requests of a full HTTP server."""


class Worker:
    """Runs synchronous calls in threads. A call that has begun is always awaited to its end."""

    def __init__(self) -> None:
        self._thread = trio.CapacityLimiter(1)
        self._checks = Line(MOST_CHECKS)
        self._reads = Line(MOST_READS)
        self._reading = trio.CapacityLimiter(1)
        self._closed = False

    async def block(self, call: Callable[[], T]) -> T:
        """Make or take a block: next in the thread."""
        return await trio.to_thread.run_sync(call, limiter=self._thread)

    async def check(self, call: Callable[[], T]) -> T:
        """Look at a transaction; Unavailable when too many wait."""
        async with self._checks:
            self._require_open()
            return await trio.to_thread.run_sync(call, limiter=self._thread)

    async def read(self, call: Callable[[], T]) -> T:
        """Read committed data; Unavailable when too many wait."""
        async with self._reads:
            self._require_open()
            return await trio.to_thread.run_sync(call, limiter=self._reading)

    async def close(self, *closers: Callable[[], None]) -> None:
        """Refuse further calls, and run ``closers`` when those that run have ended."""
        self._closed = True
        async with self._thread, self._reading:
            for close in closers:
                # The last one writes the log back into the file.
                await trio.to_thread.run_sync(close)

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger has stopped")


class Line:
    """A lock that so many may wait for, in order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        """Wait for one's turn; Unavailable when the line is full."""
        if self._lock.statistics().tasks_waiting >= self._most:
            raise Unavailable("the ledger is busy")
        await self._lock.acquire()

    async def __aexit__(self, *failure: object) -> None:
        """Let the next one go."""
        self._lock.release()
