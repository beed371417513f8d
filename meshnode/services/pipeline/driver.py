"""One generation over several nodes, from its first token to its last (interface 1).

A generation can be *interrupted* and driven again later (decision 0132): its positions so far are
computed once more, as a failover replays them, and it goes on with the tokens that it would have
had.

The driver computes its own layers, sends the hidden states through the remote ones, and samples
from the logits that come back. Prompts are cut into the same chunks as on a node that holds all
layers, so that every bit is the same as there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import trio

from meshnode.domain.errors import ComputationFailed
from meshnode.model.sampler import NonFiniteLogits, Sampler
from meshnode.services.generation import GenerationState
from meshnode.services.pipeline.failover import RemoteLayers
from meshnode.services.pipeline.records import HopTime

if TYPE_CHECKING:
    from meshnode.model.loading import LoadedModel
    from meshnode.services.executor import Executor
    from meshnode.services.generation import Generation
    from meshnode.services.pipeline.failover import DriverContext
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
    model: LoadedModel
    executor: Executor
    context: DriverContext
    recorder: HopRecorder
    sampling: trio.CapacityLimiter
    token: Callable[[], None]
    """Called for each token."""

    async def run(
        self, generation: Generation, trace: HopTrace, progress: GenerationProgress
    ) -> None:
        """Compute ``generation`` to its end, from ``progress`` on, which is kept up to date.

        Raises a domain error if that is not possible.
        """
        prompt = generation.prompt
        positions = generation.positions
        held = self.model.card.layers
        layers = range(held[0], held[-1] + 1)
        remote = RemoteLayers(self.context, len(prompt), positions, trace)
        session = await self.executor.open_session(layers, positions, generation.request.requester)
        try:
            if generation.ended:
                # The reader left at the moment in which the session was opened.
                return
            if generation.state is GenerationState.QUEUED:
                generation.admit(trio.current_time())
            chunk = self.context.prefill_chunk
            inputs = [
                tokens[start : start + chunk]
                for tokens in (prompt, progress.generated)
                for start in range(0, len(tokens), chunk)
            ]
            while not generation.ended:
                for tokens in inputs:
                    own = await self.executor.forward(
                        session, torch.tensor([tokens]), decode_from=len(prompt)
                    )
                    logits, times = await remote.forward(own.states)
                    self.recorder.add(times)
                    own_time = HopTime(
                        self.node_id, layers[0], layers[-1], own.queue_ms, own.compute_ms, 0.0
                    )
                    trace.add([own_time, *times])
                token = await self._sample(progress.sampler, logits)
                if generation.ended:
                    # The reader left while the thread sampled, which cannot be interrupted.
                    break
                progress.generated.append(token)
                self.token()
                generation.advance(
                    self.model.tokenizer.piece(token),
                    end_of_text=token in self.model.eos_token_ids,
                    now=trio.current_time(),
                )
                inputs = [[token]]
        finally:
            self.recorder.failovers += remote.failovers
            session.close()
            remote.close()

    async def _sample(self, sampler: Sampler, logits: torch.Tensor) -> int:
        try:
            return await trio.to_thread.run_sync(sampler.choose, logits, limiter=self.sampling)
        except NonFiniteLogits:
            raise ComputationFailed from None
