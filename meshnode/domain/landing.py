"""The outcome of a signed transaction (interface 4.2 rules 5 and 6; decisions 0084, 0092).

Terms: a transaction *lands* when a block holds it, or when it is certain that none ever will. Until
then its outcome is unknown: the same signed bytes may be offered again, because a nonce lets only
one copy in, and nothing else may be signed with its nonce.

=========  ============================  ========================================================
state      what to do                    what can follow
=========  ============================  ========================================================
UNKNOWN    ask for the account's nonce   SOUGHT
SOUGHT     look for it in the blocks     LANDED if a block holds it, or if its nonce was passed:
                                         another transaction took the nonce, or, where blocks
                                         are missing, this one did. Otherwise UNUSED
UNUSED     offer the signed bytes        OFFERED if they were taken, or refused for the moment;
                                         LANDED if a rule of the ledger refuses them
OFFERED    wait for the next block       UNKNOWN: it may have been dropped on the way to a block
LANDED     nothing                       nothing
=========  ============================  ========================================================

When the ledger cannot answer, the state is UNKNOWN again.

Invariant: the nonce is asked for before the blocks are searched. A block that comes between the two
questions then cannot make a transaction look as if another had taken its nonce.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from meshnode.domain.chain.blocks import ACCEPTED, TransactionResult
from meshnode.domain.chain.errors import MempoolFull, TooManyOfSender, WrongNonce
from meshnode.domain.spending import Outcome
from meshnode.domain.transitions import checked

PASSING = frozenset(str(refusal()) for refusal in (WrongNonce, MempoolFull, TooManyOfSender))
"""Refusals that may end with the next block. Perhaps these same bytes have used the nonce."""


class LandingState(StrEnum):
    """The knowledge about a signed transaction."""

    UNKNOWN = "unknown"
    SOUGHT = "sought"
    UNUSED = "unused"
    OFFERED = "offered"
    LANDED = "landed"


TRANSITIONS: dict[LandingState, frozenset[LandingState]] = {
    LandingState.UNKNOWN: frozenset({LandingState.UNKNOWN, LandingState.SOUGHT}),
    LandingState.SOUGHT: frozenset(
        {LandingState.UNKNOWN, LandingState.UNUSED, LandingState.LANDED}
    ),
    LandingState.UNUSED: frozenset(
        {LandingState.UNKNOWN, LandingState.OFFERED, LandingState.LANDED}
    ),
    LandingState.OFFERED: frozenset({LandingState.UNKNOWN}),
    LandingState.LANDED: frozenset(),
}
"""From each state, the states that can follow."""


@dataclass(frozen=True, slots=True)
class Landed:
    """How a transaction landed: the ``reason`` of a refusal, the ``height`` of its block or 0."""

    outcome: Outcome
    reason: str = ""
    height: int = 0


class Landing:
    """Follows one signed transaction. The caller does what the state requires and reports the
    answer.

    A report that cannot follow the state raises IllegalTransition.
    """

    def __init__(self, nonce: int) -> None:
        """``nonce`` is the one that was signed."""
        self.state = LandingState.UNKNOWN
        self.landed: Landed | None = None
        self._nonce = nonce
        self._passed = False

    def note_nonce(self, next_nonce: int) -> None:
        """In UNKNOWN: the ledger expects ``next_nonce`` of the account."""
        self._enter(LandingState.SOUGHT)
        self._passed = next_nonce > self._nonce

    def note_search(
        self, found: tuple[int, TransactionResult] | None, *, missing: bool = False
    ) -> None:
        """In SOUGHT: height and result of the transaction, or None when no block holds it.

        ``missing``: blocks that may hold it are not here, as the ledger began with a snapshot.
        """
        if found is not None:
            height, result = found
            accepted = result.code == ACCEPTED
            outcome = Outcome.COMMITTED if accepted else Outcome.REFUSED
            self._land(Landed(outcome, result.log, height))
        elif self._passed:
            self._land(Landed(Outcome.UNSEEN if missing else Outcome.SUPERSEDED))
        else:
            self._enter(LandingState.UNUSED)

    def note_answer(self, result: TransactionResult) -> None:
        """In UNUSED: the ledger's answer to the signed bytes."""
        if result.code == ACCEPTED or result.log in PASSING:
            self._enter(LandingState.OFFERED)
        else:
            self._land(Landed(Outcome.REFUSED, result.log))

    def ask_again(self) -> None:
        """In OFFERED: a block came. In all but LANDED: the ledger could not answer."""
        self._enter(LandingState.UNKNOWN)

    def _land(self, landed: Landed) -> None:
        self._enter(LandingState.LANDED)
        self.landed = landed

    def _enter(self, state: LandingState) -> None:
        self.state = checked(TRANSITIONS, self.state, state)
