"""A generation that is left, cancelled or stopped frees its place within one step."""

from dataclasses import replace

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from meshnode.domain.batching import Scheduler
from meshnode.domain.chunks import Pace
from meshnode.domain.errors import (
    Unavailable,
)
from meshnode.domain.shares import Requester, Standing
from meshnode.model.loading import LoadedModel
from meshnode.services.executor import Executor, serve_executor
from meshnode.services.executor.generation_steps import MAX_WASTED_S
from spec_tests.services.executor.generations import GREEDY, LIMITS, LONG, read, with_executor

ALICE = Requester(Standing.PAYING, "alice")


async def test_leaving_stops_the_work_within_one_step(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        async with await executor.open(LONG) as generation:
            for _ in range(3):
                await anext(generation)
            assert executor.kv_bytes_in_use > 0
            steps = executor.steps
        while executor.active:
            await trio.lowlevel.checkpoint()
        assert executor.steps - steps <= 1
        assert executor.kv_bytes_in_use == 0
        used = generation.usage
        # More tokens may have been emitted than were read; usage counts all emitted ones.
        assert 3 <= used.completion_tokens <= 5
        await wait_all_tasks_blocked()
        assert generation.usage == used
        figures = executor.meter.snapshot(trio.current_time())
        assert figures.tokens_generated == used.completion_tokens
        assert figures.p99_latency_ms > 0

    await with_executor(model, use)


async def test_leaving_while_queued_frees_the_place(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        async with await executor.open(LONG), await executor.open(LONG) as queued:
            assert executor.queued == 1
            async with await executor.open(GREEDY):
                assert executor.queued == 2
            assert executor.queued == 1
            assert queued.usage.completion_tokens == 0
        assert (executor.active, executor.queued) in {(0, 0), (1, 0)}

    await with_executor(model, use, replace(LIMITS, max_batch=1))


async def test_a_cancelled_reader_frees_its_place(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        with trio.CancelScope() as scope:
            async with await executor.open(LONG) as generation:
                async for _ in generation:
                    scope.cancel()
        assert scope.cancelled_caught
        while executor.active:
            await trio.lowlevel.checkpoint()

    await with_executor(model, use)


async def test_cancelling_the_service_ends_what_is_open(model: LoadedModel) -> None:
    failures: list[str] = []
    async with trio.open_nursery() as outer:

        async def reader(executor: Executor) -> None:
            async with await executor.open(LONG) as generation:
                try:
                    await read(generation)
                except Unavailable:
                    failures.append("unavailable")

        async with trio.open_nursery() as service:
            executor: Executor = await service.start(
                serve_executor, model, replace(LIMITS, max_batch=1)
            )
            for _ in range(3):
                outer.start_soon(reader, executor)
            while not executor.steps or executor.active < 3:
                await trio.lowlevel.checkpoint()
            service.cancel_scope.cancel()
        assert executor.active == executor.kv_bytes_in_use == 0
    assert failures == ["unavailable"] * 3
    with pytest.raises(Unavailable):
        await executor.open(GREEDY)
    assert executor.device_check() == "failing"


async def test_a_prompt_that_is_computed_for_nobody_counts_several_times(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed: list[tuple[str, float]] = []

    def owe(scheduler: object, requester: Requester, seconds: float) -> None:
        owed.append((requester.name, seconds))

    monkeypatch.setattr(Scheduler, "owe", owe)
    # So that the prompt takes several steps.
    monkeypatch.setattr(Pace, "budget", lambda pace, *, streaming: 16)

    async def use(executor: Executor) -> None:
        async with await executor.open(replace(GREEDY, requester=ALICE)) as generation:
            await anext(generation)
        # The step that was in progress counts too.
        await executor.wait_idle()
        await wait_all_tasks_blocked()
        # What the event loop took for the token that was read.
        owed.clear()
        steps = executor.steps
        async with await executor.open(replace(LONG, prompt=LONG.prompt * 20, requester=ALICE)):
            while executor.steps == steps:
                await trio.lowlevel.checkpoint()
        await executor.wait_idle()

    await with_executor(model, use)
    assert owed
    assert all(name == "alice" and 0 < seconds <= MAX_WASTED_S for name, seconds in owed)
