"""The queue and the memory for keys and values are bounded."""

from dataclasses import replace

import pytest
import trio

from meshnode.domain.errors import (
    RateLimited,
    StartupError,
)
from meshnode.model.kv import KVCache
from meshnode.model.loading import LoadedModel
from meshnode.services.executor import Executor, serve_executor
from spec_tests.services.executor.generations import (
    GREEDY,
    LIMITS,
    LONG,
    complete,
    read,
    with_executor,
)


async def test_a_full_queue_says_when_to_come_back(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        async with trio.open_nursery() as nursery:
            places = LIMITS.max_batch + LIMITS.max_queue
            held = [await executor.open(LONG) for _ in range(places)]
            with pytest.raises(RateLimited) as caught:
                await executor.open(GREEDY)
            assert caught.value.retry_after >= 1
            for generation in held:
                async with generation:
                    pass
            nursery.cancel_scope.cancel()
        await complete(executor, GREEDY)

    await with_executor(model, use)


async def test_requests_that_come_together_for_the_last_place_are_served_or_refused(
    model: LoadedModel,
) -> None:
    """Each checks the queue again after tokenising: others may have filled it meanwhile."""
    limits = replace(LIMITS, max_batch=1, max_queue=0)

    async def use(executor: Executor) -> None:
        outcomes: list[str] = []

        async def one() -> None:
            try:
                async with await executor.open(GREEDY) as generation:
                    await read(generation)
                    outcomes.append("served")
            except RateLimited:
                outcomes.append("refused")

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(one)
        assert outcomes.count("served") >= 1
        assert len(outcomes) == 6

    await with_executor(model, use, limits)


async def test_memory_for_keys_and_values_bounds_the_batch(model: LoadedModel) -> None:
    per_token = KVCache.allocate(model.decoder.config, 4, 1).nbytes
    limits = replace(LIMITS, kv_bytes=50 * per_token)

    async def use(executor: Executor) -> None:
        assert executor.card.context_length == 50
        most = 0
        async with trio.open_nursery() as nursery:

            async def one() -> None:
                nonlocal most
                async with await executor.open(replace(GREEDY, max_tokens=20)) as generation:
                    async for _ in generation:
                        most = max(most, executor.kv_bytes_in_use)

            for _ in range(5):
                nursery.start_soon(one)
        assert 0 < most <= limits.kv_bytes

    await with_executor(model, use, limits)


async def test_limits_without_room_for_a_token_are_an_error_at_start(model: LoadedModel) -> None:
    with pytest.RaisesGroup(StartupError):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_executor, model, replace(LIMITS, kv_bytes=10))
