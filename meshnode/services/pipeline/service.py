"""Generations over the holders of a model's layers (interface 1 and 4.3).

Terms: the *driver* holds the first layers; it has the tokenizer and the embedding, and samples. A
generation is *queued* until the driver has a place and memory for it, then *driven* by a task. It
is *interrupted* while its place is needed for somebody who comes first (decision 0132).

Invariants: at most ``max_sessions`` generations are driven and ``max_queue`` wait; the hidden
states kept for replays take at most ``kept_bytes``; however a generation ends, its place is free at
once and its session is closed at every holder; when the service ends, so do all generations.
"""

from __future__ import annotations

import logging
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
    Overloaded,
    Unavailable,
)
from meshnode.domain.routing import spell_layers
from meshnode.domain.shares import Requester
from meshnode.model.sampler import Sampler
from meshnode.services.admission import Admission, GenerationMeter
from meshnode.services.generation import Generation
from meshnode.services.pipeline.context import DriverContext
from meshnode.services.pipeline.convoys import Convoys
from meshnode.services.pipeline.driver import MAX_SAMPLING, Driver, GenerationProgress
from meshnode.services.pipeline.records import HopRecorder, HopTrace
from meshnode.services.pipeline.routes import Routes

if TYPE_CHECKING:
    from meshnode.domain.generation import GenerationRequest
    from meshnode.model.draft import DraftModel
    from meshnode.model.loading import ModelFacts
    from meshnode.services.executor import Executor, ServedVersion
    from meshnode.services.peers import PeerBook
    from meshnode.services.stub_pool import StubPool

log = logging.getLogger(__name__)

BYTES_PER_NUMBER = 4
LOOK_EVERY_S = 0.5
"""How often the waiting are looked at, which adds to the longest wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """What a driver may use at once."""

    max_sessions: int = 16
    """Generations driven together."""
    max_queue: int = 64
    """Generations that wait. The next one is refused with a time to retry after."""
    kept_bytes: int = 1 << 28
    """Memory for the hidden states that a failover would replay."""
    call_s: float = 5.0
    """Deadline of one call to a holder, the holders that it relays to included (interface 8)."""
    relay: bool = True
    """Let each holder call the next one; otherwise the driver calls each of them.

    The setting is called ``pipeline.chain``."""
    mixed: bool = True
    """Whether holders of another numeric class may be used; called ``pipeline.mixed``."""
    speculate: bool = True
    """Whether tokens are guessed ahead; called ``pipeline.speculate``."""
    short_cut: bool = True
    """Whether the last holder may answer straight; called ``pipeline.short_cut``."""
    convoys: bool = True
    """Whether positions of several generations go together; called ``pipeline.convoys``."""
    prefill_chunk: int = 128
    """The same as the executor's, because equal chunks give bit-identical results."""
    checks: float = 0.0
    """The part of the positions that another path computes too; called ``pipeline.checks``."""


async def serve_pipeline(
    model: ModelFacts,
    executor: Executor,
    book: PeerBook,
    pool: StubPool,
    limits: PipelineLimits,
    *,
    node_id: str,
    recorder: HopRecorder,
    draft: DraftModel | None = None,
    task_status: trio.TaskStatus[Pipeline],
) -> None:
    """Drive generations until cancelled; starts with the :class:`Pipeline`.

    ``draft`` guesses tokens, where the limits allow that and it is quicker.

    On cancellation, open generations end with Unavailable, and their sessions at the holders are
    closed.
    """
    async with trio.open_nursery() as nursery:

        def spawn(work: Callable[[], Awaitable[None]]) -> None:
            nursery.start_soon(work)

        pipeline = Pipeline(model, executor, book, pool, limits, node_id, recorder, spawn, draft)
        try:
            task_status.started(pipeline)
            while True:
                await trio.sleep(LOOK_EVERY_S)
                pipeline.look_after_waiting()
        finally:
            pipeline.close()


@dataclass(slots=True, eq=False)
class _Driven:
    """A generation that has or had a place, the trace of its hops, and the task that drives it."""

    generation: Generation
    trace: HopTrace
    progress: GenerationProgress
    scope: trio.CancelScope
    """Of the task that drives it, or did so last."""
    left: trio.Event
    """Set when that task has ended."""
    interrupted: bool = False


class Pipeline:
    """Handle of the service: opens generations, and reports how busy it is."""

    def __init__(
        self,
        model: ModelFacts,
        executor: Executor,
        book: PeerBook,
        pool: StubPool,
        limits: PipelineLimits,
        node_id: str,
        recorder: HopRecorder,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        draft: DraftModel | None = None,
    ) -> None:
        self._executor = executor
        self.card = card = executor.card
        self._kept_position = card.hidden_dim * BYTES_PER_NUMBER
        context = min(card.context_length, limits.kept_bytes // self._kept_position)
        self._meter = GenerationMeter(executor.meter, limits.max_sessions, executor.observer)
        self._admission = Admission(model, context, self, self._meter)
        self._starvation = executor.starvation
        self._routes = Routes(
            book,
            card.layers[-1] + 1,
            card.num_layers,
            numeric_class=model.numeric_class,
            mixed=limits.mixed,
        )
        self._recorder = recorder
        checks = self._recorder.checks
        checks.rate, checks.numeric_class = limits.checks, model.numeric_class
        self._spawn = spawn
        self._driver = Driver(
            node_id=node_id,
            model=model,
            executor=executor,
            context=DriverContext(
                book=book,
                pool=pool,
                routes=self._routes,
                relay=limits.relay,
                call_s=limits.call_s,
                hidden_dim=card.hidden_dim,
                vocab_size=card.vocab_size,
                prefill_chunk=limits.prefill_chunk,
                spawn=spawn,
                checks=checks,
                convoys=Convoys(enabled=limits.convoys),
                node_id=node_id if limits.short_cut else "",
                short_cuts=recorder.short_cuts,
            ),
            recorder=self._recorder,
            sampling=trio.CapacityLimiter(MAX_SAMPLING),
            token=self._meter.token,
            speculate=limits.speculate,
            draft=draft,
            figures=recorder.speculation,
        )
        self._scheduler: Scheduler[Generation] = Scheduler(
            EngineLimits(
                max_batch=limits.max_sessions,
                max_queue=limits.max_queue,
                kv_bytes=limits.kept_bytes,
            )
        )
        self._driven: dict[Generation, _Driven] = {}
        self._version_of: dict[Generation, ServedVersion] = {}
        """The weights that each generation began with, kept in memory until it has ended."""
        self._idle = trio.Event()
        self._closed = False

    @property
    def queued(self) -> int:
        """How many generations wait for a place."""
        return self._scheduler.queued

    @property
    def active(self) -> int:
        """How many generations are open, queued or driven."""
        return self._scheduler.queued + self._scheduler.computing

    @property
    def uncovered(self) -> str:
        """Which layers no reachable node holds, on a node that drives; empty if all are held."""
        missing = self._routes.missing() if 0 in self.card.layers else ()
        return f"no reachable holder of layers {spell_layers(missing)}" if missing else ""

    def requesters(self) -> set[Requester]:
        """Those for whom it computes, or who wait for a place; sessions of peers included."""
        return self._scheduler.requesters() | self._executor.requesters()

    @property
    def kept_bytes(self) -> int:
        """Memory reserved for replays."""
        return self._scheduler.kv_bytes_in_use

    async def open(self, request: GenerationRequest) -> Generation:
        """Tokenise the prompt and take the request into the queue (``Admission.open``).

        Raises LayersUnavailable if this node does not hold the first layer, or if another layer is
        held by no reachable node. While holders load weights in place of others, it waits.
        """
        await self._executor.gate.wait()
        with self._executor.gate.passing():
            return await self._admission.open(request)

    async def wait_idle(self) -> None:
        """Wait until no generation is open."""
        while self.active:
            await self._idle.wait()

    # The methods below are called by generations, ``Admission`` and the service, not by users.

    def validate_ready(self, requester: Requester) -> None:
        """Raises Unavailable, LayersUnavailable or RateLimited if no generation can be taken."""
        if self._closed:
            raise Unavailable("the pipeline has stopped")
        if 0 not in self.card.layers:
            raise LayersUnavailable(
                "this node does not hold the first layer; ask one whose role is driver"
            )
        if not self._scheduler.takes(requester):
            raise self._meter.queue_full()
        if self._routes.choose() is None:
            raise self._routes.unavailable()

    def submit(self, generation: Generation) -> bool:
        """Take a generation into the queue; False when the queue is full.

        A generation that waits may be refused to make room for it.
        """
        kept_bytes = generation.positions * self._kept_position
        requester = generation.request.requester
        refused = self._scheduler.refused_for(requester)
        if refused is not None:
            self._end(refused, self._meter.queue_full())
        taken = self._scheduler.submit(
            generation, len(generation.prompt), kept_bytes, requester, trio.current_time()
        )
        if taken:
            version = self._executor.versions.current
            generation.model_hash = version.model_hash
            self._version_of[generation] = version
            self._executor.versions.retain(version)
        self._admit()
        return taken

    def leave(self, generation: Generation) -> None:
        """End a generation whose reader has left. The task that drives it closes the session."""
        if generation.ended:
            return
        generation.cancel(trio.current_time())
        driven = self._driven.get(generation)
        self._finish(generation)
        if driven is not None:
            driven.scope.cancel()

    def look_after_waiting(self) -> None:
        """Refuse what has waited for a place for as long as any request may."""
        now = trio.current_time()
        for generation in self._scheduler.overdue(now):
            self._starvation.timed_out(self._scheduler.limits.max_wait_s, now)
            self._end(generation, Overloaded("no place became free in time"))

    def close(self) -> None:
        """Refuse new generations, and end the open ones with Unavailable."""
        self._closed = True
        for generation in self._scheduler.sessions():
            self._end(generation, Unavailable("the pipeline has stopped"))

    def _admit(self) -> None:
        """Drive queued generations while there is room, and interrupt others that come later."""
        while True:
            now = trio.current_time()
            victim = self._scheduler.victim(now)
            if victim is not None:
                self._interrupt(self._driven[victim], now)
            elif admitted := self._scheduler.admit(now):
                self._starvation.placed(now)
                for generation in admitted:
                    self._begin(generation)
            else:
                return

    def _interrupt(self, driven: _Driven, now: float) -> None:
        """Take the generation's place; its task closes the sessions at the holders and ends."""
        prompt = len(driven.generation.prompt)
        stop = prompt + len(driven.progress.generated)
        self._scheduler.suspend(driven.generation, stop, prompt, now)
        driven.interrupted = True
        driven.scope.cancel()

    def _begin(self, generation: Generation) -> None:
        """Start the task that drives a generation, for the first time or once more."""
        driven = self._driven.get(generation)
        before: trio.Event | None = None
        if driven is None:
            trace = self._recorder.begin(generation.id)
            generation.notes = trace.notes
            progress = GenerationProgress(Sampler(generation.request, generation.constraint))
            driven = _Driven(generation, trace, progress, trio.CancelScope(), trio.Event())
            self._driven[generation] = driven
        else:
            before = driven.left
            driven.scope, driven.left = trio.CancelScope(), trio.Event()
            driven.interrupted = False
        self._spawn(partial(self._drive, driven, driven.scope, driven.left, before))

    async def _drive(
        self,
        driven: _Driven,
        scope: trio.CancelScope,
        left: trio.Event,
        before: trio.Event | None,
    ) -> None:
        """Drive a generation, after the task that did so ``before`` has ended."""
        generation = driven.generation
        failure: MeshnodeError | None = None
        try:
            with scope:
                try:
                    if before is not None:
                        await before.wait()
                    await self._driver.run(generation, driven.trace, driven.progress)
                except MeshnodeError as error:
                    failure = error
        finally:
            left.set()
            interrupted = scope is not driven.scope or driven.interrupted
            # An interrupted generation may have got its last token at that moment.
            if not interrupted or failure is not None or generation.ended:
                self._end(generation, failure or Unavailable("the pipeline has stopped"))
                log.info(
                    "generation over %d paths ended",
                    driven.trace.paths,
                    extra={"fields": driven.trace.fields()},
                )

    def _end(self, generation: Generation, failure: MeshnodeError) -> None:
        """End a generation with ``failure``, unless it has ended already, and free its place."""
        if not generation.ended:
            if isinstance(failure, ComputationFailed):
                log.error("generation %s: the computation failed", generation.id)
            generation.fail(failure, trio.current_time())
        self._finish(generation)

    def _finish(self, generation: Generation) -> None:
        """Meter an ended generation and free its place. A second call does nothing."""
        if generation not in self._scheduler.sessions():
            return
        self._meter.ended(generation)
        self._scheduler.leave(generation)
        self._driven.pop(generation, None)
        version = self._version_of.pop(generation, None)
        if version is not None:
            self._executor.versions.release(version)
        if not self._closed:
            self._admit()
        if not self.active:
            self._idle.set()
            self._idle = trio.Event()
