"""Generations share the torch thread: none stalls, and each has its usual result."""

import math
import threading
from dataclasses import replace

import pytest
import torch
import trio

from meshnode.domain.generation import Finished, GenerationRequest
from meshnode.model.loading import LoadedModel
from meshnode.services.executor import Executor
from spec_tests.services.executor.generations import (
    GREEDY,
    LIMITS,
    LONG,
    complete,
    read,
    with_executor,
)


async def test_a_reader_that_stops_reading_delays_nobody(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        async with await executor.open(LONG) as stalled:
            for _ in range(5):
                await complete(executor, GREEDY)
            while executor.active:
                await trio.lowlevel.checkpoint()
            # The unread generation ran to its end, and kept every event.
            tokens, finished = await read(stalled)
            assert len(tokens) == finished.usage.completion_tokens == 200

    await with_executor(model, use)


async def test_a_long_prompt_does_not_stall_the_others(model: LoadedModel) -> None:
    """At most one chunk of a prompt is computed between two tokens of a running generation."""

    async def use(executor: Executor) -> None:
        async with await executor.open(LONG) as running:
            await anext(running)
            before = running.usage.completion_tokens
            async with await executor.open(replace(GREEDY, prompt="x" * 200)) as late:
                first_steps = executor.steps
                await anext(late)
                chunks = math.ceil(len(late.prompt) / LIMITS.prefill_chunk)
                assert chunks > 4
                tokens_meanwhile = running.usage.completion_tokens - before
                assert tokens_meanwhile >= chunks - 1
                assert executor.steps - first_steps <= 2 * chunks + 3

    await with_executor(model, use)


async def test_thirty_two_at_once_get_what_each_gets_alone(model: LoadedModel) -> None:
    limits = replace(LIMITS, max_batch=8, max_queue=32)
    requests = [
        GenerationRequest(f"Request {i}: " + "word " * (i % 7), max_tokens=10 + i % 5, seed=i)
        for i in range(32)
    ]

    async def use(executor: Executor) -> None:
        alone = [await complete(executor, request) for request in requests]
        together: list[tuple[str, Finished] | None] = [None] * 32

        async def one(i: int) -> None:
            together[i] = await complete(executor, requests[i])

        async with trio.open_nursery() as nursery:
            for i in range(32):
                nursery.start_soon(one, i)
        for mine, other in zip(alone, together, strict=True):
            assert other is not None
            assert mine[0] == other[0]
            assert mine[1].usage == other[1].usage
            assert mine[1].finish_reason == other[1].finish_reason
        assert executor.meter.snapshot(trio.current_time()).requests_total == 64

    await with_executor(model, use, limits)


async def test_torch_computes_in_one_thread_off_the_event_loop(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlap = threading.Lock()
    event_loop = threading.get_ident()
    run = model.decoder.run

    def watched(*args: object, **kwargs: object) -> torch.Tensor:
        assert threading.get_ident() != event_loop
        assert overlap.acquire(blocking=False)
        try:
            return run(*args, **kwargs)  # type: ignore[arg-type]
        finally:
            overlap.release()

    monkeypatch.setattr(model.decoder, "run", watched)

    async def use(executor: Executor) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(complete, executor, GREEDY)

    await with_executor(model, use)
