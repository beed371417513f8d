"""A thread of low priority, in which training computes (interface 1).

It is not one of Trio's threads: those are reused for other work, and a lowered priority cannot be
raised again. torch's helper threads inherit the priority of the thread that starts them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import trio

NICE = 10

Result = TypeVar("Result")


class LowPriorityThread:
    """Runs one blocking function at a time, at low priority."""

    def __init__(self) -> None:
        """The first call starts the thread."""
        self._pool = ThreadPoolExecutor(1, "training", initializer=_lower_priority)

    async def __call__(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` to its end, even if the caller is cancelled meanwhile."""
        done, token = trio.Event(), trio.lowlevel.current_trio_token()
        future = self._pool.submit(function)

        def wake(_: Future[Result]) -> None:
            token.run_sync_soon(done.set)

        future.add_done_callback(wake)
        with trio.CancelScope(shield=True):
            await done.wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        return future.result()

    def close(self) -> None:
        """End the thread after its current call."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
