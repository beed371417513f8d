"""One generation over several nodes, from its first token to its last (document, section 1).

The driver computes its own layers, sends the hidden states through the remote ones, and samples
from the logits that come back. Prompts go in the chunks of a node that holds all layers, so that
every bit is the same as there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import trio

from meshnode.domain.errors import ComputationFailed
from meshnode.model.sampler import NonFiniteLogits, Sampler
from meshnode.services.pipeline.failover import Remainder
from meshnode.services.pipeline.records import HopTime

if TYPE_CHECKING:
    from meshnode.model.loading import LoadedModel
    from meshnode.services.executor import Executor
    from meshnode.services.generation import Generation
    from meshnode.services.pipeline.failover import Surroundings
    from meshnode.services.pipeline.records import Recorder, Trace

MOST_SAMPLING = 1
"""Threads that sample: the processors are the torch thread's."""


@dataclass(frozen=True, slots=True)
class Driver:
    """What drives generations; shared by all of them."""

    node_id: str
    model: LoadedModel
    executor: Executor
    around: Surroundings
    recorder: Recorder
    sampling: trio.CapacityLimiter
    token: Callable[[], None]
    """Called for each token."""

    async def run(self, generation: Generation, trace: Trace) -> None:
        """Compute ``generation`` to its end. Raises a domain error when that cannot be had."""
        prompt = generation.prompt
        positions = len(prompt) + generation.most_tokens - 1
        held = self.model.card.layers
        layers = range(held[0], held[-1] + 1)
        remainder = Remainder(self.around, len(prompt), positions, trace)
        session = await self.executor.open_session(layers, positions)
        try:
            generation.admit(trio.current_time())
            sampler = Sampler(generation.request)
            chunk = self.around.prefill_chunk
            inputs = [prompt[start : start + chunk] for start in range(0, len(prompt), chunk)]
            while not generation.ended:
                for tokens in inputs:
                    own = await self.executor.forward(session, torch.tensor([tokens]))
                    logits, times = await remainder.forward(own.states)
                    self.recorder.add(times)
                    mine = HopTime(
                        self.node_id, layers[0], layers[-1], own.queue_ms, own.compute_ms, 0.0
                    )
                    trace.add([mine, *times])
                token = await self._sample(sampler, logits)
                if generation.ended:
                    # A thread that has begun is not interrupted: the reader left meanwhile.
                    break
                self.token()
                generation.advance(
                    self.model.tokenizer.piece(token),
                    end_of_text=token in self.model.eos_token_ids,
                    now=trio.current_time(),
                )
                inputs = [[token]]
        finally:
            self.recorder.failovers += remainder.failovers
            session.close()
            remainder.close()

    async def _sample(self, sampler: Sampler, logits: torch.Tensor) -> int:
        try:
            return await trio.to_thread.run_sync(sampler.choose, logits, limiter=self.sampling)
        except NonFiniteLogits:
            raise ComputationFailed from None
