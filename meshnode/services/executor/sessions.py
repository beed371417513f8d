"""A session of a pipeline in the executor: a range of layers, a cache, one job at a time.

Terms: a *job* is one call of ``Executor.forward``: some positions that continue the session, or
replay a part of it. It is *abandoned* when its caller is cancelled while the torch thread computes.

A forward message goes through five carriers: its bytes (``shards.messages.ForwardCall``), their
tensors (``ForwardInputs``), the job here, the scheduler's ``Chunk`` of the job's positions, and the
bytes of the answer (``ForwardAnswer``).

Invariants: a session has at most one job; a job that ends without an answer leaves the session as
long as it was before, so that the call can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import trio
from torch import Tensor

from meshnode.domain.convoys import ConvoyName
from meshnode.domain.errors import MeshnodeError, RateLimited
from meshnode.domain.shares import Requester
from meshnode.model.engine import Shard


class SessionEvicted(RateLimited):
    """The session had to give its place and memory to somebody else (decision 0132)."""

    def __init__(self) -> None:
        super().__init__(1, "the session's place was needed for others")


@dataclass(slots=True, eq=False)
class ForwardJob:
    """One call of ``Executor.forward``: its inputs, and their outputs once it has finished."""

    inputs: Tensor = field(repr=False)
    start: int
    """Position of the first input."""
    decode_from: int
    is_logits: bool
    """Whether the layers end with the model's last, so that logits come out."""
    queued_at: float
    rows: int = 1
    """From how many of the last positions logits come out."""
    convoy: ConvoyName | None = None
    """The convoy that it belongs to, if it is one position of several sessions'."""
    finished: trio.Event = field(default_factory=trio.Event)
    abandoned: bool = False
    failure: MeshnodeError | None = None
    compute_s: float = 0.0
    ended_at: float = 0.0
    parts: list[Tensor] = field(default_factory=list, repr=False)

    @property
    def stop(self) -> int:
        """Position after the last input."""
        return self.start + self.inputs.shape[1]

    @property
    def compute_ms(self) -> float:
        """Time in the torch thread."""
        return self.compute_s * 1e3

    @property
    def queue_ms(self) -> float:
        """Time spent waiting for the torch thread, between chunks too."""
        return max(0.0, (self.ended_at - self.queued_at) * 1e3 - self.compute_ms)

    @property
    def states(self) -> Tensor:
        """float32 ``[1, seq, hidden]``, or logits ``[1, rows, vocab]`` of the last positions."""
        return self.parts[0]

    def slice(self, start: int, stop: int) -> Tensor:
        """Inputs of the positions ``start`` to ``stop``."""
        return self.inputs[:, start - self.start : stop - self.start]

    def rows_within(self, start: int, stop: int) -> int:
        """From how many of the positions ``start`` to ``stop`` logits are wanted."""
        return max(0, stop - max(start, self.stop - self.rows))

    def take(self, states: Tensor) -> None:
        """Keep a chunk's outputs."""
        self.parts.append(states)

    def join(self) -> None:
        """Make one tensor of the chunks' states. Raises the failure of a job that failed."""
        if self.failure is not None:
            raise self.failure
        if len(self.parts) > 1:
            self.parts = [torch.cat(self.parts, dim=1)]


class ShardSession:
    """Handle of a session. ``Executor.forward`` continues it; ``close`` frees its memory."""

    def __init__(
        self,
        layers: range,
        capacity: int,
        requester: Requester,
        *,
        leave: Callable[[ShardSession], None],
    ) -> None:
        """``leave`` is called, once, when the session is closed."""
        self.layers = layers
        self.requester = requester
        self.capacity = capacity
        """Positions that memory is reserved for."""
        self.model_hash = ""
        """Of the model whose weights it computes with."""
        self.limit: int | None = None
        """Positions beyond which no memory is reserved ahead of need; None for no limit."""
        self.closed = False
        self.shard: Shard | None = None
        self.job: ForwardJob | None = None
        self.failure: MeshnodeError | None = None
        """Why the session ended, if its holder did not close it."""
        self.admitted = trio.Event()
        self._leave = leave

    def __repr__(self) -> str:
        """Layers, state and positions; no states and no tokens."""
        layers = f"layers {self.layers.start}-{self.layers.stop - 1}"
        positions = f"{self.length} of {self.capacity} positions"
        return f"<session of {layers}, {self._state()}, {positions}>"

    def _state(self) -> str:
        if self.closed:
            return "closed" if self.failure is None else "failed"
        if self.job is not None:
            return "computing"
        return "resting" if self.shard is not None else "waiting"

    @property
    def length(self) -> int:
        """Positions computed so far; during a job, those computed before it."""
        if self.job is not None:
            return self.job.start
        return 0 if self.shard is None else self.shard.cache.length

    def rewind(self, length: int) -> None:
        """Forget all positions from ``length`` on.

        Raises ValueError beyond the end, or while a call is computed whose caller still waits.
        """
        busy = self.job is not None and not self.job.abandoned
        if busy or not 0 <= length <= self.length:
            raise ValueError(f"cannot rewind {self.length} positions to {length} now")
        if self.job is None:
            self.cut(length)
        else:
            # The torch thread still uses the cache: it is cut when the step is over.
            self.job.start = length

    def reserve(self, capacity: int) -> None:
        """Note that memory is reserved for ``capacity`` positions; the next step allocates it."""
        self.capacity = capacity
        if self.shard is not None:
            self.shard.capacity = capacity

    def restore(self, past: Tensor) -> None:
        """Start the session after positions whose keys and values are given.

        ``past`` is float32 ``[layers, 2, kv_heads, positions, head_dim]``, within the capacity.
        Raises ValueError unless the session is new.
        """
        if self.shard is None or self.job is not None or self.length:
            raise ValueError("only a new session can be restored")
        positions = past.shape[3]
        self.shard.cache.storage[:, :, :, :positions] = past
        self.shard.cache.length = positions

    def keys_and_values(self) -> Tensor:
        """A copy of what ``restore`` takes. Raises ValueError during a job."""
        if self.shard is None or self.job is not None:
            raise ValueError("the session has no keys and values now")
        return self.shard.cache.storage[:, :, :, : self.length].clone()

    def close(self) -> None:
        """Free place and memory, at once or after the step in progress. May be repeated."""
        if not self.closed:
            self.closed = True
            self._leave(self)

    # Only the executor uses the methods below.

    def work(self) -> tuple[Shard, ForwardJob]:
        """The shard and the job, for a step. The session must be admitted and have a job."""
        if self.shard is None or self.job is None:
            raise RuntimeError("a session without work is in a step")
        return self.shard, self.job

    def cut(self, length: int) -> None:
        """Shorten the cache to ``length``, whether or not there is a job."""
        if self.shard is not None:
            self.shard.cache.length = length

    def end_job(self, now: float, failure: MeshnodeError | None = None) -> None:
        """End the job: with its answer, with a failure, or because it was abandoned."""
        job, self.job = self.job, None
        if job is not None:
            if failure is not None or job.abandoned:
                self.cut(job.start)
            job.failure, job.ended_at = failure, now
            job.finished.set()
