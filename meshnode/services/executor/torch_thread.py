"""The one torch thread, in which all computing on the model's tensors is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import trio

Result = TypeVar("Result")


class TorchThread:
    """Runs one blocking function at a time, off the event loop, in the order of the calls."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)
        self.computing_s = 0.0
        """Seconds in which it has computed, since the start."""

    async def __call__(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` to its end, even if the caller is cancelled meanwhile."""
        return await trio.to_thread.run_sync(self._timed, function, limiter=self._limiter)

    def _timed(self, function: Callable[[], Result]) -> Result:
        begun = time.perf_counter()
        try:
            return function()
        finally:
            self.computing_s += time.perf_counter() - begun
