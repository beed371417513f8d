"""The model executor: the one torch thread, and continuous batching (document, section 1).

Terms: a *step* is one call into the torch thread: one chunk of one prompt, one token for every
generation that decodes, or one position for every session of a pipeline that was sent one. Between
steps the event loop admits, emits and drops, so that a cancellation takes effect within one step.

Invariants: one step runs at a time; every open generation and session is in the scheduler until it
ends; when the service ends, however it ends, nobody is left waiting.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import trio
from torch import Tensor

from meshnode.config import Config
from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.errors import (
    ComputationFailed,
    LayersUnavailable,
    MeshnodeError,
    RateLimited,
    StartupError,
    Unavailable,
)
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.metering import InferenceMeter
from meshnode.model.config import DecoderConfig
from meshnode.model.engine import ComputationError, Engine, Outcome, Session
from meshnode.model.loading import LoadedModel
from meshnode.model.prompts import Prompts
from meshnode.services.generation import Generation
from meshnode.services.shards.sessions import ShardOutput, ShardSession
from meshnode.services.shards.steps import ShardSteps
from meshnode.services.torch_thread import TorchThread

__all__ = [
    "EngineLimits",
    "Executor",
    "Generation",
    "ShardOutput",
    "ShardSession",
    "engine_limits",
    "serve_executor",
]

log = logging.getLogger(__name__)

MOST_TOKENIZING = 2
"""Prompts tokenized at once: the processors are the torch thread's."""
SHORTEST_CONTEXT = 2
"""Tokens: a prompt of one, and one to generate."""
FAILING_FOR_S = 30.0
"""A failure is forgotten after this: a node that is sent no work cannot show that it is well."""
GIBIBYTE = 1 << 30
RECENT = 0.2
"""Weight of the newest generation in the average duration."""

Result = TypeVar("Result")


def engine_limits(config: Config, weight_bytes: int) -> EngineLimits:
    """The limits that the configuration sets. The cache gets the memory that the weights leave.

    ``weight_bytes`` are those of all copies. Raises StartupError if they leave none.
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
    Raises StartupError if ``limits`` leave no room for a single token.
    """
    compute = TorchThread()
    engine = await compute(lambda: Engine(model.decoder, limits.max_batch))
    if not engine.batches:
        log.warning("batches round differently on this machine: computing row by row")
    if not engine.replays:
        log.warning("a replay rounds differently on this machine: replaying step by step")
    executor = Executor(model, engine, limits, compute)
    try:
        task_status.started(executor)
        while True:
            await executor.step()
    finally:
        executor.close()


class Executor:
    """Handle of the service: opens generations and sessions, and tells how busy it is."""

    def __init__(
        self, model: LoadedModel, engine: Engine, limits: EngineLimits, thread: TorchThread
    ) -> None:
        # The cache must hold one full generation, or it might wait for room for ever.
        room = limits.kv_bytes // engine.kv_bytes(1)
        if room < SHORTEST_CONTEXT:
            raise StartupError(f"{limits.kv_bytes} bytes hold the keys and values of no generation")
        self.card = replace(model.card, context_length=min(model.card.context_length, room))
        self.limits = limits
        """As it was started."""
        self.meter = InferenceMeter()
        self._model = model
        self._engine = engine
        self._thread = thread
        self._prompts = Prompts(model, self.card.context_length)
        self._scheduler: Scheduler[Generation | ShardSession] = Scheduler(limits)
        self._shards = ShardSteps(
            engine,
            self._scheduler,
            num_layers=self.card.num_layers,
            context_length=self.card.context_length,
            too_busy=self._too_busy,
            changed=self._changed,
        )
        self._sessions: dict[Generation, Session] = {}
        self._in_step: frozenset[Generation] = frozenset()
        self._work = trio.Event()
        self._idle = trio.Event()
        self._tokenizing = trio.CapacityLimiter(MOST_TOKENIZING)
        self._average_s = 1.0
        self._failed_at = -math.inf
        self._closed = False
        self.steps = 0
        """Calls into the torch thread since the start."""

    @property
    def config(self) -> DecoderConfig:
        """The shape of the model whose layers are held here."""
        return self._model.decoder.config

    @property
    def active(self) -> int:
        """Open generations and sessions of pipelines, queued ones included."""
        return self._scheduler.queued + self._scheduler.computing

    @property
    def queued(self) -> int:
        """Those of them that wait for a place in the batch."""
        return self._scheduler.queued

    @property
    def kv_bytes_in_use(self) -> int:
        """Memory reserved for keys and values."""
        return self._scheduler.kv_bytes_in_use

    @property
    def kv_bytes_limit(self) -> int:
        """The most that may be reserved."""
        return self._scheduler.limits.kv_bytes

    @property
    def prefill_chunk(self) -> int:
        """Positions that are computed in one step at most: the same chunks give the same bits."""
        return self._scheduler.limits.prefill_chunk

    def kv_bytes(self, positions: int, num_layers: int) -> int:
        """What so many positions take in so many layers."""
        return self._engine.kv_bytes(positions, num_layers)

    @property
    def gpu_memory_used(self) -> int:
        """Bytes; 0, since the engine computes on the CPU (decisions/0011)."""
        return 0

    @property
    def gpu_memory_total(self) -> int:
        """Bytes; 0, since the engine computes on the CPU (decisions/0011)."""
        return 0

    def device_check(self) -> str:
        """``absent``: there is no accelerator; ``failing`` after a step failed as a whole."""
        failing = trio.current_time() - self._failed_at < FAILING_FOR_S
        return "failing" if failing or self._closed else "absent"

    async def open(self, request: GenerationRequest) -> Generation:
        """Tokenize the prompt and take the request into the queue.

        Raises InvalidRequest if the prompt does not fit the context, RateLimited when the queue is
        full, LayersUnavailable if this node holds a part of the model, Unavailable when stopped.
        """
        opened_at = trio.current_time()
        self._refuse_if_closed()
        if not self.card.complete:
            raise LayersUnavailable("this node holds only a part of the model's layers")
        # Asked again below: here it spares a busy node the work on a prompt that it cannot take.
        if self._scheduler.full:
            raise self._too_busy()
        prompt = await trio.to_thread.run_sync(
            self._prompts.tokens, request.prompt, limiter=self._tokenizing, abandon_on_cancel=True
        )
        self._refuse_if_closed()
        generation = Generation(
            request,
            id=f"gen-{uuid.uuid4().hex}",
            prompt=prompt,
            most_tokens=min(request.max_tokens, self.card.context_length - len(prompt)),
            opened_at=opened_at,
            leave=self._leave,
        )
        kv_bytes = self._engine.kv_bytes(_positions(generation))
        if not self._scheduler.submit(generation, len(prompt), kv_bytes):
            raise self._too_busy()
        self.meter.admitted(trio.current_time())
        self._work.set()
        return generation

    async def open_session(self, layers: range, positions: int) -> ShardSession:
        """Reserve memory for ``positions`` of a pipeline's session in some of the held layers.

        Waits in the queue like a generation. Raises RateLimited when the queue is full,
        LayerNotHeld for layers that are not here, InvalidRequest for more positions than the
        context has, Unavailable when stopped.
        """
        self._refuse_if_closed()
        return await self._shards.open(layers, positions)

    async def forward(
        self, session: ShardSession, inputs: Tensor, *, decode_from: int | None = None
    ) -> ShardOutput:
        """Continue a session with ``inputs``, in one batch with all others that do.

        ``inputs`` are int64 token ids ``[1, seq]`` for layers that begin with the model's first,
        else float32 ``[1, seq, hidden]``. Positions from ``decode_from`` on (absolute) get the bits
        that one call for each would have given them, which is what a replay needs. Memory beyond
        what was reserved is taken as needed. Calls for one session wait for one another.

        Raises InvalidRequest for inputs that do not fit, RateLimited when there is no memory left,
        ComputationFailed, and Unavailable when the session or the executor has ended. After a
        failure or a cancellation the session is as long as before.
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

    # What follows is the service's side.

    async def step(self) -> None:
        """Wait for work, then compute a chunk of a prompt and one position for all that wait."""
        self._admit()
        while self._scheduler.idle:
            self._work = trio.Event()
            await self._work.wait()
            self._admit()
        chunk = self._scheduler.next_chunk()
        if chunk is not None:
            if isinstance(chunk.key, ShardSession):
                await self._shards.extend(chunk.key, chunk, self._thread)
                self._after_shards(1)
            else:
                session = self._sessions[chunk.key]
                prefill = partial(self._engine.prefill, session, chunk.start, chunk.stop)
                self._in_step = frozenset([chunk.key])
                outcome = await self._thread(prefill)
                self._scheduler.prefilled(chunk)
                self._after_step([chunk.key], [outcome])
        batch = [key for key in self._scheduler.decoding() if isinstance(key, Generation)]
        if batch:
            decode = partial(self._engine.decode, [self._sessions[key] for key in batch])
            self._in_step = frozenset(batch)
            self._after_step(batch, await self._thread(decode))
        self._after_shards(await self._shards.step(self._thread))

    def close(self) -> None:
        """Refuse new generations and sessions, and end the open ones with Unavailable."""
        self._closed = True
        for key in self._scheduler.sessions():
            stopped = Unavailable("the model executor has stopped")
            if isinstance(key, ShardSession):
                self._shards.stop(key, stopped)
                continue
            if not key.ended:
                self._fail(key, stopped)
            self._drop(key)

    def _admit(self) -> None:
        """Move generations and sessions into the batch, while there is room."""
        for key in self._scheduler.admit():
            if isinstance(key, ShardSession):
                self._shards.admit(key)
                continue
            key.admit(trio.current_time())
            try:
                self._sessions[key] = self._engine.session(key.prompt, _positions(key), key.request)
            except ComputationError as error:
                log.error("generation %s: no room for its cache: %r", key.id, error)
                self._fail(key, ComputationFailed())
                self._drop(key)

    def _after_shards(self, steps: int) -> None:
        """Count steps for pipelines, and what they say about the node."""
        self.steps += steps
        if steps and self._shards.failed is not None:
            self._failed_at = trio.current_time() if self._shards.failed else -math.inf

    def _after_step(self, batch: Sequence[Generation], outcomes: Sequence[Outcome | None]) -> None:
        """Emit what a step computed; drop what ended, failed, or was left meanwhile."""
        self.steps += 1
        self._in_step = frozenset()
        failed = all(isinstance(outcome, Exception) for outcome in outcomes)
        self._failed_at = trio.current_time() if failed else -math.inf
        for generation, outcome in zip(batch, outcomes, strict=True):
            if not generation.ended:
                self._take(generation, outcome)
            if generation.ended:
                self._drop(generation)

    def _take(self, generation: Generation, outcome: Outcome | None) -> None:
        """Hand one outcome to its generation; None is a prompt that has more chunks."""
        if isinstance(outcome, int):
            self.meter.token()
            generation.advance(
                self._model.tokenizer.piece(outcome),
                end_of_text=outcome in self._model.eos_token_ids,
                now=trio.current_time(),
            )
            if generation.ended:
                self._count(generation)
        elif outcome is not None:
            log.error("generation %s: %r", generation.id, outcome)
            self._fail(generation, ComputationFailed())

    def _leave(self, generation: Generation) -> None:
        """The reader has left. What the torch thread is using now is dropped after the step."""
        if generation.ended:
            return
        generation.cancel(trio.current_time())
        self._count(generation)
        if generation not in self._in_step:
            self._drop(generation)

    def _fail(self, generation: Generation, failure: MeshnodeError) -> None:
        generation.fail(failure, trio.current_time())
        self._count(generation)

    def _count(self, generation: Generation) -> None:
        """Measure a generation that has just ended, however it ended."""
        now = trio.current_time()
        timing = generation.timing(now)
        self.meter.finished(now, timing.total_ms)
        self._average_s += RECENT * (timing.inference_ms / 1e3 - self._average_s)

    def _drop(self, generation: Generation) -> None:
        """Free the generation's place and memory."""
        self._scheduler.leave(generation)
        self._sessions.pop(generation, None)
        self._changed()

    def _changed(self) -> None:
        """There may be work, or room for who waits, or nothing left at all."""
        self._work.set()
        if not self.active:
            self._idle.set()
            self._idle = trio.Event()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Unavailable("the model executor has stopped")

    def _too_busy(self) -> RateLimited:
        """A place in the queue is free when any of the batch ends: say when that may be."""
        seconds = self._average_s / self._scheduler.limits.max_batch
        return RateLimited(math.ceil(seconds), "the queue for the model is full")


def _positions(generation: Generation) -> int:
    """Positions that a generation's cache must hold: its last token is never computed from."""
    return len(generation.prompt) + generation.most_tokens - 1
