"""The states of a session in the engine, and how one follows another (``batching``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from meshnode.domain.places import Claim


class State(Enum):
    """The state of a session."""

    ABSENT = "absent"
    WAITING = "waiting"
    PREFILLING = "prefilling"
    RESTING = "resting"
    STEPPING = "stepping"
    DECODING = "decoding"


BATCH = (State.DECODING, State.STEPPING, State.PREFILLING, State.RESTING)
"""The states of a session that has a place. Those that compute come first."""
WORKING = (State.DECODING, State.STEPPING, State.PREFILLING)
COMPUTING = {State.DECODING, State.PREFILLING}
"""A change between these is none of who has a place."""

FEW = 4
"""The most generations in a step that fills a gap, since whoever comes back waits for its end."""
REPLAY_CHUNK = 16
"""Positions beyond ``break_at`` that are computed in one step."""

TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.ABSENT: frozenset({State.WAITING}),
    State.WAITING: frozenset({State.PREFILLING, State.RESTING, State.ABSENT}),
    State.RESTING: frozenset({State.PREFILLING, State.STEPPING, State.ABSENT}),
    State.PREFILLING: frozenset(
        {State.PREFILLING, State.DECODING, State.RESTING, State.WAITING, State.ABSENT}
    ),
    State.STEPPING: frozenset({State.RESTING, State.ABSENT}),
    State.DECODING: frozenset({State.WAITING, State.ABSENT}),
}


@dataclass(slots=True)
class Batched(Claim):
    """A session that waits for a place or has one."""

    start: int = 0
    """Next position to compute during prefill."""
    stop: int = 0
    """End of the prompt, or of the positions that were sent."""
    state: State = State.ABSENT
    break_at: int = -1
    """A position at which a chunk ends, in addition to the multiples of the chunk's size."""
