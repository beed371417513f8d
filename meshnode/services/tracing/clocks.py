"""Times of the node's clocks as spans have them: nanoseconds since 1970."""

from __future__ import annotations

import time

import trio

from meshnode.domain.units import SECOND_NS


class Clocks:
    """The offsets of two clocks from the time of day, at one moment.

    Each request has its own, because the time of day may be set while the node runs.
    """

    __slots__ = ("_now_ns", "_perf", "_trio")

    def __init__(self) -> None:
        self._now_ns = time.time_ns()
        self._trio = trio.current_time()
        self._perf = time.perf_counter()

    def at(self, seconds: float) -> int:
        """A time of Trio's clock."""
        return self._now_ns + round((seconds - self._trio) * SECOND_NS)

    def at_counter(self, seconds: float) -> int:
        """A time of ``time.perf_counter``."""
        return self._now_ns + round((seconds - self._perf) * SECOND_NS)

    def now(self) -> int:
        """This moment."""
        return self.at(trio.current_time())
