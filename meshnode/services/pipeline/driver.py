"""One generation over several nodes, from its first token to its last (interface 1).

A generation can be *interrupted* and driven again later (decision 0132): its positions so far are
computed once more, as a failover replays them, and it goes on with the tokens that it would have
had.

The driver computes its own layers, sends the hidden states through the remote ones, and samples
from the logits that come back. Prompts are cut into the same chunks as on a node that holds all
layers, so that every bit is the same as there; chunks follow one another through the holders.
Behind the latest token it may send *guesses* of those that follow (decision 0230): every token is
chosen from the logits that the plain way would have given, and what was sent behind a wrong guess
is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
import trio

from meshnode.domain.convoys import Convoy, ConvoyName
from meshnode.domain.errors import ComputationFailed
from meshnode.model.sampler import NoTokenPossible, Sampler
from meshnode.services.generation import GenerationState
from meshnode.services.pipeline.convoys import Traveller
from meshnode.services.pipeline.failover import RemoteLayers
from meshnode.services.pipeline.guessing import Guesses, SharedFigures
from meshnode.services.pipeline.logits import kept_for
from meshnode.services.pipeline.records import HopTime
from meshnode.services.shards.convoys import ConvoyPart

if TYPE_CHECKING:
    from meshnode.model.draft import DraftModel
    from meshnode.model.loading import ModelFacts
    from meshnode.services.executor import Executor, ShardSession
    from meshnode.services.generation import Generation
    from meshnode.services.pipeline.context import DriverContext
    from meshnode.services.pipeline.logits import LogitRows
    from meshnode.services.pipeline.records import HopRecorder, HopTrace

MAX_SAMPLING = 1
"""Threads that sample: keep cores free for the torch thread."""


@dataclass(slots=True)
class GenerationProgress:
    """What outlasts an interruption of a generation."""

    sampler: Sampler
    generated: list[int] = field(default_factory=list, repr=False)
    """The tokens so far. All but the last have been computed."""


@dataclass(frozen=True, slots=True)
class Driver:
    """Drives generations; one driver serves all of them."""

    node_id: str
    model: ModelFacts
    executor: Executor
    context: DriverContext
    recorder: HopRecorder
    sampling: trio.CapacityLimiter
    token: Callable[[Generation], None]
    """Called for each token."""
    speculate: bool = True
    """Whether tokens may be guessed."""
    draft: DraftModel | None = None
    """The small model that guesses them."""
    figures: SharedFigures = field(default_factory=SharedFigures)
    """What generations learn about guesses."""

    async def run(
        self, generation: Generation, trace: HopTrace, progress: GenerationProgress
    ) -> None:
        """Compute ``generation`` to its end, from ``progress`` on, which is kept up to date.

        Raises a domain error if that is not possible.
        """
        held = self.model.card.layers
        layers = range(held[0], held[-1] + 1)
        trace.spans = generation.trace
        # All hops compute with the weights that the generation began with (decision 0225).
        context = replace(self.context, routes=self.context.routes.over(generation.model_hash))
        remote = RemoteLayers(
            context,
            len(generation.prompt),
            generation.positions,
            trace,
            due=len(generation.prompt) + len(progress.generated) - 1,
            emitted=len(progress.generated),
            kept=kept_for(progress.sampler, self.context.vocab_size),
        )
        session = await self.executor.open_session(
            layers,
            generation.positions,
            generation.request.requester,
            generation.model_hash,
            bound=True,
        )
        try:
            if generation.ended:
                # The reader left at the moment in which the session was opened.
                return
            if generation.state is GenerationState.QUEUED:
                generation.admit(trio.current_time())
            await _Drive(self, generation, trace, progress, session, remote).run()
        finally:
            self.recorder.failovers += remote.failovers
            session.close()
            remote.close()

    def emit(self, generation: Generation, progress: GenerationProgress, token: int) -> None:
        """Hand a token to the generation's reader."""
        progress.generated.append(token)
        if generation.trace is not None:
            generation.trace.sampled(*progress.sampler.chose)
        self.token(generation)
        generation.advance(
            self.model.tokenizer.piece(token),
            end_of_text=token in self.model.eos_token_ids | generation.request.end_tokens,
            now=trio.current_time(),
            logprobs=progress.sampler.logprobs(self.model.tokenizer.piece),
        )


class _Drive:
    """One generation, while it has a place.

    What was sent is the prompt, the tokens so far, and the guesses. The latest token is *unsent*
    unless it was guessed.
    """

    def __init__(
        self,
        driver: Driver,
        generation: Generation,
        trace: HopTrace,
        progress: GenerationProgress,
        session: ShardSession,
        remote: RemoteLayers,
    ) -> None:
        self._driver = driver
        self._generation = generation
        self._trace = trace
        self._progress = progress
        self._session = session
        self._remote = remote
        prompt, generated = generation.prompt, progress.generated
        draft = None if driver.draft is None else driver.draft.session(generation.positions)
        self._guesses = Guesses(
            driver.figures,
            [*prompt, *generated],
            draft,
            driver.executor.compute,
            driver.context.spawn,
        )
        chunk = driver.context.prefill_chunk
        self._inputs = deque(
            tokens[start : start + chunk]
            for tokens in (prompt, generated)
            for start in range(0, len(tokens), chunk)
        )
        """Positions that are known and not sent yet."""
        self._unsent: list[int] = []
        self._traveller = Traveller()
        self._own_ms: float | None = None
        """What the driver's layers took for the position that was sent in a convoy."""
        self._measured: tuple[float, int] | None = None
        """When a pass began that has nothing in flight before it, and its positions."""

    async def run(self) -> None:
        """Generate to the end."""
        try:
            await self._run()
        finally:
            self._guesses.close()
            self._driver.context.convoys.leave(self._traveller)

    async def _run(self) -> None:
        convoys = self._driver.context.convoys
        while not self._generation.ended:
            await self._send()
            rows, times = await self._remote.receive()
            self._driver.recorder.add(times)
            self._trace.add(times)
            if self._own_ms is not None and len(rows) == 1:
                convoys.measured(self._traveller, self._own_ms, times)
            self._note_pass(len(rows))
            for row in range(len(rows)):
                token = await self._choose(rows, row)
                if self._generation.ended:
                    # The reader left while the thread sampled, which cannot be interrupted.
                    return
                in_flight = bool(self._guesses.ahead)
                self._driver.emit(self._generation, self._progress, token)
                right = self._guesses.settle(token)
                if self._generation.ended:
                    return
                if not in_flight:
                    self._unsent = [token]
                elif not right:
                    self._unsent = [token]
                    self._rewind()
                    break

    async def _send(self) -> None:
        """Send what is known, and guesses as long as they pay and the holders have room."""
        while self._remote.has_room or not self._remote.waits:
            tokens = self._inputs.popleft() if self._inputs else await self._next()
            if not tokens:
                return
            alone = not self._remote.waits and not self._inputs
            if alone:
                self._measured = trio.current_time(), len(tokens)
            prompt = len(self._generation.prompt)
            convoy = await self._convoy(tokens, alone=alone)
            name = None if convoy is None else ConvoyName("", convoy.name)
            own = await self._driver.executor.forward(
                self._session, torch.tensor([tokens]), decode_from=prompt, convoy=name
            )
            part = "" if convoy is None else str(ConvoyPart(convoy.name, convoy.size))
            await self._remote.send(own.states, part)
            self._own_ms = own.compute_ms if self._traveller.stages else None
            own_time = HopTime(
                self._driver.node_id,
                self._session.layers[0],
                self._session.layers[-1],
                own.queue_ms,
                own.compute_ms,
                0.0,
            )
            self._trace.add([own_time])

    async def _convoy(self, tokens: Sequence[int], *, alone: bool) -> Convoy | None:
        """The convoy with which the next position goes, once it departs; None if it goes alone."""
        convoys = self._driver.context.convoys
        if not alone or len(tokens) > 1 or not self._progress.generated:
            convoys.leave(self._traveller)
            return None
        return await convoys.depart(self._traveller, self._remote.hops)

    async def _next(self) -> Sequence[int]:
        """The latest token, if it is unsent, and guesses behind it."""
        unsent, self._unsent = self._unsent, []
        room = self._generation.positions - self._session.length - len(unsent)
        # The first pass of a path is one position, until the path has said what it takes.
        able = self._driver.speculate and self._remote.ahead > 0
        guesses = await self._guesses.propose(room) if able else []
        return [*unsent, *guesses]

    def _rewind(self) -> None:
        """Forget the positions of guesses that were wrong."""
        length = len(self._generation.prompt) + len(self._progress.generated) - 1
        self._session.rewind(length)
        self._remote.rewind(length)
        self._measured = None

    def _note_pass(self, rows: int) -> None:
        if rows and self._measured is not None and self._progress.generated:
            began, positions = self._measured
            if rows == positions:
                took_ms = (trio.current_time() - began) * 1e3
                self._driver.figures.costs.measured(positions, took_ms)
        self._measured = None

    async def _choose(self, rows: LogitRows, row: int) -> int:
        sampler = self._progress.sampler
        try:
            if rows.ids is not None:
                # A choice among a few takes less time than a thread does.
                return rows.choose(row, sampler)
            choose = partial(rows.choose, row, sampler)
            return await trio.to_thread.run_sync(choose, limiter=self._driver.sampling)
        except NoTokenPossible:
            raise ComputationFailed from None
