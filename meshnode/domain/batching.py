"""Continuous batching: a state machine that chooses which session computes next (interface 1).

Terms: a *session* is one generation in the engine, or one session of a pipeline, which computes
only when a message for it arrives and *rests* between two messages. The *queue* holds sessions
that wait for a place; the *batch* holds those that have one. *Prefilling* computes a prompt, a
*chunk* of positions at a time; *decoding* computes one token for every generation at once;
*stepping* computes one position for every session of a pipeline that was sent one. Who comes first,
and what is *kept* for whom, is decided in
:mod:`meshnode.domain.places`.

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
PREFILLING  ``suspend`` of a generation                          WAITING
PREFILLING  ``leave``                                            ABSENT
STEPPING    ``rest``                                             RESTING
STEPPING    ``leave``                                            ABSENT
DECODING    ``suspend``                                          WAITING
DECODING    ``leave``                                            ABSENT
==========  ===================================================  ==========

Invariants: at most ``max_batch`` sessions have a place; at most ``max_queue`` wait beyond those for
which a place is free, and what is kept for lower standings; the KV bytes of the batch never exceed
``kv_bytes`` and are zero when it is empty; the sessions of one requester are admitted in the order
of arrival, and prompts take turns, so that no session starves; the bounds of a chunk depend on the
positions of its own session alone, unless the engine is seamless; a session gives up its place
only to a requester of a higher standing, or of the same standing that has fewer places even
afterwards, or because it rests.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

from meshnode.domain.batch_states import BATCH, COMPUTING, FEW, REPLAY_CHUNK, WORKING, Batched
from meshnode.domain.batch_states import TRANSITIONS as TRANSITIONS
from meshnode.domain.batch_states import State as State
from meshnode.domain.chunks import Chunk, Pace, shared
from meshnode.domain.engine_limits import EngineLimits as EngineLimits
from meshnode.domain.places import Contest, is_kept_for, refused_for
from meshnode.domain.shares import ANYBODY, ComputingTime, Requester
from meshnode.domain.transitions import checked

Key = TypeVar("Key")


class Scheduler(Generic[Key]):
    """The queue and the batch. Keys are the caller's names for its sessions."""

    def __init__(self, limits: EngineLimits, *, seamless: bool = False) -> None:
        """``seamless`` says that chunks may end anywhere and be computed beside others."""
        self.limits = self._settled_for = limits
        self._settled_until = -math.inf
        """Until then nobody takes a place, unless sessions or limits change."""
        self._latest_contest: Contest[Key] | None = None
        """What is known of the claims; None if they have changed since."""
        self.pace = Pace()
        """What a position of a prompt costs, which bounds chunks of a seamless engine."""
        self._seamless = seamless
        self._in: dict[State, OrderedDict[Key, Batched]] = {
            state: OrderedDict() for state in State if state is not State.ABSENT
        }
        self._time = ComputingTime()
        self._held_back: frozenset[Requester] = frozenset()
        self._filling = False
        """Whether this step only fills a gap until somebody comes back."""
        self._orders = 0

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
        return not any(self._in[state] for state in WORKING)

    @property
    def kv_bytes_in_use(self) -> int:
        """KV memory of the batch."""
        return sum(session.kv_bytes for session in self._placed())

    @property
    def full(self) -> bool:
        """Whether the queue has no place left except those kept for certain standings."""
        # Sessions for which a place is free do not count towards the queue's limit.
        free = self.limits.max_batch - self.computing
        return self.queued >= self.limits.max_queue + free

    def requesters(self) -> set[Requester]:
        """Those for whom something computes now, or waits for a place."""
        states = (*WORKING, State.WAITING)
        return {each.requester for state in states for each in self._in[state].values()}

    def sessions(self) -> list[Key]:
        """All sessions, those that compute first."""
        return [key for state in (*BATCH, State.WAITING) for key in self._in[state]]

    # The queue.

    def takes(self, requester: Requester) -> bool:
        """Whether the queue takes a session of this requester, or another one can leave it."""
        return self._has_room(requester) or self.refused_for(requester) is not None

    def refused_for(self, requester: Requester) -> Key | None:
        """The session that has to leave a full queue if this requester is to enter it.

        None if there is no such session, or if the queue has room.
        """
        if self._has_room(requester):
            return None
        return refused_for(requester, self._in[State.WAITING], self.limits.max_queue)

    def overdue(self, now: float) -> list[Key]:
        """The sessions that have waited for a place for as long as any session may."""
        oldest = now - self.limits.max_wait_s
        waiting = self._in[State.WAITING].items()
        return [key for key, session in waiting if session.since <= oldest]

    def submit(
        self,
        key: Key,
        prompt_tokens: int,
        kv_bytes: int,
        requester: Requester = ANYBODY,
        now: float = 0.0,
    ) -> bool:
        """Take a generation into the queue; False when the queue is full.

        ``kv_bytes`` is the most that it will ever need, at most ``limits.kv_bytes``.
        """
        if prompt_tokens < 1:
            raise ValueError("a generation that could never be admitted: it has no prompt")
        session = Batched(kv_bytes, requester, since=now, stop=prompt_tokens)
        return self._submit(key, session)

    def submit_resting(
        self,
        key: Key,
        kv_bytes: int,
        requester: Requester = ANYBODY,
        now: float = 0.0,
        *,
        bound: bool = False,
    ) -> bool:
        """Take a pipeline's session into the queue; it will rest until ``begin``.

        One that is ``bound`` never loses its place: a generation of this node needs it.
        """
        session = Batched(kv_bytes, requester, since=now, rests=True, bound=bound)
        return self._submit(key, session)

    def _submit(self, key: Key, session: Batched) -> bool:
        if not 0 < session.kv_bytes <= self.limits.kv_bytes:
            raise ValueError("a session that could never be admitted")
        if not self._has_room(session.requester):
            return False
        self._enter(key, session, State.WAITING)
        return True

    def _has_room(self, requester: Requester) -> bool:
        waiting = self._in[State.WAITING].values()
        return not self.full or is_kept_for(requester, waiting, self.limits.max_queue)

    # Places and memory.

    def admit(self, now: float = 0.0) -> list[Key]:
        """Move sessions from the queue into the batch while there is room; returns those moved."""
        admitted: list[Key] = []
        while not self._is_settled(now):
            contest = self._contest(now)
            if (key := contest.next(now)) is None:
                if contest.victim(now) is None:
                    self._settled_until = contest.unchanged_until(now)
                    self._settled_for = self.limits
                break
            session = self._in[State.WAITING][key]
            session.since = now
            self._enter(key, session, State.RESTING if session.rests else State.PREFILLING)
            admitted.append(key)
        return admitted

    def victim(self, now: float = 0.0) -> Key | None:
        """A session that has to give up its place now, for one that waits; None if none has to.

        The caller suspends it if it is a generation, and ends it if it is a pipeline's session.
        Then it asks again; at last ``admit`` fills the places.
        """
        return None if self._is_settled(now) else self._contest(now).victim(now)

    def suspend(self, key: Key, stop: int, break_at: int, now: float = 0.0) -> None:
        """Take a generation's place and memory. It will compute its ``stop`` positions again.

        ``break_at`` is where its prompt ends and its generated tokens begin.
        """
        session = self._session(key)
        session.start, session.stop, session.break_at = 0, stop, break_at
        session.suspended, session.since = True, now
        self._enter(key, session, State.WAITING)
        # It has waited once already.
        self._in[State.WAITING].move_to_end(key, last=False)

    def resize(self, key: Key, kv_bytes: int) -> bool:
        """Change the KV memory of a session in the batch; False when there is no room for it."""
        session = self._session(key)
        if self.kv_bytes_in_use - session.kv_bytes + kv_bytes > self.limits.kv_bytes:
            return False
        session.kv_bytes = kv_bytes
        self._unsettle()
        return True

    def skip(self, key: Key, start: int) -> None:
        """Let a generation that was just admitted begin at position ``start`` of its prompt."""
        session = self._in[State.PREFILLING][key]
        if session.start or not 0 <= start < session.stop:
            raise ValueError(f"cannot begin at {start} of {session.stop} positions")
        session.start = start

    def begin(self, key: Key, start: int, stop: int, break_at: int = -1) -> None:
        """Let a resting session compute its positions ``start`` to ``stop``.

        No chunk extends over position ``break_at``; a negative one breaks nothing.
        """
        session = self._in[State.RESTING][key]
        session.start, session.stop, session.break_at = start, stop, break_at
        self._enter(key, session, State.STEPPING if stop - start == 1 else State.PREFILLING)

    # Computing.

    def turn(self, now: float = 0.0) -> bool:
        """Begin a step: decide who has to wait during it.

        False if the step had better wait until the event loop is quiet: it would compute only for
        requesters that have several sessions and are ahead of somebody who is expected back.
        """
        working = Counter(
            session.requester for state in WORKING for session in self._in[state].values()
        )
        self._held_back = self._time.held_back(working, now)
        self._filling = self._time.is_ahead and all(
            count > 1 for requester, count in working.items() if requester not in self._held_back
        )
        return not self._filling

    def spend(self, requesters: Collection[Requester], seconds: float) -> None:
        """Count the time of a call into the torch thread, which computed for ``requesters``."""
        self._time.spend(requesters, seconds)

    def owe(self, requester: Requester, seconds: float) -> None:
        """Count time that a requester has cost beside its steps, or has wasted.

        The others of its standing go first for as much. It has no effect while nobody else wants to
        compute.
        """
        self._time.owe(requester, seconds)

    def next_chunks(self) -> list[Chunk[Key]]:
        """The chunks to compute together next: at most one, unless the engine is seamless."""
        if not self._seamless:
            return [chunk] if (chunk := self.next_chunk()) else []
        prompts = self._in[State.PREFILLING]
        keys = self._whose_turn(State.PREFILLING)
        if keys and prompts[keys[0]].rests:
            keys = keys[:1]
        else:
            keys = [key for key in keys if not prompts[key].rests]
        remaining = [(key, prompts[key].stop - prompts[key].start) for key in keys]
        others = (State.DECODING, State.STEPPING, State.RESTING)
        streaming = any(self._in[state] for state in others)
        budget = self.pace.budget(streaming=streaming)
        if streaming:
            budget = min(budget, self.limits.prefill_chunk)
        return [
            Chunk(
                key, start := prompts[key].start, start + count, start + count == prompts[key].stop
            )
            for key, count in shared(remaining, budget)
        ]

    def next_chunk(self) -> Chunk[Key] | None:
        """The chunk to compute next, of the session that has waited longest for its turn."""
        key = next(iter(self._whose_turn(State.PREFILLING)), None)
        if key is None:
            return None
        session = self._in[State.PREFILLING][key]
        size = self.limits.prefill_chunk
        if 0 <= session.break_at <= session.start:
            # What is computed as single steps takes longer for each position.
            size = min(size, REPLAY_CHUNK)
        # Chunks end at multiples of the size, so rounding does not depend on how the positions
        # were split into messages.
        stop = min((session.start // size + 1) * size, session.stop)
        if session.start < session.break_at < stop:
            stop = session.break_at
        return Chunk(key, session.start, stop, last=stop == session.stop)

    def prefilled(self, chunk: Chunk[Key], now: float = 0.0) -> None:
        """Record that a chunk was computed; ignored if its session has left or rests by now."""
        session = self._in[State.PREFILLING].get(chunk.key)
        if session is None:
            return
        session.start, session.since = chunk.stop, now
        if not chunk.last and self._seamless:
            # It keeps its place in the line: prompts end in the order of arrival.
            return
        if not chunk.last:
            # Move it to the end of the line, so that a short prompt does not wait for all of a long
            # one.
            self._enter(chunk.key, session, State.PREFILLING)
        else:
            self._enter(chunk.key, session, State.RESTING if session.rests else State.DECODING)

    def decoding(self) -> list[Key]:
        """The generations that compute their next token now; few, in turn, to fill a gap."""
        keys = self._whose_turn(State.DECODING)
        if not self._filling:
            return keys
        for key in keys[:FEW]:
            self._in[State.DECODING].move_to_end(key)
        return keys[:FEW]

    def stepping(self) -> list[Key]:
        """The pipelines' sessions that compute one position now."""
        return self._whose_turn(State.STEPPING)

    def rest(self, key: Key, now: float = 0.0) -> None:
        """Let a pipeline's session rest: it has computed its step, or its caller has left."""
        for state in (State.STEPPING, State.PREFILLING):
            if key in self._in[state]:
                self._in[state][key].since = now
                self._enter(key, self._in[state][key], State.RESTING)

    def leave(self, key: Key) -> None:
        """Forget a session in any state; its place and its memory are free at once."""
        for state in (*BATCH, State.WAITING):
            if key in self._in[state]:
                self._enter(key, self._in[state][key], State.ABSENT)

    def _is_settled(self, now: float) -> bool:
        if self.limits is not self._settled_for:
            self._unsettle()
        return not self.queued or now < self._settled_until

    def _unsettle(self) -> None:
        self._settled_until, self._latest_contest = -math.inf, None

    def _contest(self, now: float) -> Contest[Key]:
        # It is asked for a victim and then for who is next, with a hundred sessions or more.
        if (contest := self._latest_contest) is None:
            placed = {key: session for state in BATCH for key, session in self._in[state].items()}
            limits, waiting = self.limits, self._in[State.WAITING]
            absent = self._time.absent(self.requesters(), now)
            contest = Contest(placed, waiting, limits.max_batch, limits.kv_bytes, absent)
            self._latest_contest = contest
        return contest

    def _whose_turn(self, state: State) -> list[Key]:
        sessions = self._in[state].items()
        return [key for key, session in sessions if session.requester not in self._held_back]

    def _session(self, key: Key) -> Batched:
        return next(self._in[state][key] for state in BATCH if key in self._in[state])

    def _placed(self) -> Iterator[Batched]:
        return (session for state in BATCH for session in self._in[state].values())

    def _enter(self, key: Key, session: Batched, state: State) -> None:
        """Move a session to the end of the line of another state, or of its own."""
        old, session.state = session.state, checked(TRANSITIONS, session.state, state)
        if old is not State.ABSENT:
            del self._in[old][key]
        if state is not State.ABSENT:
            self._in[state][key] = session
        session.at_rest = state is State.RESTING
        if not {old, state} <= COMPUTING:
            self._unsettle()
        if session.at_rest or old is State.WAITING:
            self._orders += 1
            session.order = self._orders
