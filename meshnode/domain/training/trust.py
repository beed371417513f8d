"""Whose reports of weights count, after failed fetches (decision 0095).

Invariant: a peer that reports weights which nobody can fetch does not keep a node from training.
"""

from __future__ import annotations

MAX_FAILURES = 3
"""Failed fetches in a row after which a holder's reports are ignored for a while. A single failure
proves nothing: the holder may have gone on to the next round in the meantime."""


class Trust:
    """The failures of each holder. Times are seconds of a monotonic clock."""

    def __init__(self, distrust_s: float) -> None:
        """``distrust_s`` is how long the reports of a peer are ignored."""
        self._distrust_s = distrust_s
        self._ignored_until: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def counts(self, peer: str, now: float) -> bool:
        """Whether a peer's reports count."""
        if now < self._ignored_until.get(peer, now):
            return False
        self._ignored_until.pop(peer, None)
        return True

    def failed(self, peer: str, now: float) -> bool:
        """Note that a holder did not deliver. Returns whether its reports are ignored from now."""
        self._failures[peer] = self._failures.get(peer, 0) + 1
        if self._failures[peer] < MAX_FAILURES:
            return False
        del self._failures[peer]
        self._ignored_until[peer] = now + self._distrust_s
        return True

    def fetched(self) -> None:
        """Note that weights were fetched: all counts begin anew."""
        self._failures.clear()
