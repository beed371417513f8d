"""The driver's limits, sessions and figures; a client that leaves frees everything."""

from __future__ import annotations

import json
import math
import os
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
import trio.testing

from meshnode.domain.errors import InvalidRequest, RateLimited, Unavailable
from meshnode.domain.generation import GenerationRequest, TokenEvent
from meshnode.model.sampler import Sampler
from meshnode.services.pipeline.records import MAX_FAILURES, MIXED, HopRecorder, HopTime, HopTrace
from meshnode.services.pipeline.remote import PathMessage, RemotePath
from meshnode.services.pipeline.routes import Routes
from meshnode.services.shards.wanted import WantedLogits
from meshnode.wire import node_pb2 as pb
from spec_tests.services.executor.generations import complete, read
from spec_tests.services.pipeline.pipelines import (
    GREEDY,
    NUM_LAYERS,
    PIPELINE,
    SAMPLED,
    Cluster,
    FixedBook,
    FixedPeer,
    alone,
    cluster,
    loaded,
    small_model,
    spans,
)

NONE: dict[str, Any] = {"eos_token_ids": frozenset()}
LONG = replace(GREEDY, max_tokens=150)
FROM_ALL = replace(LONG, temperature=1.0, top_k=0)
"""Chooses from all logits, so in a thread."""
SOAK = 600 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 60


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("pipeline") / "model")


async def events(generation: Any, count: int) -> None:
    """Read ``count`` token events."""
    for _ in range(count):
        assert isinstance(await anext(generation), TokenEvent)


@pytest.mark.parametrize("relay", [True, False], ids=["relayed", "direct"])
async def test_logits_are_those_of_one_model(directory: Path, relay: bool) -> None:
    model = loaded(directory)
    tokens = torch.tensor([model.tokenizer.encode(GREEDY.prompt)])
    with torch.inference_mode():
        wanted = model.decoder(tokens)[0, -1]
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest, **NONE) as nodes:
        routes = Routes(nodes.book.as_peer_book, own.stop, NUM_LAYERS)
        path = RemotePath(
            routes.choose() or (),
            nodes.pool,
            relay=relay,
            call_s=120.0,
            positions=100,
            vocab_size=nodes.model.card.vocab_size,
        )
        session = await nodes.executor.open_session(own, 100)
        own_states = (await nodes.executor.forward(session, tokens)).states
        answer = await path.forward(PathMessage(own_states, 0, WantedLogits()))
        times = answer.times
        assert (answer.rows.values[0] - wanted).abs().max() < 1e-4
        assert [(time.first, time.last) for time in times] == [(2, 3), (4, 5)]
        assert all(time.compute_ms > 0 and time.network_ms > 0 for time in times)
        session.close()
        await path.close()
        await nodes.settled()


async def test_generations_wait_while_holders_load_other_weights(directory: Path) -> None:
    """Even if no path leads over the holders meanwhile (decision 0247)."""
    own, *rest = spans(2)
    async with cluster(directory, own, rest, **NONE) as nodes:
        texts: list[str] = []

        async def ask() -> None:
            texts.append((await complete(nodes.pipeline, GREEDY))[0])

        async with trio.open_nursery() as nursery:
            with nodes.executor.gate.closing():
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                assert not nodes.pipeline.active
                assert nodes.executor.untouched
        await nodes.settled()
    assert texts == [await alone(directory, GREEDY, **NONE)]


async def test_sessions_side_by_side_have_the_tokens_of_each_alone(directory: Path) -> None:
    own, *rest = spans(3)
    requests = [replace(SAMPLED, seed=seed, max_tokens=10 + seed) for seed in range(8)]
    texts: dict[int, str] = {}
    async with cluster(directory, own, rest, **NONE) as nodes:

        async def one(place: int) -> None:
            texts[place], _ = await complete(nodes.pipeline, requests[place])

        async with trio.open_nursery() as nursery:
            for place in range(len(requests)):
                nursery.start_soon(one, place)
        await nodes.settled()
    for place in (0, 3, 7):
        assert texts[place] == await alone(directory, requests[place], **NONE)
    holder = nodes.holders[0]
    # There are eight sessions, and every message has its own id.
    assert len(holder.gate.sessions) == 8
    assert all(len(session) == 32 for session in holder.gate.sessions)
    assert len(set(holder.gate.request_ids)) == len(holder.gate.request_ids)
    # Sessions share steps: there are fewer steps than messages.
    assert holder.executor.steps < holder.gate.forwards


@pytest.mark.parametrize("relay", [True, False], ids=["relayed", "direct"])
async def test_a_client_that_leaves_frees_every_hop(directory: Path, relay: bool) -> None:
    own, *rest = spans(2, 4)
    limits = replace(PIPELINE, relay=relay)
    async with cluster(directory, own, rest, limits=limits, **NONE) as nodes:
        async with await nodes.pipeline.open(LONG) as generation:
            await events(generation, 5)
            assert all(holder.executor.kv_bytes_in_use for holder in nodes.holders)
        assert nodes.pipeline.active == 0
        steps = [holder.executor.steps for holder in nodes.holders]
        await nodes.settled()
        for before, holder in zip(steps, nodes.holders, strict=True):
            assert holder.executor.steps <= before + 1
        assert generation.usage.completion_tokens >= 5


async def test_a_client_that_leaves_at_once(directory: Path) -> None:
    """A client that leaves while queued or while its session opens leaves nothing behind."""
    own, *rest = spans(3)
    async with cluster(directory, own, rest, **NONE) as nodes:
        for _ in range(3):
            async with await nodes.pipeline.open(LONG):
                pass
        await nodes.pipeline.wait_idle()
        await nodes.settled()


async def test_a_client_that_leaves_while_a_token_is_chosen(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosing, left = threading.Event(), threading.Event()
    choose = Sampler.choose

    def choose_slowly(sampler: Sampler, logits: torch.Tensor) -> int:
        choosing.set()
        assert left.wait(120)
        return choose(sampler, logits)

    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest, **NONE) as nodes:
        monkeypatch.setattr(Sampler, "choose", choose_slowly)
        async with await nodes.pipeline.open(FROM_ALL) as generation:
            await trio.to_thread.run_sync(choosing.wait)
        left.set()
        await nodes.settled()
        assert generation.usage.completion_tokens == 0
        monkeypatch.undo()
        assert (await complete(nodes.pipeline, GREEDY))[0] == await alone(directory, GREEDY, **NONE)


async def test_the_queue_is_bounded(directory: Path) -> None:
    own, *rest = spans(3)
    limits = replace(PIPELINE, max_sessions=1, max_queue=1)
    async with cluster(directory, own, rest, limits=limits, **NONE) as nodes:
        first = await nodes.pipeline.open(LONG)
        second = await nodes.pipeline.open(GREEDY)
        with pytest.raises(RateLimited):
            await nodes.pipeline.open(GREEDY)
        async with first, second:
            await events(first, 1)
            assert second.usage.completion_tokens == 0
            await first.__aexit__(None, None, None)
            # The second takes the place of the first.
            _, finished = await read(second)
            assert finished.usage.completion_tokens == GREEDY.max_tokens
        await nodes.settled()


async def test_what_is_kept_for_replays_is_bounded(directory: Path) -> None:
    own, *rest = spans(3)
    hidden = loaded(directory).card.hidden_dim
    limits = replace(PIPELINE, kept_bytes=64 * hidden * 4)
    async with cluster(directory, own, rest, limits=limits, **NONE) as nodes:
        # The context is limited to the 64 positions that can be kept for a replay.
        _, finished = await complete(nodes.pipeline, LONG)
        assert finished.usage.total_tokens == 64
        with pytest.raises(InvalidRequest):
            await nodes.pipeline.open(replace(GREEDY, prompt="word " * 100))
        one, two = [await nodes.pipeline.open(GREEDY) for _ in range(2)]
        async with one, two:
            await events(one, 1)
            assert nodes.pipeline.kept_bytes <= limits.kept_bytes
            assert two.usage.completion_tokens == 0
        await nodes.settled()


async def test_no_caller_waits_after_the_service_has_ended(directory: Path) -> None:
    own, *rest = spans(3)
    async with cluster(directory, own, rest, **NONE) as nodes:
        generation = await nodes.pipeline.open(LONG)
        await events(generation, 2)
        nodes.driving.cancel()
        with pytest.raises(Unavailable):
            await read(generation)
        with pytest.raises(Unavailable):
            await nodes.pipeline.open(GREEDY)
        # The driver closes its sessions at the holders even when it ends.
        await nodes.settled()


async def test_a_prompt_of_any_length(directory: Path) -> None:
    own, *rest = spans(3)
    async with cluster(directory, own, rest) as nodes:
        for prompt in ("", "a", "word " * 40):
            request = GenerationRequest(prompt, max_tokens=3, temperature=0.0)
            text, _ = await complete(nodes.pipeline, request)
            assert text == await alone(directory, request)
        await nodes.settled()


async def soak(nodes: Cluster, seed: int) -> None:
    """Run one client, which may leave at any moment."""
    choice = random.Random(seed)
    request = replace(SAMPLED, seed=seed, max_tokens=choice.randint(1, 12))
    try:
        async with await nodes.pipeline.open(request) as generation:
            for _ in range(choice.randint(0, request.max_tokens + 1)):
                if not isinstance(await anext(generation), TokenEvent):
                    return
    except RateLimited:
        return


@pytest.mark.slow
async def test_soak(directory: Path) -> None:
    """Many requests with random disconnects leave nothing behind."""
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest, within_s=300 + 5 * SOAK, **NONE) as nodes:
        clients = trio.Semaphore(12)

        async def client(seed: int) -> None:
            try:
                await soak(nodes, seed)
            finally:
                clients.release()

        async with trio.open_nursery() as nursery:
            for seed in range(SOAK):
                await clients.acquire()
                nursery.start_soon(client, seed)
        await nodes.settled()
        figures = nodes.executor.meter.snapshot(trio.current_time())
        assert figures.requests_total > SOAK / 2


async def test_hops_are_recorded(directory: Path) -> None:
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest, **NONE) as nodes:
        async with await nodes.pipeline.open(GREEDY) as generation:
            await read(generation)
        trace = json.loads(nodes.hops.line(generation.id) or "")
        assert trace["id"] == generation.id
        assert trace["paths"] == 1
        # Nobody had been measured when the first path was chosen.
        assert "expected_ms" not in trace
        assert [hop["layers"] for hop in trace["hops"]] == ["0-1", "2-3", "4-5"]
        assert len({hop["steps"] for hop in trace["hops"]}) == 1
        assert all(hop["compute_ms"] > 0 for hop in trace["hops"])
        assert nodes.hops.line("gen-unknown") is None
        async with await nodes.pipeline.open(GREEDY) as generation:
            await read(generation)
        assert json.loads(nodes.hops.line(generation.id) or "")["expected_ms"] > 0
        figures = nodes.hops.figures()
        assert figures.generations == 2
        assert figures.hop_compute_ms > 0
        await nodes.settled()


@pytest.mark.parametrize("lie", [math.nan, math.inf, -1.0])
async def test_invalid_durations_count_as_missing(directory: Path, lie: float) -> None:
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest, **NONE) as nodes:
        service = nodes.holders[-1].gate._service
        truthful = service.SwarmForward

        async def swarm_forward(message: pb.SwarmForwardRequest) -> pb.SwarmForwardResponse:
            answer: pb.SwarmForwardResponse = await truthful(message)
            for hop in answer.hops:
                hop.queue_ms = hop.compute_ms = hop.network_ms = lie
            return answer

        service.SwarmForward = swarm_forward
        async with await nodes.pipeline.open(GREEDY) as generation:
            await read(generation)
        trace = json.loads(nodes.hops.line(generation.id) or "")
        assert trace["hops"][-1]["compute_ms"] == 0.0
        figures = nodes.hops.figures()
        assert math.isfinite(figures.hop_compute_ms + figures.hop_network_ms)


def test_records_are_bounded() -> None:
    recorder = HopRecorder()
    traces = [recorder.begin(f"gen-{number}") for number in range(1000)]
    assert recorder.trace("gen-0") is None
    assert recorder.trace("gen-999") is traces[-1]
    trace = HopTrace("gen")
    for number in range(1000):
        trace.add([HopTime(f"{number}", 0, 1, 1.0, 2.0, 3.0)])
        trace.failed("reason")
    assert len(trace.hops) < 100
    assert len(trace.failures) == MAX_FAILURES
    assert "\n" not in trace.encode()


async def test_own_sessions_count_as_load() -> None:
    """A burst is spread over the holders before any of them has reported its load."""
    book = FixedBook()
    book.peers = [FixedPeer(name * 40, "127.0.0.1", 1, (4, 5)) for name in "ab"]
    routes = Routes(book.as_peer_book, 4, 6)
    chosen = []
    for _ in range(4):
        path = routes.choose() or ()
        routes.enter(path)
        chosen.append(path[0].node_id[0])
    assert chosen == ["a", "b", "a", "b"]


@pytest.mark.parametrize("mixed", [True, False])
async def test_holders_of_the_own_numeric_class_come_first(mixed: bool) -> None:
    book = FixedBook()
    quick = FixedPeer("a" * 40, "127.0.0.1", 1, (4, 5), numeric_class="cpu/int4/torch")
    alike = FixedPeer("b" * 40, "127.0.0.1", 1, (4, 5), 500.0, numeric_class="cpu/int8/x")
    book.peers = [quick, alike]
    routes = Routes(book.as_peer_book, 4, 6, numeric_class="cpu/int8/x", mixed=mixed)
    assert [hop.node_id[0] for hop in routes.choose() or ()] == ["b"]
    left = routes.choose(excluded=[alike.node_id])
    if mixed:
        assert left is not None
        assert left[0].mixed
    else:
        assert left is None
        assert "pipeline.mixed is false" in str(routes.unavailable([alike.node_id]))


def test_an_answer_over_several_numeric_classes_says_so_once() -> None:
    trace = HopTrace("gen")
    trace.took_path([])
    assert not trace.notes
    trace.took_path([], mixed=True)
    trace.took_path([], mixed=True)
    assert trace.notes == [MIXED]
