"""Who computes next: continuous batching as a pure state machine (document, section 1).

Terms: a *session* is one generation in the engine, or one session of a pipeline, which computes
only when a message for it arrives and *rests* between two. The *queue* holds sessions that wait for
a place; the *batch* holds those that have one. *Prefill* computes a prompt, a *chunk* of positions
at a time; *decoding* computes one token for every generation at once, *stepping* one position for
every session of a pipeline that has been sent one.

=============  ==========================================  =======================
state          moved by                                    next state
=============  ==========================================  =======================
(none)         ``submit``, unless the queue is full        waiting
waiting        ``admit``, when a place and KV bytes free   prefilling, or resting
resting        ``begin``, for several positions            prefilling
resting        ``begin``, for one position                 stepping
prefilling     ``prefilled``, with the last position       decoding, or resting
stepping       ``rest``                                    resting
prefilling     ``rest``, of a pipeline's session           resting
any            ``leave``                                   (none)
=============  ==========================================  =======================

Invariants: at most ``max_batch`` sessions have a place, and ``max_queue`` wait beyond those that a
free place awaits; the KV bytes of the batch never exceed ``kv_bytes`` and are zero when it is
empty; sessions are admitted in the order of arrival, and prompts take turns, so that nobody
starves; a chunk's bounds depend on the positions of its own session alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What the engine may use at once."""

    max_batch: int = 16
    """Sessions that have a place."""
    max_queue: int = 64
    """Sessions that wait for a place. The next one is told to come back later."""
    kv_bytes: int = 1 << 30
    """Memory for keys and values of the sessions that have a place."""
    prefill_chunk: int = 128
    """Prompt positions computed in one step: how long a prompt may hold the others up."""


@dataclass(slots=True)
class _Session:
    kv_bytes: int
    start: int
    """Next position to compute during prefill."""
    stop: int
    """End of the prompt, or of what was sent."""
    stays: bool
    """Whether the session rests when it has computed: it is a pipeline's."""
    break_at: int = -1
    """A position at which a chunk ends, besides the multiples of the chunk's size."""


@dataclass(frozen=True, slots=True)
class Chunk(Generic[Key]):
    """Positions ``start`` to ``stop`` of a session, ``last`` of those that are known."""

    key: Key
    start: int
    stop: int
    last: bool


class Scheduler(Generic[Key]):
    """The queue and the batch. Keys are the caller's names of its sessions."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self._waiting: OrderedDict[Key, _Session] = OrderedDict()
        self._prefilling: OrderedDict[Key, _Session] = OrderedDict()
        self._decoding: OrderedDict[Key, _Session] = OrderedDict()
        self._stepping: OrderedDict[Key, _Session] = OrderedDict()
        self._resting: OrderedDict[Key, _Session] = OrderedDict()
        self._batch = (self._decoding, self._stepping, self._prefilling, self._resting)

    @property
    def queued(self) -> int:
        """Sessions that wait for a place."""
        return len(self._waiting)

    @property
    def computing(self) -> int:
        """Sessions that have a place, those that rest included."""
        return sum(len(sessions) for sessions in self._batch)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute, once ``admit`` has been called."""
        return not (self._prefilling or self._decoding or self._stepping)

    @property
    def kv_bytes_in_use(self) -> int:
        """KV memory of the batch."""
        return sum(s.kv_bytes for sessions in self._batch for s in sessions.values())

    @property
    def full(self) -> bool:
        """Whether the queue takes nobody in."""
        # A place in the batch that is free now is as good as one in the queue.
        free = self.limits.max_batch - self.computing
        return self.queued >= self.limits.max_queue + free

    def sessions(self) -> list[Key]:
        """All sessions, those that compute first."""
        return [key for sessions in (*self._batch, self._waiting) for key in sessions]

    def submit(self, key: Key, prompt_tokens: int, kv_bytes: int) -> bool:
        """Take a generation into the queue; False when that is full.

        ``kv_bytes`` is all that it may ever need, at most ``limits.kv_bytes``.
        """
        if prompt_tokens < 1:
            raise ValueError("a generation that could never be admitted: it has no prompt")
        return self._submit(key, _Session(kv_bytes, 0, prompt_tokens, stays=False))

    def submit_resting(self, key: Key, kv_bytes: int) -> bool:
        """Take a pipeline's session into the queue; it will rest until ``begin``."""
        return self._submit(key, _Session(kv_bytes, 0, 0, stays=True))

    def _submit(self, key: Key, session: _Session) -> bool:
        if not 0 < session.kv_bytes <= self.limits.kv_bytes:
            raise ValueError("a session that could never be admitted")
        if self.full:
            return False
        self._waiting[key] = session
        return True

    def admit(self) -> list[Key]:
        """Move sessions from the queue into the batch while there is room; returns who moved."""
        admitted = []
        used = self.kv_bytes_in_use
        while self._waiting and self.computing < self.limits.max_batch:
            key, session = next(iter(self._waiting.items()))
            # A small session does not overtake a large one, or the large one might wait for ever.
            if used + session.kv_bytes > self.limits.kv_bytes:
                break
            used += session.kv_bytes
            del self._waiting[key]
            (self._resting if session.stays else self._prefilling)[key] = session
            admitted.append(key)
        return admitted

    def resize(self, key: Key, kv_bytes: int) -> bool:
        """Change the KV memory of a session in the batch; False when there is no room for it."""
        session = next(sessions[key] for sessions in self._batch if key in sessions)
        if self.kv_bytes_in_use - session.kv_bytes + kv_bytes > self.limits.kv_bytes:
            return False
        session.kv_bytes = kv_bytes
        return True

    def begin(self, key: Key, start: int, stop: int, break_at: int = -1) -> None:
        """Let a resting session compute its positions ``start`` to ``stop``."""
        session = self._resting.pop(key)
        session.start, session.stop, session.break_at = start, stop, break_at
        (self._stepping if stop - start == 1 else self._prefilling)[key] = session

    def next_chunk(self) -> Chunk[Key] | None:
        """The chunk to compute next: of the session that has waited longest for its turn."""
        if not self._prefilling:
            return None
        key, session = next(iter(self._prefilling.items()))
        size = self.limits.prefill_chunk
        # On multiples of the size, however the positions were sent: so they round alike.
        stop = min((session.start // size + 1) * size, session.stop)
        if session.start < session.break_at < stop:
            stop = session.break_at
        return Chunk(key, session.start, stop, last=stop == session.stop)

    def prefilled(self, chunk: Chunk[Key]) -> None:
        """Note that a chunk has been computed. A session that left meanwhile is passed over."""
        if chunk.key not in self._prefilling:
            return
        session = self._prefilling.pop(chunk.key)
        session.start = chunk.stop
        then = self._resting if session.stays else self._decoding
        # Back in line: a short prompt does not wait for all of a long one.
        (then if chunk.last else self._prefilling)[chunk.key] = session

    def decoding(self) -> list[Key]:
        """The generations that compute their next token now."""
        return list(self._decoding)

    def stepping(self) -> list[Key]:
        """The pipelines' sessions that compute one position now."""
        return list(self._stepping)

    def rest(self, key: Key) -> None:
        """A pipeline's session has computed its step, or is to compute nothing more for now."""
        for sessions in (self._stepping, self._prefilling):
            if key in sessions:
                self._resting[key] = sessions.pop(key)

    def leave(self, key: Key) -> None:
        """Forget a session in any state; its place and its memory are free at once."""
        for sessions in (*self._batch, self._waiting):
            sessions.pop(key, None)
