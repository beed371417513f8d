"""A thread that lets others go first: where the inner steps compute (document, 1).

It is a thread of its own, not one of Trio's, which are used again for other work: a priority that
was lowered stays so. torch makes the helpers of a thread inherit its priority.
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


class QuietThread:
    """Runs one blocking function at a time, at low priority."""

    def __init__(self) -> None:
        """The thread begins with the first call."""
        self._pool = ThreadPoolExecutor(1, "training", initializer=_lower_priority)

    async def __call__(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` to its end, even if the caller is cancelled meanwhile."""
        done, token = trio.Event(), trio.lowlevel.current_trio_token()
        future = self._pool.submit(function)

        def tell(_: Future[Result]) -> None:
            token.run_sync_soon(done.set)

        future.add_done_callback(tell)
        with trio.CancelScope(shield=True):
            await done.wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        return future.result()

    def close(self) -> None:
        """End the thread, after what it is doing."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
