"""What this process uses of the machine (interface 2.1 Node status, ``resources``).

``cpu_percent`` is the process's use of the processors that it may run on, 0 to 100, over the last
few seconds; ``ram_used`` is its resident memory in bytes (decision 0027).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable

import psutil

INTERVAL_S = 1.0
"""Shortest time over which a share is measured; over shorter ones it is mostly rounding error."""


def give_back_memory() -> None:
    """Return freed memory to the system. Takes some tenths of a second.

    What training frees lies between other allocations of several threads, where the allocator keeps
    it: 700 of 750 MB were measured.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Other C libraries than glibc have no such call.
    if trim is not None:
        trim(0)


class ProcessGauge:
    """Measures from one reading to the next, so that a reading never waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin measuring now. ``clock`` gives monotonic seconds."""
        self._clock = clock
        self._process = psutil.Process()
        self._processors = len(os.sched_getaffinity(0))
        self._resident = 0
        self._earlier = self._later = (clock(), self._cpu_seconds())

    def cpu_percent(self) -> float:
        """Mean share since a reading at least ``INTERVAL_S`` ago, or since the start."""
        now, used = self._clock(), self._cpu_seconds()
        # Two old readings are kept: frequent callers move `later` on only once it is old enough to
        # be measured from.
        if now - self._later[0] >= INTERVAL_S:
            self._earlier, self._later = self._later, (now, used)
        since, used_then = self._earlier
        if now <= since:
            return 0.0
        share = 100 * (used - used_then) / (now - since) / self._processors
        return round(min(100.0, max(0.0, share)), 1)

    def ram_used(self) -> int:
        """Resident memory in bytes; the last figure while no file can be opened to read it."""
        with contextlib.suppress(OSError):
            self._resident = int(self._process.memory_info().rss)
        return self._resident

    def _cpu_seconds(self) -> float:
        return time.process_time()
