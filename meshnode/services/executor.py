"""The model executor: the one torch thread, and continuous batching (document, section 1).

Terms: a *step* is one call into the torch thread: one chunk of one prompt, or one token for every
session that decodes. Between steps the event loop admits, emits and drops generations, so that a
cancellation takes effect within one step.

Invariants: one step runs at a time; every open generation is in the scheduler until it ends; when
the service ends, however it ends, no generation is left waiting.
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

from meshnode.config import Config
from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    LayersUnavailable,
    MeshnodeError,
    RateLimited,
    StartupError,
    Unavailable,
)
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.metering import InferenceMeter
from meshnode.model.engine import ComputationError, Engine, Outcome, Session
from meshnode.model.loading import LoadedModel
from meshnode.services.generation import Generation

__all__ = ["EngineLimits", "Executor", "Generation", "engine_limits", "serve_executor"]

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


def engine_limits(config: Config, model: LoadedModel) -> EngineLimits:
    """The limits that the configuration sets. The cache gets the memory that the weights leave.

    Raises StartupError if they leave none.
    """
    memory = int(config.resources.max_memory_gb * GIBIBYTE)
    if model.weight_bytes >= memory:
        raise StartupError(
            f"resources.max_memory_gb is {config.resources.max_memory_gb:g}, "
            f"the weights alone take {model.weight_bytes / GIBIBYTE:.2f} GiB"
        )
    return EngineLimits(
        max_batch=config.limits.max_batch,
        max_queue=config.limits.max_queue,
        kv_bytes=memory - model.weight_bytes,
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
    executor = Executor(model, engine, limits)
    try:
        task_status.started(executor)
        while True:
            await executor.step(compute)
    finally:
        executor.close()


class TorchThread:
    """Runs one blocking function at a time, off the event loop."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)

    async def __call__(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` to its end, even if the caller is cancelled meanwhile."""
        return await trio.to_thread.run_sync(function, limiter=self._limiter)


class Executor:
    """Handle of the service: opens generations, and tells how busy it is."""

    def __init__(self, model: LoadedModel, engine: Engine, limits: EngineLimits) -> None:
        # The cache must hold one full generation, or it might wait for room for ever.
        room = limits.kv_bytes // engine.kv_bytes(1)
        if room < SHORTEST_CONTEXT:
            raise StartupError(f"{limits.kv_bytes} bytes hold the keys and values of no generation")
        self.card = replace(model.card, context_length=min(model.card.context_length, room))
        self.meter = InferenceMeter()
        self._model = model
        self._engine = engine
        self._scheduler: Scheduler[Generation] = Scheduler(limits)
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
    def active(self) -> int:
        """Open generations, queued ones included."""
        return self._scheduler.queued + self._scheduler.computing

    @property
    def queued(self) -> int:
        """Generations that wait for a place in the batch."""
        return self._scheduler.queued

    @property
    def kv_bytes_in_use(self) -> int:
        """Memory reserved for keys and values."""
        return self._scheduler.kv_bytes_in_use

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
            self._tokenize, request.prompt, limiter=self._tokenizing, abandon_on_cancel=True
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

    async def wait_idle(self) -> None:
        """Wait until no generation is open."""
        while self.active:
            await self._idle.wait()

    # What follows is the service's side.

    async def step(self, compute: TorchThread) -> None:
        """Wait for work, then compute one chunk of a prompt and one token for all that decode."""
        while not self.active:
            self._work = trio.Event()
            await self._work.wait()
        self._admit()
        chunk = self._scheduler.next_chunk()
        if chunk is not None:
            session = self._sessions[chunk.key]
            prefill = partial(self._engine.prefill, session, chunk.start, chunk.stop)
            self._in_step = frozenset([chunk.key])
            outcome = await compute(prefill)
            self._scheduler.prefilled(chunk)
            self._after_step([chunk.key], [outcome])
        batch = self._scheduler.decoding()
        if batch:
            decode = partial(self._engine.decode, [self._sessions[key] for key in batch])
            self._in_step = frozenset(batch)
            self._after_step(batch, await compute(decode))

    def close(self) -> None:
        """Refuse new generations, and end the open ones with Unavailable."""
        self._closed = True
        for generation in self._scheduler.sessions():
            if not generation.ended:
                self._fail(generation, Unavailable("the model executor has stopped"))
            self._drop(generation)

    def _admit(self) -> None:
        """Move generations into the batch, while there is room."""
        for generation in self._scheduler.admit():
            generation.admit(trio.current_time())
            try:
                self._sessions[generation] = self._engine.session(
                    generation.prompt, _positions(generation), generation.request
                )
            except ComputationError as error:
                log.error("generation %s: no room for its cache: %r", generation.id, error)
                self._fail(generation, ComputationFailed())
                self._drop(generation)

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
        if not self.active:
            self._idle.set()
            self._idle = trio.Event()

    def _tokenize(self, prompt: str) -> list[int]:
        """The prompt's tokens. Raises InvalidRequest if they leave no room for a completion."""
        tokenizer, context = self._model.tokenizer, self.card.context_length
        fewest = tokenizer.fewest_tokens(prompt)
        if fewest >= context:
            # Not even worth the time to tokenize it.
            raise _too_long(f"at least {fewest}", context)
        try:
            tokens = tokenizer.encode(prompt) or self._beginning()
        except ValueError:
            raise InvalidRequest("prompt", "must be valid Unicode") from None
        if len(tokens) >= context:
            raise _too_long(str(len(tokens)), context)
        return tokens

    def _beginning(self) -> list[int]:
        """What an empty prompt stands for: the token that texts begin with."""
        bos = self._model.decoder.config.bos_token_id
        for token in (bos, *sorted(self._model.eos_token_ids)):
            if token is not None and 0 <= token < self.card.vocab_size:
                return [token]
        raise InvalidRequest("prompt", "must not be empty")

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


def _too_long(count: str, context: int) -> InvalidRequest:
    return InvalidRequest(
        "prompt", f"has {count} tokens; the context holds {context}, completion included"
    )
