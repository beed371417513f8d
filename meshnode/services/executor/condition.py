"""Whether the executor's steps serve anybody."""

from __future__ import annotations

import math

import trio

STALLED_S = 30.0
"""A call into the torch thread that takes longer serves nobody; calls take milliseconds."""
FAILING_FOR_S = 30.0
"""A failed step counts for this long: a node that is sent no work cannot prove that it works."""


class Condition:
    """What the latest steps say about the health of the node."""

    def __init__(self) -> None:
        self._failed_at = -math.inf
        self._begun = math.inf

    def begun(self) -> float:
        """Note that a step begins; returns when."""
        self._begun = trio.current_time()
        return self._begun

    def stepped(self, *, failed: bool | None) -> None:
        """Note a call, and that another may follow; None if nothing was computed in it."""
        self._begun = trio.current_time()
        if failed is not None:
            self._failed_at = self._begun if failed else -math.inf

    def ended(self) -> None:
        """Note that nothing is computed any more."""
        self._begun = math.inf

    @property
    def trouble(self) -> str:
        """``failing`` after a step failed as a whole, ``stalled`` while one takes too long."""
        now = trio.current_time()
        if now - self._failed_at < FAILING_FOR_S:
            return "failing"
        return "stalled" if now - self._begun > STALLED_S else ""
