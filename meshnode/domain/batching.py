"""Who computes next: continuous batching as a pure state machine (document, section 1).

Terms: a *session* is one generation in the engine. The *queue* holds sessions that wait for a
place; the *batch* holds those that compute. *Prefill* computes a prompt, a *chunk* of positions at
a time; *decoding* computes one token for every session at once.

=============  ==========================================  =============
state          moved by                                    next state
=============  ==========================================  =============
(none)         ``submit``, unless the queue is full        waiting
waiting        ``admit``, when a place and KV bytes free   prefilling
prefilling     ``prefilled``, with the last of the prompt  decoding
any            ``leave``                                   (none)
=============  ==========================================  =============

Invariants: at most ``max_batch`` sessions compute, and ``max_queue`` wait beyond those that a free
place awaits; the KV bytes of the batch never exceed ``kv_bytes`` and are zero when it is empty;
sessions are admitted in the order of arrival, and prompts take turns, so that nobody starves; a
chunk's bounds depend on its own prompt alone.
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
    """Sessions that compute together."""
    max_queue: int = 64
    """Sessions that wait for a place. The next one is told to come back later."""
    kv_bytes: int = 1 << 30
    """Memory for keys and values of the sessions that compute."""
    prefill_chunk: int = 128
    """Prompt positions computed in one step: how long a prompt may hold the others up."""


@dataclass(slots=True)
class _Session:
    prompt_tokens: int
    kv_bytes: int
    prefilled: int = 0


@dataclass(frozen=True, slots=True)
class Chunk(Generic[Key]):
    """Positions ``start`` to ``stop`` of a prompt. The ``last`` one yields the first token."""

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

    @property
    def queued(self) -> int:
        """Sessions that wait for a place."""
        return len(self._waiting)

    @property
    def computing(self) -> int:
        """Sessions in the batch."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def kv_bytes_in_use(self) -> int:
        """KV memory of the batch."""
        batch = (*self._prefilling.values(), *self._decoding.values())
        return sum(session.kv_bytes for session in batch)

    @property
    def full(self) -> bool:
        """Whether the queue takes nobody in."""
        # A place in the batch that is free now is as good as one in the queue.
        free = self.limits.max_batch - self.computing
        return self.queued >= self.limits.max_queue + free

    def sessions(self) -> list[Key]:
        """All sessions, those that compute first."""
        return [*self._decoding, *self._prefilling, *self._waiting]

    def submit(self, key: Key, prompt_tokens: int, kv_bytes: int) -> bool:
        """Take a session into the queue; False when that is full.

        ``kv_bytes`` is all that the session may ever need, at most ``limits.kv_bytes``.
        """
        if not 0 < kv_bytes <= self.limits.kv_bytes or prompt_tokens < 1:
            raise ValueError("a session that could never be admitted")
        if self.full:
            return False
        self._waiting[key] = _Session(prompt_tokens, kv_bytes)
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
            self._prefilling[key] = self._waiting.pop(key)
            admitted.append(key)
        return admitted

    def next_chunk(self) -> Chunk[Key] | None:
        """The chunk to compute next: of the prompt that has waited longest for its turn."""
        if not self._prefilling:
            return None
        key, session = next(iter(self._prefilling.items()))
        stop = min(session.prefilled + self.limits.prefill_chunk, session.prompt_tokens)
        return Chunk(key, session.prefilled, stop, last=stop == session.prompt_tokens)

    def prefilled(self, chunk: Chunk[Key]) -> None:
        """Note that a chunk has been computed. A session that left meanwhile is passed over."""
        if chunk.key not in self._prefilling:
            return
        session = self._prefilling.pop(chunk.key)
        session.prefilled = chunk.stop
        # Back in line: a short prompt does not wait for all of a long one.
        (self._decoding if chunk.last else self._prefilling)[chunk.key] = session

    def decoding(self) -> list[Key]:
        """The sessions that compute their next token now."""
        return list(self._decoding)

    def leave(self, key: Key) -> None:
        """Forget a session in any state; its place and its memory are free at once."""
        for sessions in (self._waiting, self._prefilling, self._decoding):
            sessions.pop(key, None)
