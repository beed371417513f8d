"""How busy stages are, and how soon a prompt is read: real services in virtual time.

``python -m bench.virtual_stages`` takes some minutes on any machine, however busy. First it counts
the processor time of steps of a random model of 134 million parameters, by one thread: of each
stage, for several numbers of positions, and for chunks of a prompt. Then driver, executors, holders
and relays of this project compute a tiny model, whose steps take just these times in virtual time,
on nodes with a core each; each message occupies its receiver's event loop for 1.1 ms, and its
answer as much again (decision 0109). So the figures are those of nodes that share no processor.

A node with all layers is taken to have all the cores, and to lose nothing by using them together:
its step takes the counted time, divided by the number of nodes.

Targets: the busiest stage computes for 0.85 of the time; two nodes with half the cores each reach
0.9 of one node with all; a prompt of 2,000 tokens over three nodes takes 0.5 of the time that it
takes if its chunks go one at a time. The texts are those of one node, or the run fails.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import trio
import trio.testing

from bench.full_stages import MIN_OF_ONE, MIN_SHARE
from bench.random_model import CONFIG, random_model
from bench.table import BenchRow
from meshnode.domain.generation import GenerationRequest
from meshnode.model.engine import Engine
from meshnode.model.loading import load_model
from meshnode.services.executor import EngineLimits, serve_executor
from spec_tests.model.small_models import make_model
from spec_tests.services.executor.generations import complete
from spec_tests.services.pipeline.pipelines import loaded
from spec_tests.services.pipeline.virtual import (
    DRIVER,
    Costs,
    Streams,
    VirtualPipeline,
    virtual_pipeline,
)

CUTS = ((8,), (5, 10))
"""Where the twelve layers are divided; the head costs as much as three and a half of them."""
SMALL_CUTS = ((3,), (2, 4))
ROWS = (1, 2, 3, 4, 6, 8, 11, 16, 22, 32)
CHUNK, PROMPT, POSITIONS = 128, 2000, 64
STREAMS, TOKENS = (8, 32), 40
REPEATS = 5
MESSAGE_S = 0.0011
MAX_FIRST = 0.5
LIMITS = EngineLimits(max_batch=32, max_queue=32, kv_bytes=1 << 28, prefill_chunk=CHUNK)
NONE: dict[str, Any] = {"eos_token_ids": frozenset()}


@dataclass(frozen=True)
class Stage:
    """Counted seconds of the steps of some layers."""

    steps: tuple[float, ...]
    """For as many sessions as ``ROWS`` says."""
    chunk: float
    """For a chunk of a prompt."""

    def seconds(self, positions: int, prompt: bool) -> float:
        """What a step takes, between two counted ones in proportion."""
        if prompt:
            return self.chunk * max(positions, 16) / CHUNK
        place = bisect_left(ROWS, positions)
        if ROWS[place] == positions:
            return self.steps[place]
        low, high = ROWS[place - 1], ROWS[place]
        share = (positions - low) / (high - low)
        return (1 - share) * self.steps[place - 1] + share * self.steps[place]


def count(engine: Engine, layers: range) -> Stage:
    """Count the steps of these layers."""

    def inputs(positions: int) -> torch.Tensor:
        if layers.start == 0:
            return torch.ones(1, positions, dtype=torch.int64)
        return torch.randn(1, positions, CONFIG.hidden_size)

    shards = [engine.shard(layers, POSITIONS + len(ROWS) * REPEATS + 1) for _ in range(max(ROWS))]
    for shard in shards:
        engine.extend(shard, inputs(POSITIONS))
    steps = tuple(least(partial(engine.step, shards[:rows], [inputs(1)] * rows)) for rows in ROWS)
    long = engine.shard(layers, PROMPT)
    engine.extend(long, inputs(PROMPT // 2 - CHUNK // 2))

    def chunk() -> None:
        engine.extend(long, inputs(CHUNK), rows=1)
        long.cache.length -= CHUNK

    return Stage(steps, least(chunk))


def least(function: Callable[[], object]) -> float:
    """The least processor time of some calls, which is what the others would take undisturbed."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return min(times)


def run() -> list[BenchRow]:
    """Count, and then simulate."""
    rows: list[BenchRow] = []
    with random_model() as directory:
        model = load_model(directory, threads=1)
        engine = Engine(model.decoder, max(ROWS))
        whole = count(engine, range(CONFIG.num_layers))
        edges = [(0, *cuts, CONFIG.num_layers) for cuts in CUTS]
        stages = [[count(engine, range(a, b)) for a, b in pairwise(some)] for some in edges]
        del engine, model
    named = {"all": whole}
    for some, path in zip(edges, stages, strict=True):
        named |= {f"{a}-{b - 1}": each for (a, b), each in zip(pairwise(some), path, strict=True)}
    for name, stage in named.items():
        counted = ", ".join(f"{1e3 * each:.1f}" for each in (*stage.steps, stage.chunk))
        print(f"layers {name}: ms of steps for {ROWS} sessions, and of a chunk: {counted}")
    with tempfile.TemporaryDirectory() as folder:
        small = make_model(Path(folder) / "small", num_layers=6, context_length=PROMPT + 48)
        for cuts, path in zip(SMALL_CUTS, stages, strict=True):
            for streams in STREAMS:
                rows += _full(small, cuts, path, whole, streams)
        rows.append(_first_token(small, SMALL_CUTS[1], stages[1]))
    return rows


def _full(
    small: Path, cuts: tuple[int, ...], path: Sequence[Stage], whole: Stage, streams: int
) -> list[BenchRow]:
    requests = [
        GenerationRequest(f"A node number {n} serves", max_tokens=TOKENS, temperature=0.0)
        for n in range(streams)
    ]
    expected = trio.run(_one_node, small, requests)
    (ours, shares), (plain, _) = (
        _simulated(small, cuts, path, requests, convoys=convoys) for convoys in (True, False)
    )
    if not ours.texts == plain.texts == expected:
        raise RuntimeError("the texts differ")
    alone = streams * len(path) / whole.seconds(streams, prompt=False)
    name = f"{len(path)} nodes, {streams} streams"
    note = "shares " + ", ".join(f"{share:.2f}" for share in shares)
    target = MIN_OF_ONE if len(path) == 2 else None
    busiest = max(shares)
    return [
        BenchRow(f"{name}: busiest stage", busiest, None, busiest / MIN_SHARE, 1.0, "of 1", note),
        _rates(f"{name}: vs no convoys", ours.rate, plain.rate, 1.0),
        _rates(f"{name}: vs one node", ours.rate, alone, target),
    ]


def _rates(name: str, ours: float, peer: float, target: float | None) -> BenchRow:
    return BenchRow(name, ours, peer, ours / peer, target, "token/s")


def _simulated(
    small: Path,
    cuts: tuple[int, ...],
    path: Sequence[Stage],
    requests: Sequence[GenerationRequest],
    *,
    convoys: bool,
) -> tuple[Streams, list[float]]:
    """The streams, and each stage's share of the time."""

    async def use(nodes: VirtualPipeline) -> tuple[Streams, list[float]]:
        streams = await nodes.generate(requests)
        return streams, [node.share(*streams.steady) for node in nodes.nodes]

    found: tuple[Streams, list[float]] = _in_virtual_time(small, cuts, path, use, convoys=convoys)
    return found


def _first_token(small: Path, cuts: tuple[int, ...], path: Sequence[Stage]) -> BenchRow:
    """The time to the first token of a long prompt, with chunks that follow one another."""
    tokenizer = loaded(small).tokenizer
    prompt = "A node serves. " * PROMPT
    while len(tokenizer.encode(prompt)) > PROMPT:
        prompt = prompt[: int(len(prompt) * min(0.99, PROMPT / len(tokenizer.encode(prompt))))]
    request = GenerationRequest(prompt, max_tokens=4, temperature=0.0)

    async def use(nodes: VirtualPipeline) -> tuple[str, float]:
        began = trio.current_time()
        streams = await nodes.generate([request])
        # Tokenising takes real time, which is none here, but for the steps of the clock.
        began = max(began, nodes.driver.steps[0][0])
        return streams.texts[0], streams.times[0][0] - began

    (text, ours), (other, plain) = (
        _in_virtual_time(small, cuts, path, use, messages=messages) for messages in (8, 1)
    )
    if text != other:
        raise RuntimeError("the texts differ")
    tokens = len(tokenizer.encode(prompt))
    name = f"3 nodes, prompt of {tokens}: first token"
    return BenchRow(name, ours, plain, plain / ours, 1 / MAX_FIRST, "s")


def _in_virtual_time(
    small: Path,
    cuts: tuple[int, ...],
    path: Sequence[Stage],
    use: Callable[[VirtualPipeline], Any],
    *,
    convoys: bool = True,
    messages: int = 8,
) -> Any:
    edges = (0, *cuts, 6)
    held = [range(a, b) for a, b in pairwise(edges)]
    costs = Costs(message=MESSAGE_S, answer=MESSAGE_S)
    limits = replace(DRIVER, prefill_chunk=CHUNK, convoys=convoys, call_s=60.0)

    async def main() -> Any:
        async with virtual_pipeline(small, held, costs, limits, LIMITS, messages, **NONE) as nodes:
            for node, stage in zip(nodes.nodes, path, strict=True):
                node.seconds = stage.seconds
            return await use(nodes)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def _one_node(small: Path, requests: Sequence[GenerationRequest]) -> list[str]:
    async with trio.open_nursery() as nursery:
        model = replace(loaded(small), **NONE)
        executor = await nursery.start(serve_executor, model, LIMITS)
        texts = [(await complete(executor, request))[0] for request in requests]
        nursery.cancel_scope.cancel()
    return texts


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    print_table({"virtual": run()})


if __name__ == "__main__":
    main()
