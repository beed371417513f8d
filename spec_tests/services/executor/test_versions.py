"""Several versions of the weights in one executor: each stream keeps its own (decision 0225)."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import trio
import trio.testing

from meshnode.domain.errors import LayerNotHeld
from meshnode.domain.shares import Requester, Standing
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.engine import Engine
from meshnode.model.kernels.formats import Format
from meshnode.model.linear import pack
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import EngineLimits, Executor, ServedVersion, serve_executor
from spec_tests.services.executor.generations import GREEDY, LIMITS, complete, read

ALICE = Requester(Standing.PAYING, "alice")
LONG = replace(GREEDY, max_tokens=60)
HASHES = ["0" * 64, "1" * 64]


def version_of(model: LoadedModel, number: int) -> ServedVersion:
    engine = Engine(model.decoder, LIMITS.max_batch)
    weights = WeightsVersion(number, str(number) * 64)
    return ServedVersion(weights, HASHES[number], model.facts, engine)


@pytest.fixture(scope="module")
def other(directory: Path) -> LoadedModel:
    """The same model with other weights."""
    loaded = load_model(directory, trainable=True)
    decoder = loaded.decoder
    decoder.init_weights(torch.Generator().manual_seed(77))
    decoder.requires_grad_(requires_grad=False)
    pack(decoder, Format.FLOAT32)
    return replace(loaded, decoder=decoder)


async def run_with(first: ServedVersion, use: object, limits: EngineLimits = LIMITS) -> None:
    async with trio.open_nursery() as nursery:
        executor: Executor = await nursery.start(serve_executor, first, limits)
        with trio.fail_after(300):
            await use(executor)  # type: ignore[operator]
        nursery.cancel_scope.cancel()


async def alone(model: LoadedModel, *requests: object) -> list[str]:
    texts: list[str] = []

    async def use(executor: Executor) -> None:
        texts.extend([(await complete(executor, each))[0] for each in requests])  # type: ignore[arg-type]

    await run_with(version_of(model, 0), use)
    return texts


async def test_streams_end_with_the_version_that_they_began_with(
    model: LoadedModel, other: LoadedModel
) -> None:
    requests = [replace(LONG, prompt=f"{n} nodes serve") for n in range(3)]
    before, after = await alone(model, *requests), await alone(other, *requests)
    assert before != after

    async def use(executor: Executor) -> None:
        opened = [await executor.open(each) for each in requests]
        async with opened[0], opened[1], opened[2]:
            # Each is in the middle of its text, one of them waits for a place.
            await opened[0].__anext__()
            executor.switch(version_of(other, 1))
            assert [*executor.versions.hashes] == [HASHES[1], HASHES[0]]
            later = [await executor.open(each) for each in requests]
            assert {each.model_hash for each in opened} == {HASHES[0]}
            assert {each.model_hash for each in later} == {HASHES[1]}
            texts: dict[int, str] = {}

            async def follow(at: int) -> None:
                generation = [*opened, *later][at]
                async with generation:
                    events, finished = await read(generation)
                texts[at] = "".join(event.text for event in events)
                assert finished.usage.completion_tokens == LONG.max_tokens or texts[at]

            async with trio.open_nursery() as nursery:
                for at in range(6):
                    nursery.start_soon(follow, at)
        assert [texts[at] for at in (1, 2)] == before[1:]
        assert before[0].endswith(texts[0])
        assert [texts[at] for at in (3, 4, 5)] == after
        # The first version is gone with its last stream.
        assert [*executor.versions.hashes] == [HASHES[1]]

    await run_with(version_of(model, 0), use, replace(LIMITS, max_batch=4, max_queue=8))


async def test_a_version_is_freed_with_its_last_stream(directory: Path, other: LoadedModel) -> None:
    loaded = load_model(directory)
    first, decoder = version_of(loaded, 0), weakref.ref(loaded.decoder)
    del loaded

    async def use(executor: Executor) -> None:
        told: list[int] = []
        async with await executor.open(LONG) as generation:
            await generation.__anext__()
            executor.versions.changed.append(lambda: told.append(len(executor.versions.all)))
            executor.switch(version_of(other, 1))
            assert decoder() is not None
        await executor.wait_idle()
        gc.collect()
        assert decoder() is None
        assert told == [2, 1]

    await run_with(first, use)


async def test_prefixes_belong_to_a_version(model: LoadedModel, other: LoadedModel) -> None:
    request = replace(GREEDY, prompt="A node serves text, and a user asks. " * 4, requester=ALICE)
    (after,) = await alone(other, request)

    async def use(executor: Executor) -> None:
        if not executor.seamless:
            pytest.skip("chunks round differently here: nothing is kept")
        await complete(executor, request)
        async with await executor.open(replace(request, max_tokens=20)) as old:
            await old.__anext__()
            executor.switch(version_of(other, 1))
            assert not len(executor.prefixes)
            await read(old)
        # What the old version has computed since then is not kept either.
        assert not len(executor.prefixes)
        hit = executor.prefixes.hit
        assert (await complete(executor, request))[0] == after
        assert executor.prefixes.hit == hit
        assert (await complete(executor, request))[0] == after
        assert executor.prefixes.hit > hit

    await run_with(version_of(model, 0), use)


async def test_sessions_of_peers_name_the_version(model: LoadedModel, other: LoadedModel) -> None:
    layers, tokens = range(model.card.num_layers), torch.tensor([[1, 2, 3]])

    async def use(executor: Executor) -> None:
        old = await executor.open_session(layers, 8)
        executor.switch(version_of(other, 1))
        again = await executor.open_session(layers, 8, model_hash=HASHES[0])
        new = await executor.open_session(layers, 8)
        assert [one.model_hash for one in (old, again, new)] == [HASHES[0], HASHES[0], HASHES[1]]
        states = [(await executor.forward(one, tokens)).states for one in (old, again, new)]
        assert torch.equal(states[0], states[1])
        assert not torch.equal(states[0], states[2])
        old.close()
        again.close()
        with pytest.raises(LayerNotHeld, match="not served here now"):
            await executor.open_session(layers, 8, model_hash=HASHES[0])
        new.close()

    await run_with(version_of(model, 0), use)


async def test_a_closed_gate_lets_requests_wait(model: LoadedModel, other: LoadedModel) -> None:
    """While a version is loaded in place of another, nothing begins and nothing fails."""
    (after,) = await alone(other, GREEDY)

    async def use(executor: Executor) -> None:
        assert executor.untouched
        texts: list[str] = []

        async def ask() -> None:
            texts.append((await complete(executor, GREEDY))[0])

        async with trio.open_nursery() as nursery:
            with executor.gate.closing():
                nursery.start_soon(ask)
                with executor.gate.closing():
                    nursery.start_soon(ask)
                    await trio.testing.wait_all_tasks_blocked()
                # Somebody else still keeps it closed.
                await trio.testing.wait_all_tasks_blocked()
                assert executor.untouched
                executor.versions.current.engine.unload()
                executor.switch(version_of(other, 1))
        assert texts == [after] * 2


async def test_nobody_slips_through_a_gate_that_closes(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        passed = trio.Event()

        async def enter() -> None:
            await executor.gate.wait()
            passed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(enter)
            # The task has looked at the gate, and has not gone on yet.
            await trio.lowlevel.checkpoint()
            with executor.gate.closing():
                await trio.testing.wait_all_tasks_blocked()
                before = passed.is_set()
                assert executor.untouched
            await passed.wait()
            assert not before

    await run_with(version_of(model, 0), use)

    await run_with(version_of(model, 0), use)
