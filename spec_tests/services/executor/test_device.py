"""The executor over a device, which the processor plays (decisions 0229, 0232)."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import trio

from meshnode.config import build_config
from meshnode.domain.errors import Overloaded, StartupError
from meshnode.domain.units import GIBIBYTE, MEBIBYTE
from meshnode.model.accelerator.device import WORKSPACE_BYTES, Accelerator, simulated_device
from meshnode.model.accelerator.pool import PoolEmpty
from meshnode.model.engine import Engine
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import EngineLimits, Executor, engine_limits, provide_cache
from meshnode.services.executor.starting import POOL_SHARE
from spec_tests.services.executor.generations import GREEDY, LIMITS, complete, with_executor

DEVICE = simulated_device(WORKSPACE_BYTES + 64 * MEBIBYTE)


@pytest.fixture(scope="module")
def placed(directory: Path) -> LoadedModel:
    return replace(load_model(directory, where=DEVICE), eos_token_ids=frozenset())


async def test_generations_share_a_device(placed: LoadedModel, model: LoadedModel) -> None:
    texts: dict[int, str] = {}

    async def use(executor: Executor) -> None:
        async def generate(seed: int) -> None:
            request = replace(GREEDY, temperature=1.0, seed=seed)
            texts[seed], _ = await complete(executor, request)

        for seed in (1, 2):
            await generate(seed)
        alone = dict(texts)
        async with trio.open_nursery() as nursery:
            for seed in (1, 2, 3):
                nursery.start_soon(generate, seed)
        assert texts == texts | alone
        assert executor.where == DEVICE
        assert executor.gpu_memory.total == DEVICE.memory().total
        assert executor.device_check() == "ok"
        assert executor.card.context_length == model.card.context_length

    await with_executor(placed, use)


async def test_no_memory_on_the_device_ends_a_request_and_not_the_node(
    placed: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    def empty(*args: object, **options: object) -> None:
        raise PoolEmpty("3 blocks for keys and values, and 0 are free")

    async def use(executor: Executor) -> None:
        for name, failure in (("_run", full), ("_cache", empty)):
            with monkeypatch.context() as patch:
                patch.setattr(Engine, name, failure)
                # A prompt's chunks are computed together, too.
                patch.setattr(Engine, "prefill_together", _singly)
                with pytest.raises(Overloaded, match="the device has no memory left"):
                    await complete(executor, GREEDY)
            assert executor.device_check() == "ok"
            text, _ = await complete(executor, GREEDY)
            assert text

    await with_executor(placed, use)


def _singly(engine: Engine, parts: list[object]) -> list[object]:
    return [engine.prefill(*part) for part in parts]  # type: ignore[misc]


async def test_what_others_take_is_the_hosts_memory(placed: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        before = executor.kv_bytes_limit
        executor.reserve("training", 700)
        assert executor.kv_bytes_limit == before
        assert executor.spare_bytes == 1000
        assert executor.spare_beside("another") == 300

    await with_executor(placed, use, replace(LIMITS, beside_bytes=1000))


def test_the_cache_of_a_device_is_what_it_has_left(placed: LoadedModel) -> None:
    engine = Engine(placed.decoder, 2)
    found = provide_cache(engine)
    assert found == int(64 * MEBIBYTE * POOL_SHARE)
    limits = engine_limits(build_config({"resources.max_memory_gb": 1.0}), 300 * MEBIBYTE, found)
    assert limits == EngineLimits(
        max_batch=limits.max_batch,
        max_queue=limits.max_queue,
        kv_bytes=found,
        beside_bytes=GIBIBYTE - 300 * MEBIBYTE,
    )
    with pytest.raises(PoolEmpty):
        engine.shard(range(4), 2 * engine.room(found))


def test_a_device_without_room_for_a_cache_ends_the_start(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(engine: Engine, kv_bytes: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    engine = Engine(load_model(directory, [1], where=DEVICE).decoder, 1)
    monkeypatch.setattr(Engine, "provide", full)
    with pytest.raises(StartupError, match=r"--device cpu: no 0\.06 GiB for keys and values"):
        provide_cache(engine)


def test_a_version_takes_over_the_cache_of_the_one_before(directory: Path) -> None:
    first = Engine(load_model(directory, where=DEVICE).decoder, 2)
    first.provide(first.kv_bytes(1) * 4)
    second = Engine(load_model(directory, where=DEVICE).decoder, 2, first)
    first.unload()
    shard = second.shard(range(4), 200)
    assert shard.cache.nbytes == second.kv_bytes(200)
    with pytest.raises(PoolEmpty):
        second.shard(range(4), 70)
    narrow = load_model(directory, dtype="int8", where=DEVICE).decoder
    with pytest.raises(ValueError, match="other keys and values"):
        Engine(narrow, 2, first)
    assert isinstance(first.where, Accelerator)
