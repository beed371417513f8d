"""What this process uses of the machine (interface 2.1 Node status, ``resources``).

``cpu_percent`` is the process's use of the processors that it may run on, 0 to 100, over the last
few seconds; ``ram_used`` is its resident memory in bytes (decision 0027).
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable

import psutil

from meshnode.memory import private_bytes

INTERVAL_S = 1.0
"""Shortest time over which a share is measured; over shorter ones it is mostly rounding error."""
KEPT_S = 0.25
"""How long a reading is used. The kernel adds up all threads for each, which takes a tenth of the
time of a small call."""


class ProcessGauge:
    """Measures from one reading to the next, so that a reading never waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin measuring now. ``clock`` gives monotonic seconds."""
        self._clock = clock
        self._process = psutil.Process()
        self._processors = len(os.sched_getaffinity(0))
        self._resident, self._resident_at = 0, -math.inf
        self._private, self._private_at = 0, -math.inf
        self._percent, self._percent_at = 0.0, -math.inf
        self._earlier = self._later = (clock(), self._cpu_seconds())

    def cpu_percent(self) -> float:
        """Mean share since a reading at least ``INTERVAL_S`` ago, or since the start."""
        now = self._clock()
        if now - self._percent_at >= KEPT_S:
            self._percent, self._percent_at = self._share(now), now
        return self._percent

    def _share(self, now: float) -> float:
        used = self._cpu_seconds()
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
        """Resident memory in bytes, at most ``KEPT_S`` ago.

        The last figure while no file can be opened to read it.
        """
        now = self._clock()
        if now - self._resident_at >= KEPT_S:
            self._resident_at = now
            with contextlib.suppress(OSError):
                self._resident = int(self._process.memory_info().rss)
        return self._resident

    def private_used(self) -> int:
        """Private memory in bytes, as :meth:`ram_used` (decision 0157)."""
        now = self._clock()
        if now - self._private_at >= KEPT_S:
            self._private_at = now
            self._private = private_bytes() or self._private
        return self._private

    def _cpu_seconds(self) -> float:
        return time.process_time()
