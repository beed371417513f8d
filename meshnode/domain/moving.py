"""When a node that had better hold other layers lets go of its own (decision 0250).

Terms: a *claim* is what a node announces to all that ask it: the layers to which it moves. A node
is *quiet* if no generation and no session is open at it. A move *relieves* if layers are short that
it would hold, and *speeds* otherwise. A claim is *contested* by that of a node with a smaller id
that holds what would be let go.

=========  =======================================================  =========  ====================
state      event                                                    next       action
=========  =======================================================  =========  ====================
settled    a move is worth it, and it has rested                    waiting
waiting    no move is worth it any more                             settled
waiting    a random wait is over, and the node is quiet             announced  claim
announced  it is not worth it any more, contested, or CLAIM_S over  settled    withdraw, rest
announced  every peer had time to see it, and all layers are held   leaving    leave
leaving    what it will hold could not be written down              settled    withdraw, rest
=========  =======================================================  =========  ====================

Invariants: a node leaves only after others have said, since its claim, that they hold what it lets
go, and have no claim themselves. So of any number of nodes that hold a layer and move, one has
asked last whether another one stays; that one had no claim yet, would have to ask a further one
later, and so does not leave: the layer stays held. A holder that dies after it was asked takes with
it what it would have kept alone, as it does a moment later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from meshnode.domain.moves import Plan
from meshnode.domain.transitions import checked


class State(Enum):
    """What a node does about moving."""

    SETTLED = "settled"
    WAITING = "waiting"
    ANNOUNCED = "announced"
    LEAVING = "leaving"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.SETTLED: frozenset({State.WAITING}),
    State.WAITING: frozenset({State.SETTLED, State.ANNOUNCED}),
    State.ANNOUNCED: frozenset({State.SETTLED, State.LEAVING}),
    State.LEAVING: frozenset({State.SETTLED}),
}


class Step(Enum):
    """What the node is to do now."""

    NOTHING = "nothing"
    CLAIM = "claim"
    """Announce the target, and look whether it can have it."""
    CHECK = "check"
    """Ask others whether they hold what it would let go."""
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class MoveTimings:
    """Times in seconds, which tests shorten."""

    look_s: float = 5.0
    """Pause between two looks at the placement."""
    relief_s: float = 30.0
    """The least time that layers are short before a node comes to their relief; at most twice."""
    speed_s: float = 600.0
    """The same for a move that makes tokens quicker."""
    known_s: float = 12.0
    """From the claim to the check. Two beats, so that peers know of each other's claims."""
    claim_s: float = 120.0
    """A claim does not last longer, nor is it believed for longer."""
    rest_s: float = 60.0
    """The least rest after a claim that was withdrawn; at most twice."""
    settled_s: float = 1800.0
    """After a move: the least time until one that only makes tokens quicker."""
    call_s: float = 5.0
    """Deadline of the calls of a check."""


MOVE_TIMINGS = MoveTimings()


class Moving:
    """The state of one node. ``now`` is in seconds of a monotonic clock."""

    def __init__(
        self, timings: MoveTimings, draw: Callable[[], float], *, moved_at: float = -math.inf
    ) -> None:
        """``draw`` gives numbers from 0 to 1; ``moved_at`` is when this node moved last."""
        self.state = State.SETTLED
        self.target: range | None = None
        """The layers claimed."""
        self._timings = timings
        self._draw = draw
        self._speeds_from = moved_at + timings.settled_s
        self._rests_until = -math.inf
        self._until = math.inf
        """While waiting, when the wait ends; while announced, when the claim ends."""
        self._relieves = False
        self._checks_from = math.inf

    def look(self, plan: Plan | None, *, quiet: bool, contested: bool, now: float) -> Step:
        """Go on. ``plan`` is the best one, or what has become of the one that was claimed."""
        if self.state is State.ANNOUNCED:
            return self._look_at_claim(plan, quiet=quiet, contested=contested, now=now)
        if plan is None or (not plan.relieves and now < self._speeds_from):
            if self.state is State.WAITING:
                self._enter(State.SETTLED)
            return Step.NOTHING
        if self.state is State.SETTLED:
            if now < self._rests_until:
                return Step.NOTHING
            self._enter(State.WAITING)
            self._wait_for(plan, now)
        elif plan.relieves and not self._relieves:
            self._wait_for(plan, now)
        if now < self._until or not quiet:
            return Step.NOTHING
        self._enter(State.ANNOUNCED)
        self.target = plan.target
        self._until = now + self._timings.claim_s
        self._checks_from = now + self._timings.known_s
        return Step.CLAIM

    def leave(self) -> None:
        """All layers that are let go are held by others that stay."""
        self._enter(State.LEAVING)

    def withdraw(self, now: float) -> None:
        """The claim came to nothing."""
        self._enter(State.SETTLED)
        self.target = None
        self._rests_until = now + self._timings.rest_s * (1 + self._draw())

    def _look_at_claim(
        self, plan: Plan | None, *, quiet: bool, contested: bool, now: float
    ) -> Step:
        if plan is None or contested or now >= self._until:
            self.withdraw(now)
            return Step.WITHDRAW
        return Step.CHECK if now >= self._checks_from and quiet else Step.NOTHING

    def _wait_for(self, plan: Plan, now: float) -> None:
        self._relieves = plan.relieves
        least = self._timings.relief_s if plan.relieves else self._timings.speed_s
        self._until = now + least * (1 + self._draw())

    def _enter(self, state: State) -> None:
        self.state = checked(TRANSITIONS, self.state, state)
