"""The executor's work for sessions of pipelines: admission, chunks, and shared steps.

Terms: sessions that run the same layers and have one position each to compute form a *group*, and a
group is one call into the torch thread, whichever peers its sessions belong to. Different *convoys*
of one driver (decision 0213) are in different groups: while the second is computed, the first is on
its way to the next stage.

Invariants: a session is in the scheduler from ``open`` until it is closed; a job that is abandoned
or fails leaves its session as it was; a session's input never makes another session fail.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

import trio
from torch import Tensor

from meshnode.domain.batching import Scheduler
from meshnode.domain.chunks import Chunk
from meshnode.domain.convoys import ConvoyName
from meshnode.domain.errors import (
    InvalidRequest,
    MeshnodeError,
    RateLimited,
    Unavailable,
)
from meshnode.domain.shares import Requester
from meshnode.model.engine import ComputationError, ShardOutcome
from meshnode.model.failures import is_out_of_memory, reported
from meshnode.services.executor.sessions import ForwardJob, ShardSession
from meshnode.services.executor.torch_thread import TorchThread
from meshnode.services.executor.versions import ServedVersion, Versions
from meshnode.services.generation import Generation

if TYPE_CHECKING:
    from meshnode.model.engine import Engine

log = logging.getLogger(__name__)

CLOSED = "the session is closed"


class ShardSteps:
    """Sessions of pipelines, beside the generations in the same scheduler."""

    def __init__(
        self,
        versions: Versions,
        scheduler: Scheduler[Generation | ShardSession],
        *,
        num_layers: int,
        context_length: int,
        queue_full: Callable[[], RateLimited],
        make_room: Callable[[Requester], None],
        changed: Callable[[], None],
    ) -> None:
        """``changed`` is called when there may be work, or room for sessions that wait.

        ``make_room`` lets somebody else leave a full queue if this requester comes first.
        """
        self._versions = versions
        self._scheduler = scheduler
        self._version_of: dict[ShardSession, ServedVersion] = {}
        """What each session in the scheduler computes with."""
        self._num_layers = num_layers
        self._context = context_length
        self._queue_full = queue_full
        self._make_room = make_room
        self._changed = changed
        self._in_step: frozenset[ShardSession] = frozenset()
        self._looks, self._looked = 0, trio.Event()
        self.failed: bool | None = None
        """Whether the latest step failed for a reason other than its inputs; None before a step."""

    async def open(
        self,
        layers: range,
        positions: int,
        requester: Requester,
        model_hash: str,
        wait_s: float = math.inf,
        *,
        bound: bool = False,
    ) -> ShardSession:
        """Open a session; see ``Executor.open_session``."""
        version = self._versions.find(model_hash)
        version.engine.validate_layers(layers)
        if not 0 < positions <= self._context:
            raise InvalidRequest(None, f"a session has 1 to {self._context} positions")
        session = ShardSession(layers, positions, requester, leave=self._leave)
        session.model_hash = version.model_hash
        self._version_of[session] = version
        kv_bytes = self._kv_bytes(session, positions)
        self._make_room(requester)
        now = trio.current_time()
        if not self._scheduler.submit_resting(session, kv_bytes, requester, now, bound=bound):
            del self._version_of[session]
            raise self._queue_full()
        self._versions.retain(version)
        self._changed()
        opened = False
        looks = self._looks
        try:
            with trio.move_on_after(wait_s):
                await session.admitted.wait()
            # A place is missing only once somebody has looked for one: not during a long step.
            while not session.admitted.is_set() and self._looks == looks:
                await self._looked.wait()
            if not session.admitted.is_set():
                raise RateLimited(1, "no memory for the session")
            if session.failure is not None:
                raise session.failure
            opened = True
            return session
        finally:
            if not opened:
                session.close()

    def looked(self) -> None:
        """The executor has looked whose turn it is to have a place."""
        self._looks += 1
        self._looked.set()
        self._looked = trio.Event()

    async def forward(
        self,
        session: ShardSession,
        inputs: Tensor,
        decode_from: int | None,
        rows: int,
        convoy: ConvoyName | None = None,
    ) -> ForwardJob:
        """Continue a session; see ``Executor.forward``."""
        queued_at = trio.current_time()
        self._engine(session).validate_inputs(session.layers, inputs)
        await trio.lowlevel.checkpoint_if_cancelled()
        while session.job is not None:
            # The job of a cancelled call, whose step is not over yet.
            await session.job.finished.wait()
        self._reserve(session, session.length + inputs.shape[1])
        start = session.length
        stepwise_from = start + inputs.shape[1] if decode_from is None else decode_from
        job = session.job = ForwardJob(
            inputs, start, stepwise_from, self._is_last(session), queued_at, rows, convoy
        )
        self._scheduler.begin(session, start, job.stop, break_at=stepwise_from)
        self._changed()
        answered = False
        try:
            await job.finished.wait()
            answered = True
        finally:
            if not answered:
                self._abandon(session, job)
        job.join()
        return job

    def _reserve(self, session: ShardSession, stop: int) -> None:
        """Reserve memory for positions up to ``stop``, or raise and leave the session as it was."""
        if session.closed:
            raise session.failure or Unavailable(CLOSED)
        if stop > self._context:
            raise InvalidRequest("position_ids", f"the context holds {self._context} positions")
        if stop <= session.capacity:
            return
        most = self._context if session.limit is None else min(session.limit, self._context)
        for capacity in (max(stop, min(2 * session.capacity, most)), stop):
            if self._scheduler.resize(session, self._kv_bytes(session, capacity)):
                session.reserve(capacity)
                return
        raise self._queue_full()

    def _abandon(self, session: ShardSession, job: ForwardJob) -> None:
        """The caller was cancelled."""
        if session.job is not job:
            # The answer came at the same moment and was not delivered: undo it.
            if session.job is None and not session.closed and session.length == job.stop:
                session.cut(job.start)
            return
        job.abandoned = True
        if session not in self._in_step:
            self._scheduler.rest(session, trio.current_time())
            session.end_job(trio.current_time())

    # The service calls the methods below.

    def admit(self, session: ShardSession) -> None:
        """Allocate the cache of a session that was given a place in the batch."""
        try:
            engine = self._version_of[session].engine
            session.shard = engine.shard(session.layers, session.capacity)
        except ComputationError as error:
            log.error("no room for the cache of a pipeline's session: %r", error)
            self.fail(session, reported(error))
        session.admitted.set()

    async def extend(
        self, session: ShardSession, chunk: Chunk[Generation | ShardSession], compute: TorchThread
    ) -> None:
        """Compute one chunk of one session, which is the chunk's key."""
        shard, job = session.work()
        inputs, stepwise = job.slice(chunk.start, chunk.stop), chunk.start >= job.decode_from
        engine = self._version_of[session].engine
        rows = job.rows_within(chunk.start, chunk.stop)
        run = partial(engine.extend, shard, inputs, stepwise=stepwise, rows=rows)
        self._in_step = frozenset([session])
        begun = trio.current_time()
        outcome = await compute(run)
        now = trio.current_time()
        self._scheduler.prefilled(chunk, now)
        self._scheduler.spend([session.requester], now - begun)
        self._after(session, outcome, now - begun, last=chunk.last)
        self._in_step = frozenset()

    async def step(self, compute: TorchThread) -> int:
        """Compute one position for every session that was sent one; returns how many groups."""
        # Those that are sent one meanwhile wait for the next turn, so that others get theirs.
        waiting = set(self._scheduler.stepping())
        groups = 0
        while group := self._next_group(waiting):
            await self._step(group, compute)
            waiting.difference_update(group)
            groups += 1
        return groups

    def _next_group(self, waiting: Collection[Generation | ShardSession]) -> list[ShardSession]:
        """The group of the session that has waited longest, of those ``waiting``."""
        group: list[ShardSession] = []
        first: dict[str, ConvoyName] = {}
        for session in self._scheduler.stepping():
            if not isinstance(session, ShardSession) or session not in waiting:
                continue
            _, job = session.work()
            convoy = job.convoy
            if convoy is not None and first.setdefault(convoy.origin, convoy) != convoy:
                continue
            if not group or self._kind(session) == self._kind(group[0]):
                group.append(session)
        return group

    def _kind(self, session: ShardSession) -> tuple[int, range]:
        return id(self._version_of[session]), session.layers

    async def _step(self, group: list[ShardSession], compute: TorchThread) -> None:
        shards, jobs = zip(*(session.work() for session in group), strict=True)
        self._in_step = frozenset(group)
        begun = trio.current_time()
        engine = self._version_of[group[0]].engine
        outcomes = await compute(partial(engine.step, shards, [job.inputs for job in jobs]))
        elapsed = trio.current_time() - begun
        self._scheduler.spend([session.requester for session in group], elapsed)
        for session, outcome in zip(group, outcomes, strict=True):
            self._after(session, outcome, elapsed, last=True)
        self._in_step = frozenset()

    def _after(
        self, session: ShardSession, outcome: ShardOutcome, elapsed: float, *, last: bool
    ) -> None:
        """Keep what a step computed; end the job that is complete, failed, or abandoned."""
        now = trio.current_time()
        job = session.job
        if job is None:
            return
        if session.closed:
            session.end_job(now, session.failure or Unavailable(CLOSED))
            self._free(session)
            return
        failure = None
        if isinstance(outcome, Exception):
            failure = reported(outcome)
            # Numbers out of range come from the sender, and do not mean that this node is failing.
            self.failed = not (isinstance(outcome, ArithmeticError) or is_out_of_memory(outcome))
            level = logging.ERROR if self.failed else logging.INFO
            log.log(level, "session of a pipeline, layers %s: %r", session.layers, outcome)
        else:
            self.failed = False
            job.compute_s += elapsed
            job.take(outcome)
        if last or failure is not None or job.abandoned:
            self._scheduler.rest(session, now)
            session.end_job(now, failure)

    def stop(self, session: ShardSession, failure: Unavailable) -> None:
        """End a session because the service ends, once nothing is in the torch thread."""
        self._in_step = frozenset()
        if session.closed:
            # It was closed during a step that was never completed.
            self._leave(session)
        else:
            self.fail(session, failure)

    def fail(self, session: ShardSession, failure: MeshnodeError) -> None:
        """End a session that its user has not closed, whether or not it has a place."""
        if session.failure is None and not session.closed:
            session.failure = failure
            session.closed = True
            self._leave(session)
            session.admitted.set()

    def _leave(self, session: ShardSession) -> None:
        """Free the session; if the torch thread is using it, that happens after the step."""
        if session in self._in_step:
            return
        session.end_job(trio.current_time(), session.failure or Unavailable(CLOSED))
        self._free(session)

    def _free(self, session: ShardSession) -> None:
        session.shard = None
        self._scheduler.leave(session)
        version = self._version_of.pop(session, None)
        if version is not None:
            self._versions.release(version)
        self._changed()

    def _engine(self, session: ShardSession) -> Engine:
        """The engine of a session, also of one that has ended."""
        return self._version_of.get(session, self._versions.current).engine

    def _kv_bytes(self, session: ShardSession, positions: int) -> int:
        return self._engine(session).kv_bytes(positions, len(session.layers))

    def _is_last(self, session: ShardSession) -> bool:
        return session.layers.stop == self._num_layers
