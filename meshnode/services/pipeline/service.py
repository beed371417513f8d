"""Generations over the holders of a model's layers (document, sections 1 and 4.3).

Terms: the *driver* holds the first layers; it has the tokenizer and the embedding, and samples. A
generation is *queued* until the driver has a place and memory for it, then *driven* by a task.

Invariants: at most ``max_sessions`` are driven and ``max_queue`` wait; what is kept for replays is
within ``kept_bytes``; a generation that ends, however it ends, gives its place back at once and
every holder is told; when the service ends, no generation is left waiting.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.errors import (
    ComputationFailed,
    LayersUnavailable,
    MeshnodeError,
    RateLimited,
    Unavailable,
)
from meshnode.model.prompts import Prompts
from meshnode.services.generation import Generation
from meshnode.services.pipeline.driver import MOST_SAMPLING, Driver
from meshnode.services.pipeline.failover import Surroundings
from meshnode.services.pipeline.records import PipelineFigures, Recorder, Trace
from meshnode.services.pipeline.routes import Routes

if TYPE_CHECKING:
    from meshnode.domain.generation import GenerationRequest
    from meshnode.model.loading import LoadedModel
    from meshnode.services.executor import Executor
    from meshnode.services.pipeline.ports import Book, Pool

log = logging.getLogger(__name__)

BYTES_PER_NUMBER = 4
MOST_TOKENIZING = 2
"""Prompts tokenized at once: the processors are the torch thread's."""
RECENT = 0.2
"""Weight of the newest generation in the average duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """What a driver may use at once."""

    max_sessions: int = 16
    """Generations driven together."""
    max_queue: int = 64
    """Generations that wait. The next one is told to come back later."""
    kept_bytes: int = 1 << 28
    """Memory for hidden states that a failover would replay."""
    call_s: float = 5.0
    """For one call to a holder, chain included (document, section 8)."""
    chain: bool = True
    """Let holders pass on to one another. Otherwise the driver calls each of them."""
    prefill_chunk: int = 128
    """As the executor's: the same chunks give the same bits."""


async def serve_pipeline(
    model: LoadedModel,
    executor: Executor,
    book: Book,
    pool: Pool,
    limits: PipelineLimits,
    *,
    node_id: str,
    task_status: trio.TaskStatus[Pipeline],
) -> None:
    """Drive generations until cancelled; starts with the :class:`Pipeline`.

    Generations still open then end with Unavailable, and the holders are told.
    """
    async with trio.open_nursery() as nursery:

        def spawn(work: Callable[[], Awaitable[None]]) -> None:
            nursery.start_soon(work)

        pipeline = Pipeline(model, executor, book, pool, limits, node_id, spawn)
        try:
            task_status.started(pipeline)
            await trio.sleep_forever()
        finally:
            pipeline.close()


@dataclass(slots=True, eq=False)
class _Driven:
    """A generation, the scope of the task that drives it, and what its hops took."""

    generation: Generation
    trace: Trace
    scope: trio.CancelScope


class Pipeline:
    """Handle of the service: opens generations, and tells how busy it is."""

    def __init__(
        self,
        model: LoadedModel,
        executor: Executor,
        book: Book,
        pool: Pool,
        limits: PipelineLimits,
        node_id: str,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self.card = card = executor.card
        self._kept_position = card.hidden_dim * BYTES_PER_NUMBER
        context = min(card.context_length, limits.kept_bytes // self._kept_position)
        self._model = model
        self._executor = executor
        self._context = context
        self._prompts = Prompts(model, context)
        self._limits = limits
        self._routes = Routes(book, card.layers[-1] + 1, card.num_layers)
        self._recorder = Recorder()
        self._spawn = spawn
        self._driver = Driver(
            node_id=node_id,
            model=model,
            executor=executor,
            around=Surroundings(
                book=book,
                pool=pool,
                routes=self._routes,
                chain=limits.chain,
                call_s=limits.call_s,
                hidden_dim=card.hidden_dim,
                vocab_size=card.vocab_size,
                prefill_chunk=limits.prefill_chunk,
                spawn=spawn,
            ),
            recorder=self._recorder,
            sampling=trio.CapacityLimiter(MOST_SAMPLING),
            token=executor.meter.token,
        )
        self._scheduler: Scheduler[Generation] = Scheduler(
            EngineLimits(
                max_batch=limits.max_sessions,
                max_queue=limits.max_queue,
                kv_bytes=limits.kept_bytes,
            )
        )
        self._driven: dict[Generation, _Driven] = {}
        self._tokenizing = trio.CapacityLimiter(MOST_TOKENIZING)
        self._idle = trio.Event()
        self._average_s = 1.0
        self._closed = False

    @property
    def active(self) -> int:
        """Open generations that this node drives, queued ones included."""
        if self._executor.card.complete:
            return self._executor.active
        return self._scheduler.queued + self._scheduler.computing

    @property
    def kept_bytes(self) -> int:
        """Memory reserved for replays."""
        return self._scheduler.kv_bytes_in_use

    def figures(self) -> PipelineFigures:
        """Milliseconds of the remote hops, over all generations."""
        return self._recorder.figures()

    def trace(self, generation_id: str) -> str | None:
        """One line of JSON about a recent generation's hops; None if it had none."""
        trace = self._recorder.trace(generation_id)
        return None if trace is None else trace.encode()

    async def open(self, request: GenerationRequest) -> Generation:
        """Tokenize the prompt and take the request into the queue.

        Raises InvalidRequest if the prompt does not fit the context, RateLimited when the queue is
        full, LayersUnavailable if nobody who is reachable holds some of the layers, Unavailable
        when stopped.
        """
        if self._executor.card.complete:
            return await self._executor.open(request)
        opened_at = trio.current_time()
        self._refuse_if_unable()
        prompt = await trio.to_thread.run_sync(
            self._prompts.tokens, request.prompt, limiter=self._tokenizing, abandon_on_cancel=True
        )
        self._refuse_if_unable()
        generation = Generation(
            request,
            id=f"gen-{uuid.uuid4().hex}",
            prompt=prompt,
            most_tokens=min(request.max_tokens, self._context - len(prompt)),
            opened_at=opened_at,
            leave=self._leave,
        )
        positions = len(prompt) + generation.most_tokens - 1
        if not self._scheduler.submit(generation, len(prompt), positions * self._kept_position):
            raise self._too_busy()
        self._executor.meter.admitted(opened_at)
        self._admit()
        return generation

    async def wait_idle(self) -> None:
        """Wait until no generation is open."""
        if self._executor.card.complete:
            await self._executor.wait_idle()
            return
        while self.active:
            await self._idle.wait()

    def close(self) -> None:
        """Refuse new generations, and end the open ones with Unavailable. The service's side."""
        self._closed = True
        for generation in self._scheduler.sessions():
            self._end(generation, Unavailable("the pipeline has stopped"))

    def _refuse_if_unable(self) -> None:
        if self._closed:
            raise Unavailable("the pipeline has stopped")
        if 0 not in self._executor.card.layers:
            raise LayersUnavailable(
                "this node does not hold the first layer; ask one whose role is driver"
            )
        if self._scheduler.full:
            raise self._too_busy()
        if self._routes.choose() is None:
            raise self._routes.unavailable()

    def _admit(self) -> None:
        """Begin to drive generations, while there is room."""
        for generation in self._scheduler.admit():
            trace = self._recorder.begin(generation.id)
            driven = _Driven(generation, trace, trio.CancelScope())
            self._driven[generation] = driven
            self._spawn(partial(self._drive, driven))

    async def _drive(self, driven: _Driven) -> None:
        generation = driven.generation
        failure: MeshnodeError | None = None
        try:
            with driven.scope:
                try:
                    await self._driver.run(generation, driven.trace)
                except MeshnodeError as error:
                    failure = error
        finally:
            self._end(generation, failure or Unavailable("the pipeline has stopped"))
            log.info(
                "generation over %d paths ended",
                driven.trace.paths,
                extra={"fields": driven.trace.fields()},
            )

    def _leave(self, generation: Generation) -> None:
        """The reader has left. Its task tells the holders."""
        if generation.ended:
            return
        generation.cancel(trio.current_time())
        driven = self._driven.get(generation)
        self._finish(generation)
        if driven is not None:
            driven.scope.cancel()

    def _end(self, generation: Generation, failure: MeshnodeError) -> None:
        """A generation whose task is over; with ``failure``, unless it came to its own end."""
        if not generation.ended:
            if isinstance(failure, ComputationFailed):
                log.error("generation %s: the computation failed", generation.id)
            generation.fail(failure, trio.current_time())
        self._finish(generation)

    def _finish(self, generation: Generation) -> None:
        """Measure an ended generation, give its place to the next; the second time, nothing."""
        if generation not in self._scheduler.sessions():
            return
        now = trio.current_time()
        timing = generation.timing(now)
        self._executor.meter.finished(now, timing.total_ms)
        self._average_s += RECENT * (timing.inference_ms / 1e3 - self._average_s)
        self._scheduler.leave(generation)
        self._driven.pop(generation, None)
        if not self._closed:
            self._admit()
        if not self.active:
            self._idle.set()
            self._idle = trio.Event()

    def _too_busy(self) -> RateLimited:
        """A place in the queue is free when any of the driven ends: say when that may be."""
        seconds = self._average_s / self._limits.max_sessions
        return RateLimited(math.ceil(seconds), "the queue for the model is full")
