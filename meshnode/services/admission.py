"""Admission of generations: tokenise, queue, retry later, measure (interface 1, 2.1 and 4.1).

Terms: a *generation queue* holds admitted generations and computes them: the executor of a node
that holds all layers, or the pipeline of one that holds a part. A *place* is room for one
generation that computes.

Invariant: a prompt is tokenised only if the queue could take it at that moment, and it is queued
only if the queue can still take it afterwards.
"""

from __future__ import annotations

import math
import uuid
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from meshnode.domain.errors import RateLimited
from meshnode.model.prompts import Prompts
from meshnode.services.generation import Generation
from meshnode.services.observing import UNOBSERVED
from meshnode.turns import count_no_more, counted

if TYPE_CHECKING:
    from meshnode.domain.generation import GenerationRequest
    from meshnode.domain.metering import InferenceMeter
    from meshnode.domain.shares import Requester
    from meshnode.model.loading import ModelFacts
    from meshnode.services.observing import GenerationObserver

MAX_TOKENIZING = 2
"""Prompts tokenised at once: keep cores free for the torch thread."""
STARVING_FOR_S = 30.0
"""A request that waited in vain counts for this long: a node without requests serves nobody."""
RECENT = 0.2
"""Weight of the newest generation in the average duration."""


class GenerationQueue(Protocol):
    """Where admitted generations wait and are computed."""

    def validate_ready(self, requester: Requester) -> None:
        """Raises RateLimited, LayersUnavailable or Unavailable if none can be taken for them."""

    def submit(self, generation: Generation) -> bool:
        """Take a generation into the queue; False when the queue is full."""

    def leave(self, generation: Generation) -> None:
        """Note that a generation's reader has left; the generation may have ended already."""


class GenerationMeter:
    """Measures generations, and estimates from them when a place will be free."""

    def __init__(
        self, figures: InferenceMeter, places: int, observer: GenerationObserver = UNOBSERVED
    ) -> None:
        """``figures`` are the node's, for ``/metrics``; ``places`` is how many compute at once."""
        self._figures = figures
        self._observer = observer
        self._places = places
        self._average_s = 1.0

    def admitted(self, generation: Generation) -> None:
        """Count a generation that has been queued."""
        self._figures.admitted(trio.current_time())
        self._observer.began(generation)

    def token(self, generation: Generation) -> None:
        """Count a token that ``generation`` is about to emit."""
        figures, now = self._figures, trio.current_time()
        figures.token()
        if generation.emitted_at is None:
            figures.first_token_s.add(now - generation.opened_at)
        else:
            figures.next_token_s.add(now - generation.emitted_at)

    def ended(self, generation: Generation) -> None:
        """Measure a generation that has just ended, however it ended."""
        now = trio.current_time()
        timing = generation.timing(now)
        self._figures.finished(now, timing.total_ms)
        reason = generation.finish_reason
        self._figures.outcomes[reason or generation.state.value] += 1
        self._figures.request_s.add(timing.total_ms / 1e3)
        self._figures.queue_s.add(timing.queue_ms / 1e3)
        if timing.inference_ms:
            self._figures.prompt_tokens += len(generation.prompt)
            # One that never had a place says nothing of how long places are taken.
            self._average_s += RECENT * (timing.inference_ms / 1e3 - self._average_s)
        self._observer.ended(generation)

    def queue_full(self) -> RateLimited:
        """The error for a full queue. It says when the next generation is likely to end."""
        return RateLimited(
            math.ceil(self._average_s / self._places), "the queue for the model is full"
        )


class Starvation:
    """Notices when requests wait in vain and nobody gets a place, for the node's health."""

    def __init__(self) -> None:
        self._placed_at = -math.inf
        self._seen_at = -math.inf

    def placed(self, now: float) -> None:
        """A generation has got a place."""
        self._placed_at = now

    def timed_out(self, waited_s: float, now: float) -> None:
        """A request was refused after having waited for ``waited_s`` seconds."""
        if self._placed_at <= now - waited_s:
            self._seen_at = now

    def lasts(self, now: float) -> bool:
        """Whether nobody is served: no place was given since, and this is recent."""
        return self._placed_at < self._seen_at and now - self._seen_at < STARVING_FOR_S


class Admission:
    """Opens the generations of one queue."""

    def __init__(
        self,
        model: ModelFacts,
        context_length: int,
        queue: GenerationQueue,
        meter: GenerationMeter,
    ) -> None:
        """``context_length`` bounds prompt and completion together."""
        self._prompts = Prompts(model, context_length)
        self._context = context_length
        self._queue = queue
        self._meter = meter
        self._tokenizing = trio.CapacityLimiter(MAX_TOKENIZING)

    async def open(self, request: GenerationRequest) -> Generation:
        """Tokenise the prompt and queue the generation.

        Raises InvalidRequest if the prompt does not fit the context or the JSON Schema cannot be
        kept to, RateLimited when the queue is full, LayersUnavailable when no reachable node holds
        some layer, Unavailable when stopped.
        """
        opened_at = trio.current_time()
        # Checked again below. Checking here as well spares a busy node the tokenising.
        self._queue.validate_ready(request.requester)
        prepare = counted(partial(self._prompts.prepared, request))
        prompt, constraint = await trio.to_thread.run_sync(
            prepare, limiter=self._tokenizing, abandon_on_cancel=True
        )
        self._queue.validate_ready(request.requester)
        count_no_more()
        generation = Generation(
            request,
            id=f"gen-{uuid.uuid4().hex}",
            prompt=prompt,
            most_tokens=min(request.max_tokens, self._context - len(prompt)),
            opened_at=opened_at,
            leave=self._queue.leave,
            constraint=constraint,
        )
        if not self._queue.submit(generation):
            raise self._meter.queue_full()
        self._meter.admitted(generation)
        return generation
