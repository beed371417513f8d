"""How much strangers may compute of training messages (decision 0207).

Terms: a *stranger* sends messages that train and that no member has signed (decision 0137). They
change no weights, but each computes in the torch thread at once, beside the batch.

Invariants: while somebody else has work, all strangers together use at most ``BURST_S`` and
``PART`` of the time, beside the message that exceeds it; none of them waits longer than
``MAX_WAIT_S``. Times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

import math

from meshnode.domain.errors import RateLimited

PART = 1 / 16
"""Of the torch thread's time, beside others who have work. More than what is left to calls without
a token (decision 0132), and as much as an address has of the event loop (decision 0141)."""
BURST_S = 0.25
MAX_WAIT_S = 1.0
"""A message that would wait for longer is refused, so that few of them hold memory."""
MAX_SHARE_OF_GRAPHS = 8
"""One part in so many of the bytes of all graphs is the most that one message may need beside
others: nothing interrupts its computation."""


class StrangersTime:
    """The computing time of all strangers, in one bucket: addresses are cheap."""

    def __init__(self) -> None:
        self._free_at = 0.0
        """When what they have used will be paid for."""

    def wait_s(self, now: float) -> float:
        """Seconds until the next message may be computed beside others.

        Raises RateLimited if that is too long.
        """
        wait = max(0.0, self._free_at - BURST_S / PART - now)
        if wait > MAX_WAIT_S:
            raise RateLimited(math.ceil(wait), "nobody may train more here without a signature")
        return wait

    def spend(self, seconds: float, now: float) -> None:
        """Count what a message has computed."""
        self._free_at = max(self._free_at, now) + seconds / PART

    def forgive(self) -> None:
        """Forget what was computed: nobody else had work."""
        self._free_at = 0.0
