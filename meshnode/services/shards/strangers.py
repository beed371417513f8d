"""Turns of messages that train and that no member has signed (decision 0207).

Invariant: one of them computes at a time, and beside other work only in its turn.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from meshnode.domain.errors import InvalidRequest, RateLimited
from meshnode.domain.training.strangers import MAX_SHARE_OF_GRAPHS, StrangersTime

MAX_WAITING = 4
"""Messages that wait for their turn; each holds its tensors."""

Result = TypeVar("Result")


class StrangersTurns:
    """Handle: the turns on one holder."""

    def __init__(
        self,
        busy: Callable[[], bool],
        graph_bytes: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``busy`` says whether the node computes for others; ``graph_bytes`` bounds all graphs.

        ``clock`` measures what a message computes, in seconds.
        """
        self._clock = clock
        self._busy = busy
        self._graph_bytes = graph_bytes
        self._time = StrangersTime()
        self._turn = trio.Lock()

    def validate_size(self, size: int) -> None:
        """Raises InvalidRequest for a graph of ``size`` bytes that would delay others for long."""
        if self._busy() and size > self._graph_bytes // MAX_SHARE_OF_GRAPHS:
            raise InvalidRequest("hidden_shape", "is too large to train with beside other work")

    async def compute(
        self,
        compute: Callable[[Callable[[], Result]], Awaitable[Result]],
        function: Callable[[], Result],
    ) -> Result:
        """``compute(function)``, which runs it in a thread, when it is its turn.

        Raises RateLimited if that takes too long.
        """
        spent_s = 0.0

        def run() -> Result:
            nonlocal spent_s
            begun = self._clock()
            try:
                return function()
            finally:
                spent_s = self._clock() - begun

        if self._turn.statistics().tasks_waiting >= MAX_WAITING:
            raise RateLimited(1, "too many messages that nobody has signed")
        async with self._turn:
            if self._busy():
                await trio.sleep(self._time.wait_s(trio.current_time()))
            else:
                self._time.forgive()
            try:
                return await compute(run)
            finally:
                self._time.spend(spent_s, trio.current_time())
