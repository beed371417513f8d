"""The one torch thread, in which all computing on the model's tensors is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

Result = TypeVar("Result")


class TorchThread:
    """Runs one blocking function at a time, off the event loop, in the order of the calls."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)

    async def __call__(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` to its end, even if the caller is cancelled meanwhile."""
        return await trio.to_thread.run_sync(function, limiter=self._limiter)
