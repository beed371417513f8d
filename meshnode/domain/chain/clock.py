"""The clock that dates blocks, and how far it believes the machine's (native network 5).

Terms: the *wall* clock shows the time of day, and can be set. The *steady* clock counts from the
start of the machine, sleep included, and cannot be set. The *date* is the time that a vote for a
block gets. The *expected* time is the wall clock's first reading plus what the steady clock has
counted since; the wall clock has *jumped* when it is more than SLACK_NS away from it
(decision 0136).

============  =====================================================  ==========
state         event                                                  next
============  =====================================================  ==========
(start)       the wall clock shows the last block's time or later    STEADY
(start)       it shows an earlier time                               BEHIND
STEADY        the wall clock jumps                                   JUMPED
JUMPED        it comes back, or the expected time has reached it     STEADY
JUMPED        it went forward, and enough peers show the same time   STEADY
BEHIND        it shows the expected time or later                    STEADY
============  =====================================================  ==========

Invariants: the date is within SLACK_NS of the expected time; the expected time differs from the
steady clock by at most one part in FOLLOWS, except where the table leads back to STEADY.
Times are integers in nanoseconds; those of the wall clock count from 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median_low

from meshnode.domain.transitions import checked
from meshnode.domain.units import SECOND_NS

SLACK_NS = 60 * SECOND_NS
"""Corrections of a clock that is kept right are a few seconds at most."""
FOLLOWS = 1000
"""Of 1000 s by the steady clock the expected time gives up to one to the wall clock, so that many
small corrections are no jump. A lock of 30 days ends 43 minutes early at most."""
ENOUGH_PEERS = 3
"""Peers whose median counts: a single one that is wrong must not decide."""


class State(Enum):
    """How the wall clock is believed."""

    STEADY = "steady"
    JUMPED = "jumped"
    BEHIND = "behind"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.STEADY: frozenset({State.JUMPED}),
    State.JUMPED: frozenset({State.STEADY}),
    State.BEHIND: frozenset({State.STEADY}),
}


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """The wall clock's time that was expected at a time of the steady clock."""

    wall_ns: int
    steady_ns: int


class BlockClock:
    """Gives the date from readings of both clocks."""

    def __init__(
        self,
        wall_ns: int,
        steady_ns: int,
        *,
        last_block_ns: int = 0,
        known: ClockAnchor | None = None,
    ) -> None:
        """Begin with a reading. ``known`` is an earlier anchor by the same steady clock."""
        self._steady_ns = steady_ns
        self._expected_ns = wall_ns
        self.state = State.STEADY
        if known is not None and known.steady_ns <= steady_ns:
            self._expected_ns = known.wall_ns + steady_ns - known.steady_ns
        if last_block_ns > self._expected_ns + SLACK_NS:
            # Nothing tells how long the node was off, so the chain goes on from its last block.
            self._expected_ns, self.state = last_block_ns, State.BEHIND
        self.date_ns(wall_ns, steady_ns)

    @property
    def anchor(self) -> ClockAnchor | None:
        """The expected time at the last reading; None while it is only that of the last block."""
        if self.state is State.BEHIND:
            return None
        return ClockAnchor(self._expected_ns, self._steady_ns)

    def date_ns(self, wall_ns: int, steady_ns: int, others_ns: Sequence[int] = ()) -> int:
        """The time to date a block with now. ``others_ns`` are the wall clocks of peers now."""
        elapsed = max(0, steady_ns - self._steady_ns)
        self._steady_ns += elapsed
        self._expected_ns += elapsed
        most = elapsed // FOLLOWS
        self._expected_ns += max(-most, min(most, wall_ns - self._expected_ns))
        if self._believed(wall_ns, others_ns):
            self._expected_ns = wall_ns
        jumped = abs(wall_ns - self._expected_ns) > SLACK_NS
        if self.state is State.STEADY and jumped:
            self._enter(State.JUMPED)
        elif self.state is not State.STEADY and not jumped:
            self._enter(State.STEADY)
        return self._expected_ns if jumped else wall_ns

    def shift_ns(self, wall_ns: int) -> int:
        """How far the wall clock is ahead of the expected time; negative when it is behind."""
        return wall_ns - self._expected_ns

    def _believed(self, wall_ns: int, others_ns: Sequence[int]) -> bool:
        """Whether the wall clock is right although it shows a later time than expected."""
        if wall_ns <= self._expected_ns:
            return False
        # It was behind the last block, so it was wrong before, and nothing contradicts it now.
        if self.state is State.BEHIND:
            return True
        # A jump is believed if the median of the peers' clocks confirms it. Peers alone cannot move
        # the date.
        return abs(difference_ns(wall_ns, others_ns, default=SLACK_NS + 1)) <= SLACK_NS

    def _enter(self, state: State) -> None:
        self.state = checked(TRANSITIONS, self.state, state)


def difference_ns(time_ns: int, others_ns: Sequence[int], *, default: int = 0) -> int:
    """How far ``time_ns`` is ahead of the median of the peers; ``default`` with too few peers."""
    if len(others_ns) < ENOUGH_PEERS:
        return default
    return time_ns - median_low(others_ns)
