"""The time of a toy client and of the peer that judges it: it moves only when both are done.

Nothing here waits for the machine's clock, so a verdict does not depend on how busy it is. Whoever
waits for the toy moves the time on by a second, and before each one the toy does what is due.
"""

import threading
from collections.abc import Callable

from conformance.peer.peer import Time

STEP_S = 1.0
# Only a fault of the suite takes this long; nothing is judged by it.
STUCK_S = 60.0


class World(Time):
    """Seconds since its beginning."""

    def __init__(self) -> None:
        """Begin at some time that is not 0."""
        self._now = 1000.0
        self.due: Callable[[], None] = lambda: None
        self.settled: Callable[[], bool] = lambda: True

    def now(self) -> float:
        """Return the time."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass in which the toy does nothing else."""
        self._now += seconds

    def wait(self, noticed: threading.Condition, done: Callable[[], bool], within_s: float) -> bool:
        """Move the time on until `done`, and let the toy do what is due."""
        ends = self._now + within_s
        while not done():
            if self._now >= ends:
                return False
            self._now += STEP_S
            self.due()
            self.settle(noticed)
        return True

    def settle(self, noticed: threading.Condition) -> None:
        """Wait until the peer has noticed what the toy has closed."""
        with noticed:
            if not noticed.wait_for(self.settled, STUCK_S):
                raise TimeoutError("the peer has not noticed what the toy has done")
