"""Pipeline sessions in the executor: equal bits at any split, shared steps, replay."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import trio

from meshnode.domain.convoys import ConvoyName
from meshnode.domain.errors import (
    ComputationFailed,
)
from meshnode.domain.generation import Finished, GenerationRequest
from meshnode.model.loading import DEFAULT_MODEL, LoadedModel, load_model
from meshnode.services.executor import Executor, ShardSession
from spec_tests.services.shards.holders import LIMITS, driven, executor_of, splits

pytestmark = pytest.mark.usefixtures("one_thread")

LAYERS = 4
GREEDY = GenerationRequest("A node serves text inference, takes part", max_tokens=10, temperature=0)
SAMPLED = replace(GREEDY, temperature=1.2, seed=7)


async def local(executor: Executor, request: GenerationRequest) -> str:
    text = ""
    async with await executor.open(request) as generation:
        async for event in generation:
            if not isinstance(event, Finished):
                text += event.text
    return text


def decoded(model: LoadedModel, tokens: list[int]) -> str:
    return b"".join(model.tokenizer.piece(token) for token in tokens).decode(errors="replace")


def cache_of(session: ShardSession) -> torch.Tensor:
    """Return the session's key-value storage, unused positions included."""
    assert session.shard is not None
    return session.shard.cache.storage


@pytest.mark.parametrize("request_", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
async def test_every_split_gives_the_tokens_of_one_node(
    model: LoadedModel, request_: GenerationRequest
) -> None:
    prompt = model.tokenizer.encode(request_.prompt)
    assert len(prompt) > LIMITS.prefill_chunk
    async with executor_of(model) as executor:
        expected = await local(executor, request_)
        for ranges in splits(LAYERS):
            async with driven([executor] * len(ranges), ranges) as pipeline:
                tokens = await pipeline.generate(prompt, request_)
                assert decoded(model, tokens) == expected, ranges


async def test_nodes_that_hold_a_part_give_the_logits_of_one_that_holds_all(
    directory: Path, model: LoadedModel
) -> None:
    """Logits are equal bit for bit, for prompts and single positions, at uneven splits too."""
    tokens = model.tokenizer.encode(GREEDY.prompt)
    for ranges in ([range(4)], [range(1), range(1, 4)], [range(3), range(3, 4)]):
        parts = [load_model(directory, list(layers), threads=1) for layers in ranges]
        async with (
            executor_of(model) as whole,
            executor_of(parts[0]) as first,
            executor_of(parts[-1]) as last,
            driven([whole], [range(LAYERS)]) as one,
            driven([first, last][: len(ranges)], ranges) as several,
        ):
            assert torch.equal(await one.forward(tokens), await several.forward(tokens))
            for token in tokens:
                alone, shared = await one.forward([token]), await several.forward([token])
                assert torch.equal(alone, shared)


@pytest.mark.parametrize("default", [False, True], ids=["small", "default model"])
@pytest.mark.parametrize("replays", [True, False], ids=["in one go", "step by step"])
async def test_a_replay_repeats_the_bits(
    model: LoadedModel, default: bool, replays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call over positions that were computed one by one gives the same logits and caches."""
    if default:
        model = load_model(DEFAULT_MODEL, threads=1)
    prompt = model.tokenizer.encode(GREEDY.prompt)
    last = model.card.num_layers
    ranges = [range(1), range(1, last)]
    request = replace(SAMPLED, max_tokens=45)
    async with executor_of(model) as executor:
        monkeypatch.setattr(executor.versions.current.engine, "replays", replays)
        async with driven([executor] * 2, ranges, 120) as pipeline:
            tokens = await pipeline.generate(prompt, request)
            expected = await pipeline.forward(tokens[-1:])
            caches = [cache_of(session).clone() for _, session in pipeline.shards]
        async with driven([executor] * 2, ranges, 120) as again:
            replayed = await again.forward([*prompt, *tokens], decode_from=len(prompt))
            assert torch.equal(replayed, expected)
            length = len(prompt) + len(tokens)
            for cache, (_, session) in zip(caches, again.shards, strict=True):
                mine = cache_of(session)
                assert torch.equal(mine[..., :length, :], cache[..., :length, :])


async def test_sessions_share_a_step_with_each_other(model: LoadedModel) -> None:
    prompt = model.tokenizer.encode(GREEDY.prompt)
    requests = [replace(SAMPLED, seed=seed) for seed in range(8)]
    async with executor_of(model) as executor:
        alone = []
        for request in requests:
            async with driven([executor], [range(LAYERS)]) as pipeline:
                alone.append(await pipeline.generate(prompt, request))
        steps = executor.steps
        together: list[list[int]] = [[]] * 8

        async def one(i: int) -> None:
            async with driven([executor], [range(LAYERS)]) as pipeline:
                together[i] = await pipeline.generate(prompt, requests[i])

        async with trio.open_nursery() as nursery:
            for i in range(8):
                nursery.start_soon(one, i)
        assert together == alone
        # Once the prompts are computed, one step serves several sessions.
        assert executor.steps - steps < steps


async def test_convoys_of_one_caller_are_computed_apart(model: LoadedModel) -> None:
    """So one is on its way while the other is computed. Those of different callers share a step."""
    mine, other, third = ConvoyName("a", "1"), ConvoyName("a", "2"), ConvoyName("b", "1")
    async with executor_of(model) as executor:
        sessions = [await executor.open_session(range(LAYERS), 8) for _ in range(4)]
        for session in sessions:
            await executor.forward(session, torch.tensor([[1, 2]]))
        for convoys, calls in (
            ((mine, mine, other, other), 2),
            ((mine, other, None, third), 2),
            ((mine, mine, third, None), 1),
            ((None, None, None, None), 1),
        ):
            steps = executor.steps
            async with trio.open_nursery() as nursery:
                for session, convoy in zip(sessions, convoys, strict=True):
                    nursery.start_soon(
                        partial(executor.forward, session, torch.tensor([[3]]), convoy=convoy)
                    )
            assert executor.steps - steps == calls
        for session in sessions:
            session.close()


async def test_sessions_and_generations_take_turns(model: LoadedModel) -> None:
    """Neither a session's steps nor a generation keeps the other waiting."""
    async with (
        executor_of(model) as executor,
        driven([executor], [range(LAYERS)], 200) as pipeline,
    ):
        await pipeline.forward([5, 6, 7])
        async with await executor.open(replace(GREEDY, max_tokens=100)) as generation:
            await anext(generation)
            before = generation.usage.completion_tokens
            for _ in range(20):
                await pipeline.forward([5])
            between = generation.usage.completion_tokens - before
            assert 15 <= between <= 45


async def test_rewinding_forgets_and_computes_alike(model: LoadedModel) -> None:
    async with (
        executor_of(model) as executor,
        driven([executor], [range(LAYERS)]) as pipeline,
    ):
        ((_, session),) = pipeline.shards
        await pipeline.forward([3, 4, 5])
        expected = await pipeline.forward([6])
        await pipeline.forward([9])
        session.rewind(3)
        assert session.length == 3
        assert torch.equal(await pipeline.forward([6]), expected)
        for length in (-1, 5):
            with pytest.raises(ValueError, match="rewind"):
                session.rewind(length)


async def test_a_cancelled_call_leaves_the_session_as_it_was(model: LoadedModel) -> None:
    async with (
        executor_of(model) as executor,
        driven([executor], [range(LAYERS)], 250) as pipeline,
    ):
        ((_, session),) = pipeline.shards
        await pipeline.forward([3, 4, 5])
        expected = await pipeline.forward([6])
        session.rewind(3)
        for checkpoints in range(12):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    async def cancel(n: int = checkpoints, scope: trio.CancelScope = scope) -> None:
                        for _ in range(n):
                            await trio.lowlevel.checkpoint()
                        scope.cancel()

                    nursery.start_soon(cancel)
                    await pipeline.forward([8] * (1 if checkpoints % 2 else 200))
            # Rewinding works at once, even if the torch thread still computes the cancelled call.
            session.rewind(3)
            assert session.length == 3
        assert torch.equal(await pipeline.forward([6]), expected)
        assert session.length == 4


async def test_sessions_of_several_ranges_survive_cancellations(model: LoadedModel) -> None:
    """Sessions stay correct when calls are cancelled at random while other sessions compute."""
    rng = random.Random(1)
    hidden = torch.randn(1, 40, 64, generator=torch.Generator().manual_seed(0))
    async with executor_of(model) as executor:

        async def use(layers: range) -> None:
            session = await executor.open_session(layers, 64)
            first = (await executor.forward(session, hidden[:, :3])).states
            for _ in range(25):
                session.rewind(0)
                with trio.move_on_after(rng.choice([0.0, 0.0005, 0.002])):
                    await executor.forward(session, hidden[:, : rng.choice([1, 1, 1, 40])])
            session.rewind(0)
            again = (await executor.forward(session, hidden[:, :3])).states
            assert torch.equal(again, first)
            assert session.length == 3
            session.close()

        async with trio.open_nursery() as nursery:
            for layers in (range(1, 2), range(1, 3), range(2, 4), range(1, 2), range(3, 4)):
                nursery.start_soon(use, layers)


async def test_numbers_out_of_range_fail_their_own_session_alone(model: LoadedModel) -> None:
    async with executor_of(model) as executor:
        good, bad = [await executor.open_session(range(2, 4), 16) for _ in range(2)]
        hidden = torch.randn(1, 3, 64, generator=torch.Generator().manual_seed(0))
        for session in (good, bad):
            await executor.forward(session, hidden)
        outcomes: list[object] = []
        whole = cache_of(bad).clone()
        cache_of(bad)[..., :2, :] = torch.nan

        async def failing() -> None:
            try:
                await executor.forward(bad, hidden[:, :1])
            except ComputationFailed as error:
                outcomes.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(failing)
            shared = await executor.forward(good, hidden[:, :1])
        assert len(outcomes) == 1
        # Bad numbers from a peer do not make this node's device check fail.
        assert executor.device_check() == "absent"
        assert bad.length == 3
        cache_of(bad).copy_(whole)
        after = await executor.forward(bad, hidden[:, :1])
        assert torch.equal(after.states, shared.states)
        for session in (good, bad):
            session.close()


async def test_the_repr_of_a_session_has_layers_state_and_positions(model: LoadedModel) -> None:
    async with executor_of(model) as executor:
        session = await executor.open_session(range(1, 3), 10)
        assert repr(session) == "<session of layers 1-2, resting, 0 of 10 positions>"
        job = await executor.forward(session, torch.ones(1, 4, 64))
        assert repr(session) == "<session of layers 1-2, resting, 4 of 10 positions>"
        assert "tensor" not in repr(job)
        session.close()
        assert "closed" in repr(session)
