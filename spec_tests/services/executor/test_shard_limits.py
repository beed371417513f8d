"""Pipeline sessions in the executor: their memory, the queue, refusals and shutdown."""

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
import trio.testing

from meshnode.domain.errors import (
    InvalidRequest,
    LayerNotHeld,
    RateLimited,
    Unavailable,
)
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import Executor, ShardSession, serve_executor
from spec_tests.services.shards.holders import LIMITS, executor_of, until_free

pytestmark = pytest.mark.usefixtures("one_thread")


def cache_of(session: ShardSession) -> torch.Tensor:
    """Return the session's key-value storage, unused positions included."""
    assert session.shard is not None
    return session.shard.cache.storage


async def test_memory_counts_grows_and_is_given_back(model: LoadedModel) -> None:
    async with executor_of(model) as executor:
        per_position = executor.versions.current.engine.kv_bytes(1, 2)
        session = await executor.open_session(range(2), 10)
        assert executor.kv_bytes_in_use == 10 * per_position
        await executor.forward(session, torch.ones(1, 10, dtype=torch.int64))
        first = cache_of(session)[..., :10, :].clone()
        await executor.forward(session, torch.ones(1, 1, dtype=torch.int64))
        assert session.capacity == 20
        assert executor.kv_bytes_in_use == cache_of(session).nbytes == 20 * per_position
        assert torch.equal(cache_of(session)[..., :10, :], first)
        session.close()
        session.close()
        assert executor.kv_bytes_in_use == 0
        with pytest.raises(Unavailable):
            await executor.forward(session, torch.ones(1, 1, dtype=torch.int64))


async def test_growth_beyond_the_budget_is_refused_and_harmless(model: LoadedModel) -> None:
    of_all_layers = 4 * 2 * 2 * 16 * 4
    limits = replace(LIMITS, kv_bytes=40 * of_all_layers)
    async with executor_of(model, limits) as executor:
        filler = await executor.open_session(range(2), 40)
        a = await executor.open_session(range(2), 16)
        b = await executor.open_session(range(2, 4), 16)
        ids = torch.ones(1, 16, dtype=torch.int64)
        states = (await executor.forward(a, ids)).states
        # Doubling the capacity does not fit the budget, but the needed positions do.
        await executor.forward(a, ids[:, :3])
        assert a.capacity == 19
        await executor.forward(b, states)
        with pytest.raises(RateLimited):
            await executor.forward(b, states)
        assert b.length == 16
        filler.close()
        assert (await executor.forward(b, states)).is_logits
        assert b.length == 32
        with pytest.raises(InvalidRequest):
            await executor.forward(b, states)
        a.close()
        b.close()


@pytest.mark.parametrize(
    ("layers", "inputs"),
    [
        (range(2), torch.zeros(1, 3)),
        (range(2), torch.full((1, 3), 320)),
        (range(2), torch.full((1, 3), -1)),
        (range(2), torch.zeros(2, 3, dtype=torch.int64)),
        (range(2), torch.zeros(1, 0, dtype=torch.int64)),
        (range(1, 3), torch.zeros(1, 3, dtype=torch.int64)),
        (range(1, 3), torch.zeros(1, 3, 63)),
        (range(1, 3), torch.zeros(1, 0, 64)),
        (range(1, 3), torch.zeros(1, 2, 64, dtype=torch.float64)),
        (range(1, 3), torch.zeros(64)),
    ],
)
async def test_inputs_that_do_not_fit_are_refused(
    model: LoadedModel, layers: range, inputs: torch.Tensor
) -> None:
    async with executor_of(model) as executor:
        session = await executor.open_session(layers, 16)
        with pytest.raises(InvalidRequest):
            await executor.forward(session, inputs)
        session.close()


async def test_layers_that_are_not_held_are_refused(directory: Path) -> None:
    async with executor_of(load_model(directory, [1, 2], threads=1)) as executor:
        for layers in (range(4), range(1), range(2, 4), range(3, 4), range(1, 1), range(-1, 2)):
            with pytest.raises(LayerNotHeld):
                await executor.open_session(layers, 4)
        with pytest.raises(InvalidRequest):
            await executor.open_session(range(1, 3), 0)
        (await executor.open_session(range(2, 3), 4)).close()


async def test_sessions_queue_like_generations(model: LoadedModel) -> None:
    limits = replace(LIMITS, max_batch=2, max_queue=1)
    async with executor_of(model, limits) as executor:
        first, _second = [await executor.open_session(range(4), 8) for _ in range(2)]
        opened: list[ShardSession] = []

        async def third() -> None:
            opened.append(await executor.open_session(range(4), 8))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(third)
            while not executor.queued:
                await trio.lowlevel.checkpoint()
            with pytest.raises(RateLimited):
                await executor.open_session(range(4), 8)
            assert not opened
            first.close()
        for session in (_second, *opened):
            session.close()


async def test_a_cancelled_caller_leaves_the_queue(model: LoadedModel) -> None:
    limits = replace(LIMITS, max_batch=1, max_queue=1)
    async with executor_of(model, limits) as executor:
        held = await executor.open_session(range(4), 8)
        with trio.move_on_after(0.02) as waiting:
            await executor.open_session(range(4), 8)
        assert waiting.cancelled_caught
        assert executor.queued == 0
        held.close()


async def test_cancelling_the_service_ends_sessions_and_their_calls(model: LoadedModel) -> None:
    ended: list[str] = []

    async def use(executor: Executor) -> None:
        try:
            session = await executor.open_session(range(4), 250)
            for i in itertools.count(1):
                await executor.forward(session, torch.ones(1, 1 + i % 9, dtype=torch.int64))
                session.rewind(0)
        except Unavailable:
            ended.append("unavailable")

    async with trio.open_nursery() as outer:
        async with trio.open_nursery() as service:
            executor: Executor = await service.start(
                serve_executor, model, replace(LIMITS, max_batch=2)
            )
            for _ in range(4):
                outer.start_soon(use, executor)
            while executor.steps < 8 or executor.queued < 2:
                await trio.lowlevel.checkpoint()
            service.cancel_scope.cancel()
        with trio.fail_after(120):
            await until_free(executor)
    assert ended == ["unavailable"] * 4
    with pytest.raises(Unavailable):
        await executor.open_session(range(4), 8)


async def test_other_work_runs_between_steps(model: LoadedModel) -> None:
    async with executor_of(model) as executor:
        assert await executor.compute(lambda: torch.ones(2).sum().item()) == 2


async def test_a_long_step_is_no_lack_of_a_place(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with executor_of(model, replace(LIMITS, max_batch=2)) as executor:
        busy = await executor.open_session(range(4), 8)
        goes_on, engine = threading.Event(), executor.versions.current.engine
        step = engine.step

        def slowly(*arguments: Any) -> Any:
            goes_on.wait()
            return step(*arguments)

        monkeypatch.setattr(engine, "step", slowly)
        opened: list[ShardSession] = []

        async def second() -> None:
            opened.append(await executor.open_session(range(4), 8, wait_s=0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.forward, busy, torch.ones(1, 1, dtype=torch.int64))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(second)
            while not executor.queued:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            assert not opened
            goes_on.set()
        with pytest.raises(RateLimited, match="no memory"):
            await executor.open_session(range(4), 8, wait_s=0)
        assert not executor.queued
        for session in (busy, *opened):
            session.close()
