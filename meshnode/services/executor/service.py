"""The model executor: the one torch thread, and continuous batching (interface 1).

Terms: a *step* is one call into the torch thread: chunks of prompts, one token for every
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

import trio
from torch import Tensor

from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.convoys import ConvoyName
from meshnode.domain.errors import MeshnodeError, Overloaded, StartupError, Unavailable
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.metering import InferenceMeter, SpeedMeter
from meshnode.domain.prefixes import Prefixes
from meshnode.domain.shares import ANYBODY, Requester
from meshnode.model.accelerator.device import NO_DEVICE, Accelerator, DeviceMemory
from meshnode.model.config import DecoderConfig
from meshnode.model.kv import KVCache
from meshnode.services.admission import Admission, GenerationMeter, Starvation
from meshnode.services.executor.condition import Condition
from meshnode.services.executor.generation_steps import GenerationSteps
from meshnode.services.executor.patience import Patience
from meshnode.services.executor.room import Gate, Reservations
from meshnode.services.executor.sessions import ForwardJob, SessionEvicted, ShardSession
from meshnode.services.executor.shard_steps import ShardSteps
from meshnode.services.executor.torch_thread import Result, TorchThread
from meshnode.services.executor.versions import ServedVersion, Versions
from meshnode.services.generation import Generation
from meshnode.services.observing import UNOBSERVED, GenerationObserver

log = logging.getLogger(__name__)

SHORTEST_CONTEXT = 2
"""Tokens: one of the prompt, and one to generate."""
LOOK_EVERY_S = 0.5
"""How often the waiting are looked at, which adds to the longest wait."""


class Executor:
    """Handle of the service: opens generations and sessions, and reports how busy it is."""

    def __init__(
        self,
        versions: Versions,
        limits: EngineLimits,
        thread: TorchThread,
        observer: GenerationObserver = UNOBSERVED,
    ) -> None:
        model, engine = versions.current.model, versions.current.engine
        # The longest generation must find room, or it would wait for ever.
        room = engine.room(limits.kv_bytes)
        if room < SHORTEST_CONTEXT:
            raise StartupError(f"{limits.kv_bytes} bytes are too few for a generation's cache")
        self.card = replace(model.card, context_length=min(model.card.context_length, room))
        self.limits = limits  # Those that it was started with.
        self.meter, self.speed = InferenceMeter(), SpeedMeter()
        self.observer = observer
        """Is told of the generations of this executor, and of the pipeline if there is one."""
        meter = GenerationMeter(self.meter, limits.max_batch, observer)
        self._queue_full = meter.queue_full
        self.versions = versions
        self.gate = Gate()
        self.thread = thread
        self._scheduler: Scheduler[Generation | ShardSession] = Scheduler(
            limits, seamless=engine.seamless
        )
        self._reservations = Reservations(self._scheduler, limits, self._longest_bytes)
        self._shards = ShardSteps(
            versions,
            self._scheduler,
            num_layers=self.card.num_layers,
            context_length=self.card.context_length,
            queue_full=meter.queue_full,
            make_room=self._make_room,
            changed=self._changed,
        )
        self._generations = GenerationSteps(
            versions,
            self._scheduler,
            meter=meter,
            validate_open=self._refuse_if_closed,
            make_room=self._make_room,
            changed=self._changed,
        )
        self._admission = Admission(model, self.card.context_length, self._generations, meter)
        self._work, self._idle, self._left = trio.Event(), trio.Event(), trio.Event()
        self._condition = Condition()
        self.starvation = Starvation()
        """Whether requests wait in vain; kept by the pipeline too, if there is one."""
        self._closed = False
        self._patience = Patience()
        self.steps = 0  # Calls into the torch thread since the start.

    @property
    def config(self) -> DecoderConfig:
        """The shape of the model whose layers are held here."""
        return self.versions.current.model.config

    @property
    def numeric_class(self) -> str:
        """What the bits of its results depend on, besides the weights (decision 0152)."""
        return self.versions.current.model.numeric_class

    @property
    def active(self) -> int:
        """How many generations and sessions are open, queued ones included."""
        return self._scheduler.queued + self._scheduler.computing

    @property
    def queued(self) -> int:
        """How many of them wait for a place in the batch."""
        return self._scheduler.queued

    def requesters(self) -> set[Requester]:
        """Those for whom it computes, or who wait for a place."""
        return self._scheduler.requesters()

    @property
    def kv_bytes_in_use(self) -> int:
        """Memory reserved for keys and values."""
        return self._scheduler.kv_bytes_in_use

    @property
    def seamless(self) -> bool:
        """Whether a position's bits depend on its own session's inputs alone."""
        return self.versions.current.engine.seamless

    @property
    def prefixes(self) -> Prefixes[KVCache]:
        """Caches of generations that have ended, for prompts that begin alike (decision 0158)."""
        return self._generations.prefixes

    @property
    def kv_bytes_limit(self) -> int:
        """The most memory that may be reserved for keys and values."""
        return self._scheduler.limits.kv_bytes

    @property
    def spare_bytes(self) -> int:
        """The most that :meth:`reserve` may take: the cache keeps room for the longest request."""
        return self._reservations.spare

    def spare_beside(self, user: str) -> int:
        """The part of ``spare_bytes`` that others than ``user`` have not reserved."""
        return self._reservations.spare_beside(user)

    def reserve(self, user: str, nbytes: int) -> None:
        """Take memory from the cache for something else; 0 gives it back.

        Sessions that compute keep what they have, so it takes effect as they end.
        """
        self._reservations.take(user, nbytes)
        self._generations.make_way()
        self._changed()

    @property
    def prefill_chunk(self) -> int:
        """The most positions computed in one step. Equal chunks give equal bits."""
        return self._scheduler.limits.prefill_chunk

    def kv_bytes(self, positions: int, num_layers: int) -> int:
        """Memory for the keys and values of ``positions`` in ``num_layers`` layers."""
        return self.versions.current.engine.kv_bytes(positions, num_layers)

    @property
    def where(self) -> Accelerator | None:
        """The device that computes; None for the CPU."""
        return self.versions.current.engine.where

    @property
    def gpu_memory(self) -> DeviceMemory:
        """The memory of the device that computes; zeros on the CPU (decision 0011)."""
        return NO_DEVICE if self.where is None else self.where.memory()

    def device_check(self) -> str:
        """``ok`` on a device, ``absent`` without one, or why nobody is served.

        ``failing`` after a step failed as a whole or the executor was closed, ``stalled`` while a
        step takes too long, and ``overloaded`` after a request waited in vain for a place while
        nobody got one.
        """
        if trouble := "failing" if self._closed else self._condition.trouble:
            return trouble
        well = "absent" if self.where is None else "ok"
        return "overloaded" if self.starvation.lasts(trio.current_time()) else well

    async def open(self, request: GenerationRequest) -> Generation:
        """Tokenise the prompt and take the request into the queue (``Admission.open``).

        Raises LayersUnavailable if this node holds only a part of the model.
        """
        await self.gate.wait()
        with self.gate.passing():
            return await self._admission.open(request)

    async def open_session(
        self,
        layers: range,
        positions: int,
        requester: Requester = ANYBODY,
        model_hash: str = "",
        wait_s: float = math.inf,
        *,
        bound: bool = False,
    ) -> ShardSession:
        """Reserve memory for ``positions`` of a pipeline's session in some of the held layers.

        ``model_hash`` names the version of the weights, by default the current one. A session that
        is ``bound`` to a generation of this node keeps its place until it is closed. Waits in the
        queue like a generation, for ``wait_s`` and the step that has begun. Raises RateLimited if
        the queue is full or that time is over, Overloaded if no place became free, LayerNotHeld for
        layers or weights that are not here, InvalidRequest for too many positions, Unavailable.
        """
        self._refuse_if_closed()
        await self.gate.wait()
        return await self._shards.open(
            layers, positions, requester, model_hash, wait_s, bound=bound
        )

    async def forward(
        self,
        session: ShardSession,
        inputs: Tensor,
        decode_from: int | None = None,
        *,
        rows: int = 1,
        convoy: ConvoyName | None = None,
    ) -> ForwardJob:
        """Continue a session with ``inputs``, in one batch with other sessions. Returns the job.

        ``inputs`` are int64 token ids ``[1, seq]`` for layers that begin with the model's first,
        else float32 ``[1, seq, hidden]``. Positions from ``decode_from`` on (absolute) get the bits
        that one call for each would have given them, as a replay requires. The last layer gives the
        logits of the last ``rows`` positions. Memory beyond what was reserved is taken as needed.
        Calls for one session wait for one another; those of a ``convoy`` are computed in one step.

        Raises InvalidRequest for inputs that do not fit, RateLimited when there is no memory left,
        SessionEvicted when another node's session has lost its place, ComputationFailed, and
        Unavailable when the session or the executor has ended. After any other failure, and after a
        cancellation, the session is as long as before.
        """
        self._refuse_if_closed()
        return await self._shards.forward(session, inputs, decode_from, rows, convoy)

    async def compute(self, function: Callable[[], Result]) -> Result:
        """Run a blocking function in the torch thread, between two steps."""
        return await self.thread(function)

    # Versions of the weights (decision 0225).

    def switch(self, version: ServedVersion) -> None:
        """Begin everything new with another version; what has begun ends with its own.

        Raises ValueError if the longest request would no longer fit the cache.
        """
        if version.engine.kv_bytes(self.card.context_length) > self.limits.kv_bytes:
            raise ValueError("the longest request would not fit the cache")
        self._generations.forget_prefixes()
        context, name = self.card.context_length, self.card.name
        self.card = replace(version.model.card, context_length=context, name=name)
        self.versions.switch(version)
        self._changed()

    @property
    def untouched(self) -> bool:
        """Whether no generation and no session is open, nor about to be."""
        return not self.active and not self.gate.entering

    async def wait_room(self) -> None:
        """Wait until what was reserved is free: until sessions have ended that used it."""
        while self.kv_bytes_in_use > self.kv_bytes_limit:
            await self._left.wait()

    async def wait_idle(self) -> None:
        """Wait until no generation and no session is open."""
        while self.active:
            await self._idle.wait()

    # The service calls the methods below.

    async def step(self) -> None:
        """Wait for work; then compute chunks of prompts, and one position for the others."""
        self._admit()
        while self._scheduler.idle:
            self._work = trio.Event()
            await self._work.wait()
            self._admit()
        self._generations.make_way()
        if not self._scheduler.turn(trio.current_time()):
            self._work = trio.Event()
            if await self._patience.has_news(self._work):
                return
        turn_begun = self._condition.begun()
        if chunks := self._scheduler.next_chunks():
            if isinstance(chunks[0].key, ShardSession):
                await self._shards.extend(chunks[0].key, chunks[0], self.thread)
                self._after_steps(1, failed=self._shards.failed)
            else:
                await self._generations.extend(chunks, self.thread)
                self._after_steps(1, failed=self._generations.failed)
            positions = sum(chunk.stop - chunk.start for chunk in chunks)
            self._scheduler.pace.measured(positions, trio.current_time() - turn_begun)
        steps = await self._generations.step(self.thread)
        self._after_steps(steps, failed=self._generations.failed)
        groups = await self._shards.step(self.thread)
        self._after_steps(groups, failed=self._shards.failed)
        if steps or groups:
            self.speed.turn(trio.current_time() - turn_begun)
        self._patience.stepped(trio.current_time() - turn_begun)
        self._condition.ended()

    def close(self) -> None:
        """Refuse new generations and sessions, and end the open ones with Unavailable."""
        self._closed, stopped = True, Unavailable("the model executor has stopped")
        self._shards.looked()
        for key in self._scheduler.sessions():
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
                self._shards.looked()
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
        self._condition.stepped(failed=failed if steps else None)

    def _changed(self) -> None:
        """Wake all tasks that wait for work, for room, or for the executor to be idle."""
        self._work.set()
        self._left.set()
        self._left = trio.Event()
        if not self.active:
            self._idle.set()
            self._idle = trio.Event()

    def _longest_bytes(self) -> int:
        return self.versions.current.engine.kv_bytes(self.card.context_length)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Unavailable("the model executor has stopped")
