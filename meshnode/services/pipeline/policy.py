"""What a driver does when a hop fails (document, section 7.3; decisions/0037).

Terms: a *round* tries every path that there is, each peer at most once; between two rounds the
driver waits. A peer that failed is *avoided* for the rest of the round, or *barred* for the rest of
the generation.

==================  =======================================================================
code                what is done
==================  =======================================================================
UNAVAILABLE         avoid; have the peer book look at it
DEADLINE_EXCEEDED   avoid; have the peer book look at it
RESOURCE_EXHAUSTED  avoid
NOT_FOUND           bar: it does not hold the layer
INVALID_ARGUMENT    end the generation: the request is wrong, and would be wrong elsewhere; in the
                    middle of a chain, call the holders in turn to see whose states are wrong
INTERNAL            avoid; the log has the peer's message
UNIMPLEMENTED       of a chain: call the holders in turn; else bar
session lost        keep the peer, begin a new session there; the second time, avoid
others              bar
==================  =======================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshnode.domain.errors import ComputationFailed, MeshnodeError, RateLimited, Unavailable
from meshnode.rpc.errors import Code

ROUNDS = 3
"""Attempts of the document's retry pattern (section 8)."""
BACKOFF_S = 0.1
MOST_BACKOFF_S = 2.0
MOST_WORDS = 200
"""Characters of a peer's message that are kept."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What follows from one failure."""

    avoid: bool = True
    bar: bool = False
    suspect: bool = False
    star: bool = False
    fatal: bool = False


REACTIONS: dict[Code, Reaction] = {
    Code.UNAVAILABLE: Reaction(suspect=True),
    Code.DEADLINE_EXCEEDED: Reaction(suspect=True),
    Code.RESOURCE_EXHAUSTED: Reaction(),
    Code.NOT_FOUND: Reaction(bar=True),
    Code.INVALID_ARGUMENT: Reaction(fatal=True),
    Code.INTERNAL: Reaction(),
    Code.UNKNOWN: Reaction(),
    Code.CANCELLED: Reaction(),
    Code.ABORTED: Reaction(),
    Code.DATA_LOSS: Reaction(),
}
BARRED = Reaction(bar=True)
LOST = Reaction(avoid=False)
LOST_AGAIN = Reaction()
STAR = Reaction(avoid=False, star=True)

SESSION_LOST = "session unknown"
"""How a holder begins its message when it does not have the session, or is behind in it."""
_CODED = re.compile(r"([A-Z_]{2,24})(?:: .*)?", re.DOTALL)


class HopFailed(Exception):
    """A hop of the path did not compute. ``place`` is its index in the path."""

    def __init__(
        self,
        place: int,
        node_id: str,
        code: Code,
        message: str,
        *,
        lost: bool = False,
        chained: bool = False,
    ) -> None:
        """``lost``: it has no such session. ``chained``: found out by another holder, or by
        ``SwarmForward`` itself, so that a direct call might do better."""
        # A peer's words go to the log as one short line, and may be millions.
        message = " ".join(message[: 4 * MOST_WORDS].split())[:MOST_WORDS]
        super().__init__(f"{node_id[:8]} {code.name}: {message}")
        self.place = place
        self.node_id = node_id
        self.code = code
        self.message = message
        self.lost = lost
        self.chained = chained

    @property
    def reaction(self) -> Reaction:
        """What the table says."""
        if self.lost:
            return LOST
        if self.chained and self.code in (Code.UNIMPLEMENTED, Code.PERMISSION_DENIED):
            return STAR
        if self.chained and self.place > 0 and self.code is Code.INVALID_ARGUMENT:
            return STAR
        return REACTIONS.get(self.code, BARRED)

    def outcome(self) -> MeshnodeError:
        """What the client is told when this was the last failure."""
        if self.code is Code.RESOURCE_EXHAUSTED:
            return RateLimited(1, "the holders of the other layers are full")
        if self.code in (Code.INVALID_ARGUMENT, Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS):
            return ComputationFailed()
        return Unavailable("a node that holds some of the model's layers does not answer")


def told(message: str) -> tuple[Code, bool]:
    """Code of an ``error_message``, and whether it says that the session is lost.

    Holders of this project begin it with the status that the failure would have had as a call.
    """
    if message.startswith(SESSION_LOST):
        return Code.UNAVAILABLE, True
    match = _CODED.fullmatch(message)
    if match and match[1] in Code.__members__ and match[1] != "OK":
        return Code[match[1]], False
    return Code.INTERNAL, False


def backoff_s(rounds: int) -> float:
    """Seconds to wait after ``rounds`` rounds have failed: 0.1, 0.2, ... up to 2."""
    return min(BACKOFF_S * 2.0 ** (rounds - 1), MOST_BACKOFF_S)
