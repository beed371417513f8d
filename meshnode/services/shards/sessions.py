"""A session of a pipeline in the executor: a range of layers, a cache, one job at a time.

Terms: a *job* is one call of ``Executor.forward``: some positions that continue the session, or
replay a part of it. It is *abandoned* when its caller is cancelled while the torch thread computes.

Invariants: a session has at most one job; a job that ends without an answer leaves the session as
long as it was before, so that it can be repeated; only the executor touches what is marked as its
side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import trio
from torch import Tensor

from meshnode.domain.errors import MeshnodeError
from meshnode.model.engine import Shard


@dataclass(frozen=True, slots=True)
class ShardOutput:
    """What a job computed, and how long it took."""

    states: Tensor
    """float32 ``[1, seq, hidden]``, or logits ``[1, 1, vocab]`` of the last position."""
    is_logits: bool
    queue_ms: float
    """Waiting for the torch thread, between chunks too."""
    compute_ms: float


@dataclass(slots=True, eq=False)
class Job:
    """One call of ``forward``. Belongs to the executor."""

    inputs: Tensor
    start: int
    """Position of the first input."""
    decode_from: int
    queued_at: float
    finished: trio.Event = field(default_factory=trio.Event)
    abandoned: bool = False
    failure: MeshnodeError | None = None
    compute_s: float = 0.0
    ended_at: float = 0.0
    parts: list[Tensor] = field(default_factory=list)

    @property
    def stop(self) -> int:
        """Position after the last input."""
        return self.start + self.inputs.shape[1]

    def slice(self, start: int, stop: int) -> Tensor:
        """Inputs of the positions ``start`` to ``stop``."""
        return self.inputs[:, start - self.start : stop - self.start]

    def take(self, states: Tensor, *, is_logits: bool) -> None:
        """Keep what a chunk computed: of logits only the last are an answer."""
        if is_logits:
            self.parts.clear()
        self.parts.append(states)

    def output(self, *, is_logits: bool) -> ShardOutput:
        """The answer. Raises the failure."""
        if self.failure is not None:
            raise self.failure
        states = self.parts[0] if len(self.parts) == 1 else torch.cat(self.parts, dim=1)
        compute_ms = self.compute_s * 1e3
        total_ms = (self.ended_at - self.queued_at) * 1e3
        return ShardOutput(states, is_logits, max(0.0, total_ms - compute_ms), compute_ms)


class ShardSession:
    """Handle of a session. ``Executor.forward`` continues it; ``close`` frees its memory."""

    def __init__(
        self, layers: range, capacity: int, *, leave: Callable[[ShardSession], None]
    ) -> None:
        """``leave`` is called, once, when the session is closed."""
        self.layers = layers
        self.capacity = capacity
        """Positions that memory is reserved for."""
        self.limit: int | None = None
        """Positions beyond which no memory is reserved in advance."""
        self.closed = False
        self.shard: Shard | None = None
        self.job: Job | None = None
        self.failure: MeshnodeError | None = None
        """Why the session ended, if its holder did not close it."""
        self.admitted = trio.Event()
        self._leave = leave

    @property
    def length(self) -> int:
        """Positions computed so far; during a job, those that were computed before it."""
        if self.job is not None:
            return self.job.start
        return 0 if self.shard is None else self.shard.cache.length

    def rewind(self, length: int) -> None:
        """Forget all positions from ``length`` on.

        Raises ValueError beyond the end, or while a call that somebody waits for is computed.
        """
        busy = self.job is not None and not self.job.abandoned
        if busy or not 0 <= length <= self.length:
            raise ValueError(f"cannot rewind {self.length} positions to {length} now")
        if self.job is None:
            self.cut(length)
        else:
            # The torch thread still uses the cache: it is cut when the step is over.
            self.job.start = length

    def restore(self, past: Tensor) -> None:
        """Begin after positions whose keys and values are known.

        ``past`` is float32 ``[layers, 2, kv_heads, positions, head_dim]``, within the capacity.
        Raises ValueError unless the session is new.
        """
        if self.shard is None or self.job is not None or self.length:
            raise ValueError("only a new session can be restored")
        positions = past.shape[3]
        self.shard.cache.storage[:, :, :, :positions] = past
        self.shard.cache.length = positions

    def keys_and_values(self) -> Tensor:
        """A copy of what ``restore`` takes. Raises ValueError for a session that is not at rest."""
        if self.shard is None or self.job is not None:
            raise ValueError("the session has no keys and values now")
        return self.shard.cache.storage[:, :, :, : self.length].clone()

    def close(self) -> None:
        """Free place and memory, at once or after the step in progress. May be repeated."""
        if not self.closed:
            self.closed = True
            self._leave(self)

    # What follows is the executor's side.

    def work(self) -> tuple[Shard, Job]:
        """What a step needs. Only for a session that has been admitted and has a job."""
        if self.shard is None or self.job is None:
            raise RuntimeError("a session without work is in a step")
        return self.shard, self.job

    def cut(self, length: int) -> None:
        """Rewind, whether or not there is a job."""
        if self.shard is not None:
            self.shard.cache.length = length

    def end_job(self, now: float, failure: MeshnodeError | None = None) -> None:
        """The job has its answer, its failure, or nobody who waits for it."""
        job, self.job = self.job, None
        if job is not None:
            if failure is not None or job.abandoned:
                self.cut(job.start)
            job.failure, job.ended_at = failure, now
            job.finished.set()
