"""Log lines about the faults of peers: at most one a minute for each address.

Any program can connect to the gRPC port and cause such lines at will, so their rate is limited.
Invariant: at most ``MAX_ADDRESSES`` addresses are remembered; within a minute, all further
addresses share one line.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

EVERY_S = 60.0
MAX_ADDRESSES = 256
"""An entry takes about 200 bytes."""
OTHERS = "other addresses"


@dataclass(slots=True)
class _Entry:
    logged_at: float
    suppressed: int = 0


class PeerLog:
    """Limits the lines written to one logger."""

    def __init__(self, log: logging.Logger) -> None:
        """``log`` gets the lines."""
        self._log = log
        self._entries: dict[str, _Entry] = {}
        """By address, the oldest line first."""

    def __len__(self) -> int:
        """How many addresses are remembered."""
        return len(self._entries)

    def write(self, level: int, address: str, text: str, now: float) -> None:
        """Log what the peer at ``address`` did, or only count it if a line is not due yet."""
        self._forget_old(now)
        known = address in self._entries or len(self._entries) < MAX_ADDRESSES
        name = address if known else OTHERS
        entry = self._entries.get(name)
        if entry is not None and now - entry.logged_at < EVERY_S:
            entry.suppressed += 1
            return
        suppressed = entry.suppressed if entry is not None else 0
        self._entries.pop(name, None)
        self._entries[name] = _Entry(now)
        more = f" ({suppressed} more since the last such line)" if suppressed else ""
        self._log.log(level, "%s: %s%s", address or "unknown address", text, more)

    def _forget_old(self, now: float) -> None:
        # An entry with a count is kept one minute longer, so that the next line can report it.
        for name in list(self._entries):
            entry = self._entries[name]
            if now - entry.logged_at < EVERY_S:
                break
            if not entry.suppressed or now - entry.logged_at >= 2 * EVERY_S:
                del self._entries[name]
