"""The model executor: the one torch thread, and continuous batching (interface 1).

Terms: a *step* is one call into the torch thread: one chunk of one prompt, one token for every
generation that decodes, or one position for every session of a pipeline that was sent one. Between
steps the event loop admits, emits and drops, so that a cancellation takes effect within one step.

Invariants: one step runs at a time; every open generation and session is in the scheduler until it
ends; however the service ends, every open generation, session and call ends with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import trio
from torch import Tensor

from meshnode.config import Config
from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.errors import MeshnodeError, Overloaded, StartupError, Unavailable
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.metering import InferenceMeter
from meshnode.domain.shares import ANYBODY, Requester
from meshnode.domain.units import GIBIBYTE
from meshnode.model.config import DecoderConfig
from meshnode.model.engine import Engine
from meshnode.model.loading import LoadedModel
from meshnode.services.admission import Admission, GenerationMeter, Starvation
from meshnode.services.executor.generation_steps import GenerationSteps
from meshnode.services.executor.sessions import ForwardJob, SessionEvicted, ShardSession
from meshnode.services.executor.shard_steps import ShardSteps
from meshnode.services.executor.torch_thread import TorchThread
from meshnode.services.generation import Generation

log = logging.getLogger(__name__)

SHORTEST_CONTEXT = 2
"""Tokens: one of the prompt, and one to generate."""
LOOK_EVERY_S = 0.5
"""How often the waiting are looked at, which adds to the longest wait."""
STALLED_S = 30.0
"""A call into the torch thread that takes longer serves nobody; calls take milliseconds."""
FAILING_FOR_S = 30.0
"""A failed step counts for this long: a node that is sent no work cannot prove that it works."""

Result = TypeVar("Result")


def engine_limits(config: Config, weight_bytes: int) -> EngineLimits:
    """The limits that the configuration sets. The cache gets the memory that the weights leave.

    ``weight_bytes`` counts all copies of the weights. Raises StartupError if they leave no memory.
    """
    memory = int(config.resources.max_memory_gb * GIBIBYTE)
    if weight_bytes >= memory:
        raise StartupError(
            f"resources.max_memory_gb is {config.resources.max_memory_gb:g}, "
            f"the weights alone take {weight_bytes / GIBIBYTE:.2f} GiB"
        )
    return EngineLimits(
        max_batch=config.limits.max_batch,
        max_queue=config.limits.max_queue,
        kv_bytes=memory - weight_bytes,
    )


async def serve_executor(
    model: LoadedModel, limits: EngineLimits, *, task_status: trio.TaskStatus[Executor]
) -> None:
    """Serve generations from ``model`` until cancelled; starts with the :class:`Executor`.

    A step that has begun is finished first. Generations still open then end with Unavailable.
    Raises StartupError if ``limits`` leave no room for a generation of ``SHORTEST_CONTEXT``.
    """
    compute = TorchThread()
    engine = await compute(lambda: Engine(model.decoder, limits.max_batch))
    if not engine.batches:
        log.warning("batches round differently on this machine: computing row by row")
    if not engine.replays:
        log.warning("a replay rounds differently on this machine: replaying step by step")
    executor = Executor(model, engine, limits, compute)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.watch_queue)
            task_status.started(executor)
            while True:
                await executor.step()
    finally:
        executor.close()


class Executor:
    """Handle of the service: opens generations and sessions, and reports how busy it is."""

    def __init__(
        self, model: LoadedModel, engine: Engine, limits: EngineLimits, thread: TorchThread
    ) -> None:
        # The cache must have room for the longest generation, which would otherwise wait for ever.
        room = limits.kv_bytes // engine.kv_bytes(1)
        if room < SHORTEST_CONTEXT:
            raise StartupError(f"{limits.kv_bytes} bytes are too few for a generation's cache")
        self.card = replace(model.card, context_length=min(model.card.context_length, room))
        self.limits = limits
        """The limits that it was started with."""
        self.meter = InferenceMeter()
        self._queue_full = (meter := GenerationMeter(self.meter, limits.max_batch)).queue_full
        self._model = model
        self._engine = engine
        self._thread = thread
        self._scheduler: Scheduler[Generation | ShardSession] = Scheduler(limits)
        self._shards = ShardSteps(
            engine,
            self._scheduler,
            num_layers=self.card.num_layers,
            context_length=self.card.context_length,
            queue_full=meter.queue_full,
            make_room=self._make_room,
            changed=self._changed,
        )
        self._generations = GenerationSteps(
            engine,
            self._scheduler,
            model=model,
            meter=meter,
            validate_open=self._refuse_if_closed,
            make_room=self._make_room,
            changed=self._changed,
        )
        self._admission = Admission(model, self.card.context_length, self._generations, meter)
        self._work = trio.Event()
        self._idle = trio.Event()
        self._failed_at = -math.inf
        self._step_begun = math.inf
        self.starvation = Starvation()
        """Whether requests wait in vain; kept by the pipeline too, if there is one."""
        self._closed = False
        self.steps = 0
        """Calls into the torch thread since the start."""

    @property
    def config(self) -> DecoderConfig:
        """The shape of the model whose layers are held here."""
        return self._model.decoder.config

    @property
    def active(self) -> int:
        """How many generations and sessions are open, queued ones included."""
        return self._scheduler.queued + self._scheduler.computing

    @property
    def queued(self) -> int:
        """How many of them wait for a place in the batch."""
        return self._scheduler.queued

    @property
    def kv_bytes_in_use(self) -> int:
        """Memory reserved for keys and values."""
        return self._scheduler.kv_bytes_in_use

    @property
    def kv_bytes_limit(self) -> int:
        """The most memory that may be reserved for keys and values."""
        return self._scheduler.limits.kv_bytes

    @property
    def spare_bytes(self) -> int:
        """The most that :meth:`reserve` may take: the cache keeps room for the longest request."""
        return self.limits.kv_bytes - self._engine.kv_bytes(self.card.context_length)

    def reserve(self, nbytes: int) -> None:
        """Take memory from the cache for something else; 0 gives it back.

        Sessions that compute keep what they have, so it takes effect as they end.
        """
        left = max(self.limits.kv_bytes - nbytes, self.limits.kv_bytes - self.spare_bytes)
        self._scheduler.limits = replace(self._scheduler.limits, kv_bytes=left)
        self._changed()

    @property
    def prefill_chunk(self) -> int:
        """The most positions computed in one step. Equal chunks give equal bits."""
        return self._scheduler.limits.prefill_chunk

    def kv_bytes(self, positions: int, num_layers: int) -> int:
        """Memory for the keys and values of ``positions`` in ``num_layers`` layers."""
        return self._engine.kv_bytes(positions, num_layers)

    @property
    def gpu_memory_used(self) -> int:
        """Bytes; 0, since the engine computes on the CPU (decision 0011)."""
        return 0

    @property
    def gpu_memory_total(self) -> int:
        """Bytes; 0, since the engine computes on the CPU (decision 0011)."""
        return 0

    def device_check(self) -> str:
        """``absent``, since there is no accelerator, or why nobody is served.

        ``failing`` after a step failed as a whole or the executor was closed, ``stalled`` while a
        step takes too long, and ``overloaded`` after a request waited in vain for a place while
        nobody got one.
        """
        now = trio.current_time()
        if self._closed or now - self._failed_at < FAILING_FOR_S:
            return "failing"
        if now - self._step_begun > STALLED_S:
            return "stalled"
        return "overloaded" if self.starvation.lasts(now) else "absent"

    async def open(self, request: GenerationRequest) -> Generation:
        """Tokenise the prompt and take the request into the queue (``Admission.open``).

        Raises LayersUnavailable if this node holds only a part of the model.
        """
        return await self._admission.open(request)

    async def open_session(
        self, layers: range, positions: int, requester: Requester = ANYBODY
    ) -> ShardSession:
        """Reserve memory for ``positions`` of a pipeline's session in some of the held layers.

        Waits in the queue like a generation. Raises RateLimited when the queue is full, Overloaded
        when no place became free in time, LayerNotHeld for layers that are not here,
        InvalidRequest for more positions than the context has, Unavailable when stopped.
        """
        self._refuse_if_closed()
        return await self._shards.open(layers, positions, requester)

    async def forward(
        self, session: ShardSession, inputs: Tensor, *, decode_from: int | None = None
    ) -> ForwardJob:
        """Continue a session with ``inputs``, in one batch with other sessions. Returns the job.

        ``inputs`` are int64 token ids ``[1, seq]`` for layers that begin with the model's first,
        else float32 ``[1, seq, hidden]``. Positions from ``decode_from`` on (absolute) get the bits
        that one call for each would have given them, as a replay requires. Memory beyond what was
        reserved is taken as needed. Calls for one session wait for one another.

        Raises InvalidRequest for inputs that do not fit, RateLimited when there is no memory left,
        SessionEvicted when a peer's session has lost its place, ComputationFailed, and Unavailable
        when the session or the executor has ended. After any other failure, and after a
        cancellation, the session is as long as before.
        """
        self._refuse_if_closed()
        return await self._shards.forward(session, inputs, decode_from)

    async def compute(self, function: Callable[[], Result]) -> Result:
        """Run a blocking function in the torch thread, between two steps."""
        return await self._thread(function)

    async def wait_idle(self) -> None:
        """Wait until no generation and no session is open."""
        while self.active:
            await self._idle.wait()

    # The service calls the methods below.

    async def step(self) -> None:
        """Wait for work; then compute a chunk of one prompt, and one position for the others."""
        self._admit()
        while self._scheduler.idle:
            self._work = trio.Event()
            await self._work.wait()
            self._admit()
        self._scheduler.turn()
        self._step_begun = trio.current_time()
        chunk = self._scheduler.next_chunk()
        if chunk is not None:
            if isinstance(chunk.key, ShardSession):
                await self._shards.extend(chunk.key, chunk, self._thread)
                self._after_steps(1, failed=self._shards.failed)
            else:
                await self._generations.extend(chunk.key, chunk, self._thread)
                self._after_steps(1, failed=self._generations.failed)
        steps = await self._generations.step(self._thread)
        self._after_steps(steps, failed=self._generations.failed)
        steps = await self._shards.step(self._thread)
        self._after_steps(steps, failed=self._shards.failed)
        self._step_begun = math.inf

    def close(self) -> None:
        """Refuse new generations and sessions, and end the open ones with Unavailable."""
        self._closed = True
        for key in self._scheduler.sessions():
            stopped = Unavailable("the model executor has stopped")
            if isinstance(key, ShardSession):
                self._shards.stop(key, stopped)
            else:
                self._generations.stop(key, stopped)

    async def watch_queue(self) -> None:
        """Refuse what has waited for a place for as long as any request may; never returns."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            now = trio.current_time()
            for key in self._scheduler.overdue(now):
                self.starvation.timed_out(self.limits.max_wait_s, now)
                self._refuse(key, Overloaded("no place became free in time"))

    def _admit(self) -> None:
        """Move generations and sessions into the batch, and out of it for those that come first."""
        while True:
            now = trio.current_time()
            victim = self._scheduler.victim(now)
            if isinstance(victim, ShardSession):
                log.info("a peer's session has to make room: %r", victim)
                self._shards.fail(victim, SessionEvicted())
            elif victim is not None:
                self._generations.suspend(victim)
            elif admitted := self._scheduler.admit(now):
                for key in admitted:
                    if isinstance(key, ShardSession):
                        self._shards.admit(key)
                    else:
                        self._generations.admit(key)
                        self.starvation.placed(now)
            else:
                return

    def _make_room(self, requester: Requester) -> None:
        """Let somebody else leave a full queue, if this requester comes before them."""
        refused = self._scheduler.refused_for(requester)
        if refused is not None:
            self._refuse(refused, self._queue_full())

    def _refuse(self, key: Generation | ShardSession, failure: MeshnodeError) -> None:
        """End one that waits for a place."""
        if isinstance(key, ShardSession):
            self._shards.fail(key, failure)
        else:
            self._generations.refuse(key, failure)

    def _after_steps(self, steps: int, *, failed: bool | None) -> None:
        """Count steps, and note what they say about the health of the node."""
        self.steps += steps
        self._step_begun = trio.current_time()
        if steps and failed is not None:
            self._failed_at = trio.current_time() if failed else -math.inf

    def _changed(self) -> None:
        """Wake all tasks that wait for work, for room, or for the executor to be idle."""
        self._work.set()
        if not self.active:
            self._idle.set()
            self._idle = trio.Event()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Unavailable("the model executor has stopped")
