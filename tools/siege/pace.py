"""How fast the node's processors compute, from one second to the next.

Other guests of the same hardware slow a processor down by up to a half without a trace in the
kernel's counters: its caches, its memory and the other half of its core are theirs too. So a fixed
piece of work is done on the node's processors again and again, 2 % of the time of one, and the
processor time that it takes tells their speed.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Collection
from statistics import median
from typing import Self

PIECE = bytes(zlib.crc32(number.to_bytes(4, "little")) % 13 for number in range(1 << 16))
"""What is compressed, in about a millisecond: integers, branches and a table in the cache."""
EVERY_S = 0.05
KEPT_PIECES = 4096
"""More than three minutes: no phase is as long."""


class Pace:
    """Measures in a thread of its own. A context manager, whose end ends the thread."""

    def __init__(self, processors: Collection[int]) -> None:
        self._processors = processors
        self._pieces: deque[tuple[float, float]] = deque(maxlen=KEPT_PIECES)
        self._usual_s: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pace", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """It measures already."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def __len__(self) -> int:
        """How many pieces of work are remembered."""
        return len(self._pieces)

    def speed(self, last_s: float) -> float:
        """The speed in the last seconds, as a multiple of what it was when this was first asked.

        1 if nothing was measured.
        """
        since = time.monotonic() - last_s
        took = [took_s for at, took_s in tuple(self._pieces) if at >= since]
        if not took:
            return 1.0
        now_s = median(took)
        if self._usual_s is None:
            self._usual_s = now_s
        return self._usual_s / now_s

    def _run(self) -> None:
        # Of this thread alone. The event loop goes on: compressing holds no lock of Python's.
        os.sched_setaffinity(0, self._processors)
        while not self._stopped.wait(EVERY_S):
            begun = time.thread_time()
            zlib.compress(PIECE, 1)
            self._pieces.append((time.monotonic(), time.thread_time() - begun))
