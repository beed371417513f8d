"""Generations that other nodes compute for the clients of this one (interface 1, 4.1 and 4.3).

A node that does not hold the first layer passes requests for text on to a driver, and gives the
answer to its client as its own: events, usage, errors, and the bill, which this node makes by its
own price (decision 0218).

Invariants: at most ``most`` generations are open, of which one requester has at most half, and
callers without a token an eighth; a request that was passed on to this node is never passed on
again, because only drivers take such requests; when the service ends, so do all generations.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import LayersUnavailable, MeshnodeError, Unavailable
from meshnode.domain.peer_session import Credentials
from meshnode.domain.shares import Requester, Standing, kept
from meshnode.services.admission import Admission, GenerationMeter
from meshnode.services.forwarding.drivers import Drivers
from meshnode.services.forwarding.passing import NO_DRIVER, ForwardingContext, Passing

if TYPE_CHECKING:
    from meshnode.domain.generation import GenerationRequest
    from meshnode.domain.identity import NodeKey
    from meshnode.model.loading import ModelFacts
    from meshnode.services.executor import Executor
    from meshnode.services.generation import Generation
    from meshnode.services.peers import PeerBook
    from meshnode.services.pipeline.records import HopRecorder
    from meshnode.services.stub_pool import StubPool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingLimits:
    """What a forwarding node may have open."""

    most: int = 96
    """Generations: as many as a driver has places and room in its queue."""
    call_s: float = 5.0
    """How long a driver may say nothing (interface 8). While it waits it says so every second."""


async def serve_forwarding(
    model: ModelFacts,
    executor: Executor,
    book: PeerBook,
    pool: StubPool,
    limits: ForwardingLimits,
    *,
    key: NodeKey,
    recorder: HopRecorder,
    task_status: trio.TaskStatus[Forwarding],
) -> None:
    """Pass generations on until cancelled; starts with the :class:`Forwarding`.

    ``key`` is this node's, by which drivers know it. On cancellation, open generations end with
    Unavailable, and the calls to their drivers are reset.
    """
    async with trio.open_nursery() as nursery:

        def spawn(work: Callable[[], Awaitable[None]]) -> None:
            nursery.start_soon(work)

        forwarding = Forwarding(model, executor, book, pool, limits, key, recorder, spawn)
        try:
            task_status.started(forwarding)
            await trio.sleep_forever()
        finally:
            forwarding.close()


class Forwarding:
    """Handle of the service: opens generations, and reports how many there are."""

    def __init__(
        self,
        model: ModelFacts,
        executor: Executor,
        book: PeerBook,
        pool: StubPool,
        limits: ForwardingLimits,
        key: NodeKey,
        recorder: HopRecorder,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self.card = model.card
        self._limits = limits
        self._meter = GenerationMeter(executor.meter, limits.most, executor.observer)
        # The context is the model's: the memory of this node holds nothing of the generation.
        self._admission = Admission(model, self.card.context_length, self, self._meter)
        self._drivers = Drivers(book)
        self._context = ForwardingContext(
            drivers=self._drivers,
            pool=pool,
            credentials=Credentials(key, time.time),
            recorder=recorder,
            call_s=limits.call_s,
            token=self._meter.token,
        )
        self._spawn = spawn
        self._open: dict[Generation, Passing] = {}
        self._idle = trio.Event()
        self._closed = False

    @property
    def active(self) -> int:
        """How many generations are open."""
        return len(self._open)

    def requesters(self) -> set[Requester]:
        """Those whose generations are open."""
        return {generation.request.requester for generation in self._open}

    async def open(self, request: GenerationRequest) -> Generation:
        """Tokenise the prompt, and find a driver that takes the request.

        Raises what ``Admission.open`` raises, and the failure of the driver if none takes it.
        """
        generation = await self._admission.open(request)
        passing, taken = self._open[generation], False
        try:
            await passing.accepted.wait()
            taken = generation.failure is None
        finally:
            if not taken:
                self.leave(generation)
        if generation.failure is not None:
            raise generation.failure
        return generation

    async def wait_idle(self) -> None:
        """Wait until no generation is open."""
        while self._open:
            await self._idle.wait()

    # The methods below are called by generations, ``Admission`` and the service, not by users.

    def validate_ready(self, requester: Requester) -> None:
        """Raises Unavailable, LayersUnavailable or RateLimited if no generation can be taken."""
        if self._closed:
            raise Unavailable("the node passes no requests on any more")
        if not self._takes(requester):
            raise self._meter.queue_full()
        if self._drivers.choose() is None:
            raise LayersUnavailable(NO_DRIVER)

    def submit(self, generation: Generation) -> bool:
        """Take a generation, and begin to pass it on; False when there is no room."""
        if not self._takes(generation.request.requester):
            return False
        passing = self._open[generation] = Passing(generation, self._context)
        self._spawn(partial(self._run, passing))
        return True

    def leave(self, generation: Generation) -> None:
        """End a generation whose reader has left, and the call to its driver."""
        passing = self._open.get(generation)
        if passing is None or generation.ended:
            return
        generation.cancel(trio.current_time())
        self._finish(passing)
        passing.scope.cancel()

    def close(self) -> None:
        """Refuse new generations, and end the open ones with Unavailable."""
        self._closed = True
        for passing in list(self._open.values()):
            self._end(passing, Unavailable("the node is stopping"))

    def _takes(self, requester: Requester) -> bool:
        most, whose = self._limits.most, [each.request.requester for each in self._open]
        if len(whose) >= most or whose.count(requester) >= max(1, most // 2):
            return False
        free = sum(each.standing is Standing.FREE for each in whose)
        return requester.standing is not Standing.FREE or free < kept(Standing.FREE, most)

    async def _run(self, passing: Passing) -> None:
        failure: MeshnodeError | None = None
        try:
            with passing.scope:
                try:
                    await passing.run()
                except MeshnodeError as error:
                    failure = error
        finally:
            self._end(passing, failure or Unavailable("the node is stopping"))

    def _end(self, passing: Passing, failure: MeshnodeError) -> None:
        """End a generation with ``failure``, unless it has ended already."""
        if not passing.generation.ended:
            passing.generation.fail(failure, trio.current_time())
        self._finish(passing)

    def _finish(self, passing: Passing) -> None:
        """Meter an ended generation, and free its room. A second call does nothing."""
        passing.accepted.set()
        if self._open.pop(passing.generation, None) is None:
            return
        self._meter.ended(passing.generation)
        if not self._open:
            self._idle.set()
            self._idle = trio.Event()
