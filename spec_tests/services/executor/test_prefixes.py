"""Prompts that begin alike share what was computed, to the bit (decision 0158)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshnode.domain.generation import GenerationRequest
from meshnode.domain.shares import Requester, Standing
from meshnode.model.loading import LoadedModel
from meshnode.services.executor import Executor
from spec_tests.services.executor.generations import GREEDY, LIMITS, complete, with_executor

ALICE = Requester(Standing.PAYING, "alice")
BOB = Requester(Standing.PAYING, "bob")
CHAT = "A node serves text inference, and a user asks it one question after another. " * 2
FIRST = replace(GREEDY, prompt=CHAT, requester=ALICE, temperature=0.9, seed=3)


def skip_unless_seamless(executor: Executor) -> None:
    if not executor.seamless:
        pytest.skip("chunks round differently here: nothing is kept")


async def text_alone(model: LoadedModel, request: GenerationRequest) -> str:
    found = ""

    async def use(executor: Executor) -> None:
        nonlocal found
        found, _ = await complete(executor, request)

    await with_executor(model, use)
    return found


async def test_the_next_turn_of_a_chat_computes_only_what_is_new(model: LoadedModel) -> None:
    text = await text_alone(model, FIRST)
    second = replace(FIRST, prompt=CHAT + text + " And then?", seed=4)
    alone = await text_alone(model, second)

    async def use(executor: Executor) -> None:
        skip_unless_seamless(executor)
        assert (await complete(executor, FIRST))[0] == text
        answer, finished = await complete(executor, second)
        assert answer == alone
        # A position that was not computed is still a token of the prompt.
        assert finished.usage.prompt_tokens > executor.prefixes.hit > len(CHAT) / 8
        hit = executor.prefixes.hit
        assert (await complete(executor, second))[0] == alone
        assert executor.prefixes.hit > 2 * hit
        # Another customer gets the same text, and computes it.
        hit = executor.prefixes.hit
        assert (await complete(executor, replace(second, requester=BOB)))[0] == alone
        assert executor.prefixes.hit == hit

    await with_executor(model, use)


async def test_sessions_come_before_what_is_kept(model: LoadedModel) -> None:
    """What is kept and what is reserved never exceed the cache together."""
    room = 300
    prompts = [f"{number} {CHAT}" for number in range(6)]
    texts = {prompt: await text_alone(model, replace(FIRST, prompt=prompt)) for prompt in prompts}

    async def use(executor: Executor) -> None:
        skip_unless_seamless(executor)
        for prompt in prompts * 2:
            async with await executor.open(replace(FIRST, prompt=prompt)) as generation:
                text = ""
                async for event in generation:
                    kept = executor.prefixes.nbytes + executor.kv_bytes_in_use
                    assert kept <= executor.kv_bytes_limit
                    text += getattr(event, "text", "")
                assert text == texts[prompt]
        assert executor.prefixes.nbytes

    whole = model.decoder.config.num_layers * 2 * 2 * 16 * 4
    await with_executor(model, use, replace(LIMITS, kv_bytes=room * whole))
