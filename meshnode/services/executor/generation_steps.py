"""The executor's work for generations, on a node that holds all layers of its model.

Terms: a generation that is *suspended* has given its place and memory to another one
(decision 0132). It computes its positions again later, and goes on with the same tokens.

Invariants: a generation is in the scheduler from ``submit`` until it has ended; what the torch
thread is using is freed only after the step; a generation that fails takes no other along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import trio

from meshnode.domain.batching import Chunk, Scheduler
from meshnode.domain.errors import (
    ComputationFailed,
    LayersUnavailable,
    MeshnodeError,
    Unavailable,
)
from meshnode.domain.shares import Requester
from meshnode.model.engine import ComputationError, Engine, Outcome, Session
from meshnode.model.loading import LoadedModel
from meshnode.services.admission import GenerationMeter
from meshnode.services.executor.sessions import ShardSession
from meshnode.services.executor.torch_thread import TorchThread
from meshnode.services.generation import Generation

log = logging.getLogger(__name__)


class GenerationSteps:
    """The generations in the executor's scheduler. A :class:`~.admission.GenerationQueue`."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler[Generation | ShardSession],
        *,
        model: LoadedModel,
        meter: GenerationMeter,
        validate_open: Callable[[], None],
        make_room: Callable[[Requester], None],
        changed: Callable[[], None],
    ) -> None:
        """``validate_open`` raises Unavailable once the executor has stopped.

        ``make_room`` lets somebody else leave a full queue if this requester comes first.
        ``changed`` is called when there may be work, or room for generations that wait.
        """
        self._engine = engine
        self._scheduler = scheduler
        self._model = model
        self._meter = meter
        self._validate_open = validate_open
        self._make_room = make_room
        self._changed = changed
        self._sessions: dict[Generation, Session] = {}
        self._in_step: frozenset[Generation] = frozenset()
        self.failed: bool | None = None
        """Whether all generations of the latest step failed; None before the first step."""

    def validate_ready(self, requester: Requester) -> None:
        """Raises Unavailable, LayersUnavailable or RateLimited if no generation can be taken."""
        self._validate_open()
        if not self._model.card.complete:
            raise LayersUnavailable("this node holds only a part of the model's layers")
        if not self._scheduler.takes(requester):
            raise self._meter.queue_full()

    def submit(self, generation: Generation) -> bool:
        """Take a generation into the queue; False when the queue is full."""
        kv_bytes = self._engine.kv_bytes(generation.positions)
        requester = generation.request.requester
        self._make_room(requester)
        taken = self._scheduler.submit(
            generation, len(generation.prompt), kv_bytes, requester, trio.current_time()
        )
        self._changed()
        return taken

    def leave(self, generation: Generation) -> None:
        """End a generation whose reader has left. Its place is free at once, or after the step."""
        if generation.ended:
            return
        generation.cancel(trio.current_time())
        self._meter.ended(generation)
        if generation not in self._in_step:
            self._drop(generation)

    # The service calls the methods below.

    def admit(self, generation: Generation) -> None:
        """Allocate the cache of a generation that was given a place in the batch."""
        suspended = self._sessions.get(generation)
        try:
            if suspended is None:
                generation.admit(trio.current_time())
                self._sessions[generation] = self._engine.session(
                    generation.prompt, generation.positions, generation.request
                )
            else:
                self._engine.resume(suspended, generation.positions)
        except ComputationError as error:
            log.error("generation %s: no room for its cache: %r", generation.id, error)
            self._fail(generation, ComputationFailed())
            self._drop(generation)

    def suspend(self, generation: Generation) -> None:
        """Take the generation's place and memory; it goes on when it is admitted again."""
        session = self._sessions[generation]
        self._engine.suspend(session)
        prompt = len(generation.prompt)
        stop = prompt + len(session.generated)
        self._scheduler.suspend(generation, stop, prompt, trio.current_time())

    def refuse(self, generation: Generation, failure: MeshnodeError) -> None:
        """End a generation that waits for a place."""
        self._fail(generation, failure)
        self._drop(generation)

    async def extend(
        self, generation: Generation, chunk: Chunk[Generation | ShardSession], compute: TorchThread
    ) -> None:
        """Compute one chunk of a generation's prompt."""
        session = self._sessions[generation]
        self._in_step = frozenset([generation])
        begun = trio.current_time()
        outcome = await compute(partial(self._engine.prefill, session, chunk.start, chunk.stop))
        self._scheduler.prefilled(chunk)
        self._after_step([generation], [outcome], begun)

    async def step(self, compute: TorchThread) -> int:
        """Compute a token for every generation that decodes. Returns the number of engine calls."""
        batch = [key for key in self._scheduler.decoding() if isinstance(key, Generation)]
        if not batch:
            return 0
        self._in_step = frozenset(batch)
        sessions = [self._sessions[generation] for generation in batch]
        begun = trio.current_time()
        self._after_step(batch, await compute(partial(self._engine.decode, sessions)), begun)
        return 1

    def stop(self, generation: Generation, failure: Unavailable) -> None:
        """Fail a generation because the service ends, once nothing is in the torch thread."""
        if not generation.ended:
            self._fail(generation, failure)
        self._drop(generation)

    def _after_step(
        self, batch: Sequence[Generation], outcomes: Sequence[Outcome | None], begun: float
    ) -> None:
        """Emit what a step computed; drop generations that ended, failed or were left meanwhile."""
        self._in_step = frozenset()
        requesters = [generation.request.requester for generation in batch]
        self._scheduler.spend(requesters, trio.current_time() - begun)
        self.failed = all(isinstance(outcome, Exception) for outcome in outcomes)
        for generation, outcome in zip(batch, outcomes, strict=True):
            if not generation.ended:
                self._take(generation, outcome)
            if generation.ended:
                self._drop(generation)

    def _take(self, generation: Generation, outcome: Outcome | None) -> None:
        """Hand one outcome to its generation; None stands for a prompt that has more chunks."""
        if isinstance(outcome, int):
            self._meter.token()
            generation.advance(
                self._model.tokenizer.piece(outcome),
                end_of_text=outcome in self._model.eos_token_ids,
                now=trio.current_time(),
            )
            if generation.ended:
                self._meter.ended(generation)
        elif outcome is not None:
            log.error("generation %s: %r", generation.id, outcome)
            self._fail(generation, ComputationFailed())

    def _fail(self, generation: Generation, failure: MeshnodeError) -> None:
        generation.fail(failure, trio.current_time())
        self._meter.ended(generation)

    def _drop(self, generation: Generation) -> None:
        """Free the generation's place and memory."""
        self._scheduler.leave(generation)
        self._sessions.pop(generation, None)
        self._changed()
