"""Exact usage, times, text, stop strings and context limits of one generation."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import trio

from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    LayersUnavailable,
)
from meshnode.domain.generation import FinishReason, Usage
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import Executor
from spec_tests.model.small_models import END_OF_TEXT
from spec_tests.services.executor.generations import GREEDY, complete, read, with_executor


async def test_a_generation_counts_its_tokens_and_its_time(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        started = trio.current_time()
        _, finished = await complete(executor, GREEDY)
        elapsed_ms = (trio.current_time() - started) * 1e3
        prompt = len(model.tokenizer.encode(GREEDY.prompt))
        assert finished.usage == Usage(prompt, 8)
        assert finished.usage.total_tokens == prompt + 8
        assert finished.finish_reason is FinishReason.LENGTH
        timing = finished.timing
        assert timing.total_ms == pytest.approx(timing.queue_ms + timing.inference_ms)
        assert timing.queue_ms >= 0
        assert 0 < timing.inference_ms <= timing.total_ms <= elapsed_ms
        figures = executor.meter.snapshot(trio.current_time())
        assert (figures.requests_total, figures.tokens_generated) == (1, 8)
        assert figures.avg_latency_ms == pytest.approx(timing.total_ms, abs=5)

    await with_executor(model, use)


async def test_the_text_is_that_of_the_tokens(model: LoadedModel) -> None:
    """A greedy text equals that of a plain loop over the decoder, without cache or batch."""
    prompt = model.tokenizer.encode(GREEDY.prompt)
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(30):
            tokens.append(int(model.decoder(torch.tensor([tokens]))[0, -1].argmax()))
    text = b"".join(model.tokenizer.piece(token) for token in tokens[len(prompt) :])

    async def use(executor: Executor) -> None:
        answer, _ = await complete(executor, replace(GREEDY, max_tokens=30))
        assert answer == text.decode(errors="replace")

    await with_executor(model, use)


async def test_end_of_text_stops_and_counts_as_a_token(model: LoadedModel) -> None:
    prompt = model.tokenizer.encode(GREEDY.prompt)
    with torch.inference_mode():
        first = int(model.decoder(torch.tensor([prompt]))[0, -1].argmax())

    async def use(executor: Executor) -> None:
        text, finished = await complete(executor, GREEDY)
        assert text == ""
        assert finished.finish_reason is FinishReason.STOP
        assert finished.usage.completion_tokens == 1

    await with_executor(replace(model, eos_token_ids=frozenset([first])), use)


async def test_a_stop_string_ends_the_text_before_it(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        request = replace(GREEDY, max_tokens=60, temperature=1.5, seed=5)
        whole, _ = await complete(executor, request)
        # A stop string from the middle of the text, long enough to span several tokens.
        stop = whole[20:26]
        assert len(stop) == 6
        text, finished = await complete(executor, replace(request, stop=("never said", stop)))
        assert text == whole[: whole.index(stop)]
        assert finished.finish_reason is FinishReason.STOP
        assert finished.usage.completion_tokens < 60

    await with_executor(model, use)


async def test_a_prompt_that_does_not_fit_is_refused_by_name(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        for prompt in ("x " * 5000, "é" * 300, "\ud800"):
            with pytest.raises(InvalidRequest) as caught:
                await executor.open(replace(GREEDY, prompt=prompt))
            assert caught.value.field == "prompt"
        assert executor.meter.snapshot(trio.current_time()).requests_total == 0

    await with_executor(model, use)


async def test_the_context_ends_a_generation_like_a_token_limit(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        context = executor.card.context_length
        prompt = "x" * (context - 5)
        request = replace(GREEDY, prompt=prompt, max_tokens=10**9)
        _, finished = await complete(executor, request)
        used = finished.usage
        assert used.total_tokens == context
        assert finished.finish_reason is FinishReason.LENGTH
        with pytest.raises(InvalidRequest):
            await executor.open(replace(GREEDY, prompt="\x00" * context))

    await with_executor(model, use)


async def test_an_empty_prompt_begins_a_text(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        _, finished = await complete(executor, replace(GREEDY, prompt="", max_tokens=2))
        assert finished.usage == Usage(1, 2)

    await with_executor(replace(model, eos_token_ids=frozenset([END_OF_TEXT])), use)


async def test_non_finite_logits_are_a_typed_error(directory: Path) -> None:
    model = load_model(directory)
    assert model.decoder.norm is not None

    async def use(executor: Executor) -> None:
        assert executor.device_check() == "absent"
        assert model.decoder.norm is not None
        weight = model.decoder.norm.weight.clone()
        model.decoder.norm.weight.fill_(math.nan)
        async with await executor.open(GREEDY) as generation:
            with pytest.raises(ComputationFailed):
                await read(generation)
        assert executor.device_check() == "failing"
        model.decoder.norm.weight.copy_(weight)
        await complete(executor, GREEDY)
        assert executor.device_check() == "absent"

    await with_executor(model, use)


async def test_a_part_of_the_layers_serves_no_text(directory: Path) -> None:
    async def use(executor: Executor) -> None:
        with pytest.raises(LayersUnavailable):
            await executor.open(GREEDY)

    await with_executor(load_model(directory, [1, 2]), use)
