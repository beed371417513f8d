"""The executor's work for generations, on a node that holds all layers of its model.

Terms: a generation that is *suspended* has given its place and memory to another one
(decision 0132). It computes its positions again later, those that are not kept (decision 0158), and
goes on with the same tokens.

Invariants: a generation is in the scheduler from ``submit`` until it has ended; what the torch
thread is using is freed only after the step; a generation that fails takes no other along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from meshnode.domain.batching import Scheduler
from meshnode.domain.chunks import Chunk
from meshnode.domain.errors import (
    LayersUnavailable,
    MeshnodeError,
    Unavailable,
)
from meshnode.domain.prefixes import Prefixes
from meshnode.domain.shares import Requester
from meshnode.model.engine import ComputationError, Outcome, Session
from meshnode.model.failures import is_out_of_memory, reported
from meshnode.model.kv import KVCache
from meshnode.services.admission import GenerationMeter
from meshnode.services.executor.sessions import ShardSession
from meshnode.services.executor.torch_thread import TorchThread
from meshnode.services.executor.versions import ServedVersion, Versions
from meshnode.services.generation import Generation

log = logging.getLogger(__name__)

Item = TypeVar("Item")

WASTE = 4.0
"""The time of a prompt counts so many times more if its caller leaves before the first token, since
nobody pays for it (decision 0142)."""
MAX_WASTED_S = 1.0
"""The most that is counted for one generation."""

REFUSAL_S = 0.001
"""What a refused request takes of the event loop, about; 1.2 to 1.3 ms were measured on a Xeon."""


class GenerationSteps:
    """The generations in the executor's scheduler. A :class:`~.admission.GenerationQueue`."""

    def __init__(
        self,
        versions: Versions,
        scheduler: Scheduler[Generation | ShardSession],
        *,
        meter: GenerationMeter,
        validate_open: Callable[[], None],
        make_room: Callable[[Requester], None],
        changed: Callable[[], None],
    ) -> None:
        """``validate_open`` raises Unavailable once the executor has stopped.

        ``make_room`` lets somebody else leave a full queue if this requester comes first.
        ``changed`` is called when there may be work, or room for generations that wait.
        """
        self._versions = versions
        self._scheduler = scheduler
        self._version_of: dict[Generation, ServedVersion] = {}
        """What each generation in the scheduler computes with."""
        self._meter = meter
        self._validate_open = validate_open
        self._make_room = make_room
        self._changed = changed
        self._sessions: dict[Generation, Session] = {}
        self.prefixes: Prefixes[KVCache] = Prefixes()
        """What was computed for generations that have ended."""
        self._in_step: frozenset[Generation] = frozenset()
        self._unpaid_s: dict[Generation, float] = {}
        """Computing time of the prompts of generations without a token."""
        self.failed: bool | None = None
        """Whether all generations of the latest step failed; None before the first step."""

    def validate_ready(self, requester: Requester) -> None:
        """Raises Unavailable, LayersUnavailable or RateLimited if no generation can be taken."""
        self._validate_open()
        if not self._versions.current.model.card.complete:
            raise LayersUnavailable("this node holds only a part of the model's layers")
        if not self._scheduler.takes(requester):
            # Asking again and again takes the time of others who compute.
            self._scheduler.owe(requester, REFUSAL_S)
            raise self._meter.queue_full()

    def submit(self, generation: Generation) -> bool:
        """Take a generation into the queue; False when the queue is full."""
        version = self._versions.current
        kv_bytes = version.engine.kv_bytes(generation.positions)
        requester = generation.request.requester
        self._make_room(requester)
        taken = self._scheduler.submit(
            generation, len(generation.prompt), kv_bytes, requester, trio.current_time()
        )
        if taken:
            generation.model_hash = version.model_hash
            self._version_of[generation] = version
            self._versions.retain(version)
        self._changed()
        return taken

    def leave(self, generation: Generation) -> None:
        """End a generation whose reader has left. Its place is free at once, or after the step."""
        if generation.ended:
            return
        generation.cancel(trio.current_time())
        self._meter.ended(generation)
        self._note_waste(generation, self._unpaid_s.get(generation, 0.0))
        if generation not in self._in_step:
            self._drop(generation)

    # The service calls the methods below.

    def admit(self, generation: Generation) -> None:
        """Allocate the cache of a generation that was given a place in the batch."""
        suspended, engine = self._sessions.get(generation), self._version_of[generation].engine
        try:
            if suspended is None:
                generation.admit(trio.current_time())
                found = self._find_prefix(generation, generation.prompt)
                session = self._sessions[generation] = engine.session(
                    generation.prompt,
                    generation.positions,
                    generation.request,
                    generation.constraint,
                )
            else:
                session, tokens = suspended, [*generation.prompt, *suspended.generated]
                found = self._find_prefix(generation, tokens, again=True)
                engine.resume(session, generation.positions)
            if found is not None:
                session.prefix = found
                self._scheduler.skip(generation, found[1])
        except ComputationError as error:
            log.error("generation %s: no room for its cache: %r", generation.id, error)
            self._fail(generation, reported(error))
            self._drop(generation)

    def suspend(self, generation: Generation) -> None:
        """Take the generation's place and memory; it goes on when it is admitted again.

        What was computed is kept if there is memory for it that nobody reserves.
        """
        session = self._sessions[generation]
        prompt = len(generation.prompt)
        stop = prompt + len(session.generated)
        self._scheduler.suspend(generation, stop, prompt, trio.current_time())
        self._keep_prefix(generation, session)
        self._version_of[generation].engine.suspend(session)

    def refuse(self, generation: Generation, failure: MeshnodeError) -> None:
        """End a generation that waits for a place."""
        self._fail(generation, failure)
        self._drop(generation)

    async def extend(
        self, chunks: Sequence[Chunk[Generation | ShardSession]], compute: TorchThread
    ) -> None:
        """Compute chunks of the prompts of generations, in one call for each version."""
        for version, some in self._by_version(chunks, lambda chunk: chunk.key):
            await self._extend(version, some, compute)

    async def _extend(
        self,
        version: ServedVersion,
        chunks: Sequence[Chunk[Generation | ShardSession]],
        compute: TorchThread,
    ) -> None:
        batch = [chunk.key for chunk in chunks if isinstance(chunk.key, Generation)]
        parts = [
            (self._sessions[generation], chunk.start, chunk.stop)
            for generation, chunk in zip(batch, chunks, strict=True)
        ]
        self._in_step = frozenset(batch)
        begun = trio.current_time()
        outcomes = await compute(partial(version.engine.prefill_together, parts))
        position_s = (trio.current_time() - begun) / sum(stop - start for _, start, stop in parts)
        for generation, chunk in zip(batch, chunks, strict=True):
            took_s = position_s * (chunk.stop - chunk.start)
            if generation.ended:
                self._note_waste(generation, took_s)
            else:
                self._unpaid_s[generation] = self._unpaid_s.get(generation, 0.0) + took_s
            self._scheduler.prefilled(chunk)
        self._after_step(batch, outcomes, begun)

    async def step(self, compute: TorchThread) -> int:
        """Compute a token for every generation that decodes. Returns the number of engine calls."""
        batch = [key for key in self._scheduler.decoding() if isinstance(key, Generation)]
        groups = self._by_version(batch, lambda generation: generation)
        for version, group in groups:
            # Generations may have ended while another group was computed.
            some = [generation for generation in group if generation in self._sessions]
            if not some:
                continue
            self._in_step = frozenset(some)
            sessions = [self._sessions[generation] for generation in some]
            begun = trio.current_time()
            self._after_step(some, await compute(partial(version.engine.decode, sessions)), begun)
        return len(groups)

    def _by_version(
        self, items: Sequence[Item], generation_of: Callable[[Item], object]
    ) -> list[tuple[ServedVersion, list[Item]]]:
        """Items of generations in groups that compute with the same weights."""
        groups: dict[int, tuple[ServedVersion, list[Item]]] = {}
        for item in items:
            generation = generation_of(item)
            if isinstance(generation, Generation):
                version = self._version_of[generation]
                groups.setdefault(id(version), (version, []))[1].append(item)
        return list(groups.values())

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
        self.failed = all(
            isinstance(outcome, Exception) and not is_out_of_memory(outcome) for outcome in outcomes
        )
        taken_s: dict[Requester, float] = {}
        before = trio.current_time()
        for requester, generation, outcome in zip(requesters, batch, outcomes, strict=True):
            if not generation.ended:
                self._take(generation, outcome)
            if generation.ended:
                self._drop(generation)
            now = trio.current_time()
            taken_s[requester] = taken_s.get(requester, 0.0) + now - before
            before = now
        for requester, seconds in taken_s.items():
            # Tokens cost the event loop's time too, those with log probabilities most of all.
            self._scheduler.owe(requester, seconds)

    def _take(self, generation: Generation, outcome: Outcome | None) -> None:
        """Hand one outcome to its generation; None stands for a prompt that has more chunks."""
        if isinstance(outcome, int):
            self._unpaid_s.pop(generation, None)
            self._meter.token(generation)
            sampler, model = self._sessions[generation].sampler, self._version_of[generation].model
            if generation.trace is not None:
                generation.trace.sampled(*sampler.chose)
            generation.advance(
                model.tokenizer.piece(outcome),
                end_of_text=outcome in model.eos_token_ids | generation.request.end_tokens,
                now=trio.current_time(),
                logprobs=sampler.logprobs(model.tokenizer.piece),
            )
            if generation.ended:
                self._meter.ended(generation)
        elif outcome is not None:
            log.error("generation %s: %r", generation.id, outcome)
            self._fail(generation, reported(outcome))

    def _find_prefix(
        self, generation: Generation, tokens: Sequence[int], *, again: bool = False
    ) -> tuple[KVCache, int] | None:
        """What was computed of the tokens before; their last position is always computed."""
        version = self._version_of[generation]
        if not version.engine.seamless or version is not self._versions.current:
            return None
        found = self.prefixes.find(generation.request.requester, tokens[:-1], again=again)
        self.make_way()
        if found is None or not self.prefixes.holds(found[0]):
            return None
        return found[0].cache, found[1]

    def _keep_prefix(self, generation: Generation, session: Session) -> None:
        """Keep the cache of one that has lost its place, in the memory that nobody reserves."""
        cache, version = session.cache, self._version_of[generation]
        # Keys and values belong to the weights that made them, and only new generations look.
        current = version is self._versions.current
        if version.engine.seamless and current and cache.length:
            tokens = [*generation.prompt, *session.generated][: cache.length]
            nbytes = version.engine.kv_bytes(cache.capacity)
            self.prefixes.keep(generation.request.requester, tokens, cache, nbytes)
            self.make_way()

    def forget_prefixes(self) -> None:
        """Drop all prefixes, because another version has become the current one."""
        self.prefixes.shrink(0)

    def make_way(self) -> None:
        """Drop prefixes whose memory is reserved for sessions now."""
        self.prefixes.shrink(self._scheduler.limits.kv_bytes - self._scheduler.kv_bytes_in_use)

    def _note_waste(self, generation: Generation, seconds: float) -> None:
        """Count time that was computed for a caller who has left before the first token."""
        if not generation.usage.completion_tokens and seconds:
            wasted_s = min(seconds * WASTE, MAX_WASTED_S)
            self._scheduler.owe(generation.request.requester, wasted_s)

    def _fail(self, generation: Generation, failure: MeshnodeError) -> None:
        generation.fail(failure, trio.current_time())
        self._meter.ended(generation)

    def _drop(self, generation: Generation) -> None:
        """Free the generation's place and memory."""
        self._scheduler.leave(generation)
        session = self._sessions.pop(generation, None)
        if session is not None:
            self._keep_prefix(generation, session)
        self._unpaid_s.pop(generation, None)
        version = self._version_of.pop(generation, None)
        if version is not None:
            self._versions.release(version)
        self._changed()
