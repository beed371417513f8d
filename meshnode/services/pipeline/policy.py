"""What a driver does when a hop fails (interface 7.3; decision 0037).

Terms: a *round* tries every available path, each peer at most once; the driver waits between two
rounds. A peer that failed is *avoided* for the rest of the round, or *barred* for the rest of the
generation. Calls are *relayed* or *direct* (``remote``).

==================  =======================================================================
code                what is done
==================  =======================================================================
UNAVAILABLE         avoid; the peer book checks whether it lives
DEADLINE_EXCEEDED   avoid; the peer book checks whether it lives
RESOURCE_EXHAUSTED  avoid
NOT_FOUND           bar: it does not hold the layer
INVALID_ARGUMENT    bar; the generation ends when MAX_REFUSALS holders say so, or no other is left.
                    If a later hop of a relayed call says so, call directly to see whose states are
                    invalid
INTERNAL            avoid; the log has the peer's message. The same for UNKNOWN, CANCELLED, ABORTED
                    and DATA_LOSS
UNIMPLEMENTED       call directly if the call was relayed, else bar
PERMISSION_DENIED   call directly if the call was relayed, else bar
session lost        keep the peer and begin a new session there; the second time, avoid
others              bar
==================  =======================================================================

Every failure of the table but a lost session counts against the holder in later generations too
(decision 0134); INVALID_ARGUMENT does once another holder has accepted what was refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    MeshnodeError,
    RateLimited,
    Unavailable,
)
from meshnode.rpc.errors import Code

ROUNDS = 3
"""Attempts of the document's retry pattern (interface 8)."""
BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0
MAX_REFUSALS = 4
"""Holders that may refuse a request as invalid before it counts as invalid."""
MAX_WORDS = 200
"""Characters of a peer's message that are kept."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the driver does after one failure."""

    avoid: bool = True
    bar: bool = False
    suspect: bool = False
    """Have the peer book check whether the peer lives."""
    direct: bool = False
    """Call the holders directly from now on."""
    refused: bool = False
    """The holder or the request is invalid: what other holders answer decides."""


REACTIONS: dict[Code, Reaction] = {
    Code.UNAVAILABLE: Reaction(suspect=True),
    Code.DEADLINE_EXCEEDED: Reaction(suspect=True),
    Code.RESOURCE_EXHAUSTED: Reaction(),
    Code.NOT_FOUND: Reaction(bar=True),
    Code.INVALID_ARGUMENT: Reaction(bar=True, refused=True),
    Code.INTERNAL: Reaction(),
    Code.UNKNOWN: Reaction(),
    Code.CANCELLED: Reaction(),
    Code.ABORTED: Reaction(),
    Code.DATA_LOSS: Reaction(),
}
BARRED = Reaction(bar=True)
LOST = Reaction(avoid=False)
LOST_AGAIN = Reaction()
CALL_DIRECTLY = Reaction(avoid=False, direct=True)

SESSION_LOST = "session unknown"
"""A holder's message begins with this if it lacks the session, or some of its positions."""
_CODED = re.compile(r"([A-Z_]{2,24})(?:: .*)?", re.DOTALL)


class HopFailed(Exception):
    """A hop of the path failed. ``place`` is its index in the path."""

    def __init__(
        self,
        place: int,
        node_id: str,
        code: Code,
        message: str,
        *,
        lost: bool = False,
        relayed: bool = False,
    ) -> None:
        """``lost``: the peer does not have the session. ``relayed``: the call was relayed, so that
        a direct call might succeed."""
        # The peer's message goes to the log: as one short line, however long it was.
        message = " ".join(message[: 4 * MAX_WORDS].split())[:MAX_WORDS]
        super().__init__(f"{node_id[:8]} {code.name}: {message}")
        self.place = place
        self.node_id = node_id
        self.code = code
        self.message = message
        self.lost = lost
        self.relayed = relayed

    @property
    def reaction(self) -> Reaction:
        """The table's entry for this failure."""
        if self.lost:
            return LOST
        if self.relayed and self.code in (Code.UNIMPLEMENTED, Code.PERMISSION_DENIED):
            return CALL_DIRECTLY
        if self.relayed and self.place > 0 and self.code is Code.INVALID_ARGUMENT:
            return CALL_DIRECTLY
        return REACTIONS.get(self.code, BARRED)

    def outcome(self) -> MeshnodeError:
        """The error for the client when no attempt is left."""
        if self.code is Code.RESOURCE_EXHAUSTED:
            return RateLimited(1, "the holders of the other layers are full")
        if self.code in (Code.INVALID_ARGUMENT, Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS):
            return ComputationFailed()
        return Unavailable("a node that holds some of the model's layers does not answer")


def refused_outcome(refusals: int) -> MeshnodeError:
    """The error for the client of a request that no holder accepted, and ``refusals`` refused.

    A single holder may as well be the one that is wrong.
    """
    if refusals > 1:
        return InvalidRequest(None, "the holders of the other layers refused it as invalid")
    return ComputationFailed()


def parse_failure(message: str) -> tuple[Code, bool]:
    """The code of an ``error_message``, and whether the message means that the session is lost.

    Holders of this project begin the message with the status that the failure of a call would have.
    """
    if message.startswith(SESSION_LOST):
        return Code.UNAVAILABLE, True
    match = _CODED.fullmatch(message)
    if match and match[1] in Code.__members__ and match[1] != "OK":
        return Code[match[1]], False
    return Code.INTERNAL, False


def backoff_s(rounds: int) -> float:
    """Seconds to wait after ``rounds`` rounds have failed: 0.1, 0.2, ... up to 2."""
    return min(BACKOFF_S * 2.0 ** (rounds - 1), MAX_BACKOFF_S)
