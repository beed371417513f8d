"""An executor with a small random model, and readers of its generations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio

from meshnode.domain.generation import Finished, GenerationRequest, TokenEvent
from meshnode.model.loading import LoadedModel
from meshnode.services.executor import EngineLimits, Executor, serve_executor
from meshnode.services.generation import Generation
from meshnode.services.pipeline import Pipeline

LIMITS = EngineLimits(max_batch=4, max_queue=3, kv_bytes=1 << 22, prefill_chunk=16)
GREEDY = GenerationRequest("A node serves", max_tokens=8, temperature=0.0)
LONG = replace(GREEDY, max_tokens=200)


async def with_executor(
    model: LoadedModel,
    use: Callable[[Executor], Awaitable[None]],
    limits: EngineLimits = LIMITS,
) -> None:
    async with trio.open_nursery() as nursery:
        executor = await nursery.start(serve_executor, model, limits)
        with trio.fail_after(300):
            await use(executor)
            # However the generations ended, no work and no memory may be left.
            while executor.active or executor.kv_bytes_in_use:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def read(generation: Generation) -> tuple[list[TokenEvent], Finished]:
    """Read a generation to its end; return its tokens and its last event."""
    tokens: list[TokenEvent] = []
    async for event in generation:
        if isinstance(event, Finished):
            finished = event
        else:
            tokens.append(event)
    return tokens, finished


async def complete(
    executor: Executor | Pipeline, request: GenerationRequest
) -> tuple[str, Finished]:
    """Run a request, check its events, and return its text and last event."""
    async with await executor.open(request) as generation:
        tokens, finished = await read(generation)
        assert generation.usage == finished.usage
    assert [event.index for event in tokens] == list(range(len(tokens)))
    assert finished.usage.completion_tokens == len(tokens)
    return "".join(event.text for event in tokens), finished
