"""Continuous batching: a state machine that chooses which session computes next (interface 1).

Terms: a *session* is one generation in the engine, or one session of a pipeline, which computes
only when a message for it arrives and *rests* between two messages. The *queue* holds sessions
that wait for a place; the *batch* holds those that have one. *Prefilling* computes a prompt, a
*chunk* of positions at a time; *decoding* computes one token for every generation at once;
*stepping* computes one position for every session of a pipeline that was sent one.

==========  ===================================================  ==========
state       event                                                next
==========  ===================================================  ==========
ABSENT      ``submit``, unless the queue is full                 WAITING
WAITING     ``admit`` of a generation, with a place and memory   PREFILLING
WAITING     ``admit`` of a pipeline's session, likewise          RESTING
WAITING     ``leave``                                            ABSENT
RESTING     ``begin`` with several positions                     PREFILLING
RESTING     ``begin`` with one position                          STEPPING
RESTING     ``leave``                                            ABSENT
PREFILLING  ``prefilled``, with more positions to come           PREFILLING
PREFILLING  ``prefilled`` with a prompt's last position          DECODING
PREFILLING  the same of a pipeline's session; ``rest``           RESTING
PREFILLING  ``leave``                                            ABSENT
STEPPING    ``rest``                                             RESTING
STEPPING    ``leave``                                            ABSENT
DECODING    ``leave``                                            ABSENT
==========  ===================================================  ==========

Invariants: at most ``max_batch`` sessions have a place, and at most ``max_queue`` wait beyond those
for which a place is free; the KV bytes of the batch never exceed ``kv_bytes`` and are zero when it
is empty; sessions are admitted in the order of arrival, and prompts take turns, so that no session
starves; the bounds of a chunk depend on the positions of its own session alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from meshnode.domain.transitions import checked

Key = TypeVar("Key")


class State(Enum):
    """The state of a session."""

    ABSENT = "absent"
    WAITING = "waiting"
    PREFILLING = "prefilling"
    RESTING = "resting"
    STEPPING = "stepping"
    DECODING = "decoding"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.ABSENT: frozenset({State.WAITING}),
    State.WAITING: frozenset({State.PREFILLING, State.RESTING, State.ABSENT}),
    State.RESTING: frozenset({State.PREFILLING, State.STEPPING, State.ABSENT}),
    State.PREFILLING: frozenset({State.PREFILLING, State.DECODING, State.RESTING, State.ABSENT}),
    State.STEPPING: frozenset({State.RESTING, State.ABSENT}),
    State.DECODING: frozenset({State.ABSENT}),
}
BATCH = (State.DECODING, State.STEPPING, State.PREFILLING, State.RESTING)
"""The states of a session that has a place. Those that compute come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Limits on what the engine uses at one time."""

    max_batch: int = 16
    """Sessions that have a place."""
    max_queue: int = 64
    """Sessions that wait for a place. The next one is refused with a time to retry after."""
    kv_bytes: int = 1 << 30
    """Memory for keys and values of the sessions that have a place."""
    prefill_chunk: int = 128
    """Prompt positions computed in one step, which bounds how long other sessions wait for it."""


@dataclass(slots=True)
class _Session:
    kv_bytes: int
    start: int
    """Next position to compute during prefill."""
    stop: int
    """End of the prompt, or of the positions that were sent."""
    rests: bool
    """Whether it is a pipeline's session, which rests after computing its positions."""
    state: State = State.ABSENT
    break_at: int = -1
    """A position at which a chunk ends, in addition to the multiples of the chunk's size."""


@dataclass(frozen=True, slots=True)
class Chunk(Generic[Key]):
    """Positions ``start`` to ``stop`` of a session; ``last`` if it ends the session's prefill."""

    key: Key
    start: int
    stop: int
    last: bool


class Scheduler(Generic[Key]):
    """The queue and the batch. Keys are the caller's names for its sessions."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self._in: dict[State, OrderedDict[Key, _Session]] = {
            state: OrderedDict() for state in State if state is not State.ABSENT
        }

    @property
    def queued(self) -> int:
        """The number of sessions that wait for a place."""
        return len(self._in[State.WAITING])

    @property
    def computing(self) -> int:
        """The number of sessions that have a place, including resting ones."""
        return sum(len(self._in[state]) for state in BATCH)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute, once ``admit`` has been called."""
        computing = (State.DECODING, State.STEPPING, State.PREFILLING)
        return not any(self._in[state] for state in computing)

    @property
    def kv_bytes_in_use(self) -> int:
        """KV memory of the batch."""
        return sum(session.kv_bytes for session in self._placed())

    @property
    def full(self) -> bool:
        """Whether the queue takes no further session."""
        # Sessions for which a place is free do not count towards the queue's limit.
        free = self.limits.max_batch - self.computing
        return self.queued >= self.limits.max_queue + free

    def sessions(self) -> list[Key]:
        """All sessions, those that compute first."""
        return [key for state in (*BATCH, State.WAITING) for key in self._in[state]]

    def submit(self, key: Key, prompt_tokens: int, kv_bytes: int) -> bool:
        """Take a generation into the queue; False when the queue is full.

        ``kv_bytes`` is the most that it will ever need, at most ``limits.kv_bytes``.
        """
        if prompt_tokens < 1:
            raise ValueError("a generation that could never be admitted: it has no prompt")
        return self._submit(key, _Session(kv_bytes, 0, prompt_tokens, rests=False))

    def submit_resting(self, key: Key, kv_bytes: int) -> bool:
        """Take a pipeline's session into the queue; it will rest until ``begin``."""
        return self._submit(key, _Session(kv_bytes, 0, 0, rests=True))

    def _submit(self, key: Key, session: _Session) -> bool:
        if not 0 < session.kv_bytes <= self.limits.kv_bytes:
            raise ValueError("a session that could never be admitted")
        if self.full:
            return False
        self._enter(key, session, State.WAITING)
        return True

    def admit(self) -> list[Key]:
        """Move sessions from the queue into the batch while there is room; returns those moved."""
        admitted = []
        used = self.kv_bytes_in_use
        while self._in[State.WAITING] and self.computing < self.limits.max_batch:
            key, session = next(iter(self._in[State.WAITING].items()))
            # A small session must not overtake a large one, which might then wait forever.
            if used + session.kv_bytes > self.limits.kv_bytes:
                break
            used += session.kv_bytes
            self._enter(key, session, State.RESTING if session.rests else State.PREFILLING)
            admitted.append(key)
        return admitted

    def resize(self, key: Key, kv_bytes: int) -> bool:
        """Change the KV memory of a session in the batch; False when there is no room for it."""
        session = next(self._in[state][key] for state in BATCH if key in self._in[state])
        if self.kv_bytes_in_use - session.kv_bytes + kv_bytes > self.limits.kv_bytes:
            return False
        session.kv_bytes = kv_bytes
        return True

    def begin(self, key: Key, start: int, stop: int, break_at: int = -1) -> None:
        """Let a resting session compute its positions ``start`` to ``stop``.

        No chunk extends over position ``break_at``; a negative one breaks nothing.
        """
        session = self._in[State.RESTING][key]
        session.start, session.stop, session.break_at = start, stop, break_at
        self._enter(key, session, State.STEPPING if stop - start == 1 else State.PREFILLING)

    def next_chunk(self) -> Chunk[Key] | None:
        """The chunk to compute next, of the session that has waited longest for its turn."""
        if not self._in[State.PREFILLING]:
            return None
        key, session = next(iter(self._in[State.PREFILLING].items()))
        size = self.limits.prefill_chunk
        # Chunks end at multiples of the size, so rounding does not depend on how the positions
        # were split into messages.
        stop = min((session.start // size + 1) * size, session.stop)
        if session.start < session.break_at < stop:
            stop = session.break_at
        return Chunk(key, session.start, stop, last=stop == session.stop)

    def prefilled(self, chunk: Chunk[Key]) -> None:
        """Record that a chunk was computed; ignored if its session has left or rests by now."""
        session = self._in[State.PREFILLING].get(chunk.key)
        if session is None:
            return
        session.start = chunk.stop
        if not chunk.last:
            # Move it to the end of the line, so that a short prompt does not wait for all of a long
            # one.
            self._enter(chunk.key, session, State.PREFILLING)
        else:
            self._enter(chunk.key, session, State.RESTING if session.rests else State.DECODING)

    def decoding(self) -> list[Key]:
        """The generations that compute their next token now."""
        return list(self._in[State.DECODING])

    def stepping(self) -> list[Key]:
        """The pipelines' sessions that compute one position now."""
        return list(self._in[State.STEPPING])

    def rest(self, key: Key) -> None:
        """Let a pipeline's session rest: it has computed its step, or its caller has left."""
        for state in (State.STEPPING, State.PREFILLING):
            if key in self._in[state]:
                self._enter(key, self._in[state][key], State.RESTING)

    def leave(self, key: Key) -> None:
        """Forget a session in any state; its place and its memory are free at once."""
        for state in (*BATCH, State.WAITING):
            if key in self._in[state]:
                self._enter(key, self._in[state][key], State.ABSENT)

    def _placed(self) -> Iterator[_Session]:
        return (session for state in BATCH for session in self._in[state].values())

    def _enter(self, key: Key, session: _Session, state: State) -> None:
        """Move a session to the end of the line of another state, or of its own."""
        old, session.state = session.state, checked(TRANSITIONS, session.state, state)
        if old is not State.ABSENT:
            del self._in[old][key]
        if state is not State.ABSENT:
            self._in[state][key] = session
