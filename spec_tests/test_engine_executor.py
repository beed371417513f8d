"""design: the executor: admission, cancellation within one step, exact usage, bounded memory."""

import math
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import trio
from trio.testing import wait_all_tasks_blocked

from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    LayersUnavailable,
    RateLimited,
    StartupError,
    Unavailable,
)
from meshnode.domain.generation import Finished, FinishReason, GenerationRequest, TokenEvent, Usage
from meshnode.model.kv import KVCache
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import EngineLimits, Executor, Generation, serve_executor
from spec_tests.support_model import END_OF_TEXT, make_model

LIMITS = EngineLimits(max_batch=4, max_queue=3, kv_bytes=1 << 22, prefill_chunk=16)
GREEDY = GenerationRequest("A node serves", max_tokens=8, temperature=0.0)
LONG = replace(GREEDY, max_tokens=200)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("executor") / "model")


@pytest.fixture(scope="module")
def model(directory: Path) -> LoadedModel:
    # Without an end of text, so that lengths are what the tests ask for.
    return replace(load_model(directory), eos_token_ids=frozenset())


async def with_executor(
    model: LoadedModel,
    use: Callable[[Executor], Awaitable[None]],
    limits: EngineLimits = LIMITS,
) -> None:
    async with trio.open_nursery() as nursery:
        executor = await nursery.start(serve_executor, model, limits)
        with trio.fail_after(60):
            await use(executor)
            # Whatever happened, nothing is left behind.
            while executor.active or executor.kv_bytes_in_use:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def read(generation: Generation) -> tuple[list[TokenEvent], Finished]:
    tokens: list[TokenEvent] = []
    async for event in generation:
        if isinstance(event, Finished):
            finished = event
        else:
            tokens.append(event)
    return tokens, finished


async def complete(executor: Executor, request: GenerationRequest) -> tuple[str, Finished]:
    async with await executor.open(request) as generation:
        tokens, finished = await read(generation)
        assert generation.usage == finished.usage
    assert [event.index for event in tokens] == list(range(len(tokens)))
    assert finished.usage.completion_tokens == len(tokens)
    return "".join(event.text for event in tokens), finished


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
    """Greedy, against a plain loop over the decoder without cache or batch."""
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
        # Long enough to span tokens; taken from the middle of what the model says.
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
        # The event loop may have emitted one more than were read, and all that are counted.
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


async def test_two_at_the_door_for_the_last_place(model: LoadedModel) -> None:
    """Tokenising takes a moment, so the queue is asked again after it."""
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


async def test_a_reader_that_does_not_read_holds_nobody_up(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        async with await executor.open(LONG) as stalled:
            for _ in range(5):
                await complete(executor, GREEDY)
            while executor.active:
                await trio.lowlevel.checkpoint()
            # It ran to its end all the same, and every event is there.
            tokens, finished = await read(stalled)
            assert len(tokens) == finished.usage.completion_tokens == 200

    await with_executor(model, use)


async def test_a_long_prompt_does_not_stall_the_others(model: LoadedModel) -> None:
    """Between two tokens of a running generation lies at most one chunk of a prompt."""

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


async def test_torch_computes_in_one_thread_off_the_event_loop(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlap = threading.Lock()
    event_loop = threading.get_ident()
    forward = model.decoder.forward

    def watched(*args: object, **kwargs: object) -> torch.Tensor:
        assert threading.get_ident() != event_loop
        assert overlap.acquire(blocking=False)
        try:
            return forward(*args, **kwargs)  # type: ignore[arg-type]
        finally:
            overlap.release()

    monkeypatch.setattr(model.decoder, "forward", watched)

    async def use(executor: Executor) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(complete, executor, GREEDY)

    await with_executor(model, use)
