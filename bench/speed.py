"""The engine in every format against llama.cpp with the same weights.

llama.cpp and ``transformers`` run in processes of their own (``peer_process.py``). Their samples
and ours are taken in turn. Nothing else may compute meanwhile: llama.cpp's threads spin, and lose
far more on a busy machine than ours do. A machine that is loaded is refused, unless
``BENCH_LOADED=1`` is set; then every row says so.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import trio

from bench.llama_peer import FORMATS, LlamaPeer, write_gguf
from bench.peer_process import PeerProcess, peer_process
from bench.random_model import THREADS, Peer, random_model
from bench.table import BenchRow, in_turn, seconds, throughput_row
from meshnode.domain.generation import GenerationRequest, TokenEvent
from meshnode.model.engine import Engine, Session
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import EngineLimits, Executor, serve_executor

ROUNDS = 5
TOKENS = 32
CONCURRENT = 8
PROMPT = 1000
STREAM_TOKENS = 900
CHUNK = 512
CONTEXT = 1200
LOAD_AT_MOST = 0.3
"""Processes that wait for a core, on average over the last minute, for each core."""
SENTENCE = "Once upon a time there was a node that served a model to its neighbours."


class MachineLoaded(RuntimeError):
    """Something else computes on this machine."""


def run() -> list[BenchRow]:
    """Run the measurements, which take about ten minutes."""
    note = _note_of_load()
    torch.set_num_threads(THREADS)
    rows = [_bandwidth()]
    with random_model() as directory, tempfile.TemporaryDirectory() as folder:
        for dtype in FORMATS:
            path = Path(folder) / f"{dtype}.gguf"
            write_gguf(directory, path, dtype)
            model = load_model(directory, threads=THREADS, dtype=dtype)
            with peer_process(LlamaPeer, path, THREADS, CONCURRENT, CONTEXT) as peer:
                rows += _against_llama(dtype, model, peer)
            rows += trio.run(_gaps, dtype, model)
            path.unlink()
        rows += _against_transformers(directory)
    for row in rows:
        object.__setattr__(row, "note", note)
    return rows


def _note_of_load() -> str:
    load = os.getloadavg()[0]
    if load <= LOAD_AT_MOST * (os.cpu_count() or 1):
        return ""
    if os.environ.get("BENCH_LOADED") != "1":
        raise MachineLoaded(f"the load is {load:.1f}: figures would be void (BENCH_LOADED=1)")
    print(f"the machine is loaded ({load:.1f}): these figures are void", file=sys.stderr)
    return f"VOID, load {load:.1f}"


def _bandwidth() -> BenchRow:
    """GB/s read and written by copying half a gigabyte."""
    source = torch.ones(1 << 27)
    target = torch.empty_like(source)
    samples = [2 * source.nbytes / seconds(lambda: target.copy_(source)) / 1e9 for _ in range(7)]
    return BenchRow("memory, large copy", statistics.median(samples), None, None, None, "GB/s")


def _against_llama(dtype: str, model: LoadedModel, peer: PeerProcess) -> list[BenchRow]:
    engine = Engine(model.decoder, CONCURRENT)
    prompt = model.tokenizer.encode(SENTENCE)
    long = (prompt * (PROMPT // len(prompt) + 1))[:PROMPT]
    one, their_one, many, their_many, read, their_read = in_turn(
        ROUNDS,
        partial(_decode_rate, engine, prompt, 1),
        partial(peer.call, "decode_rate", prompt, 1, TOKENS),
        partial(_decode_rate, engine, prompt, CONCURRENT),
        partial(peer.call, "decode_rate", prompt, CONCURRENT, TOKENS),
        partial(prompt_rate, engine, long),
        partial(peer.call, "prompt_rate", long),
    )
    name = f"{dtype} vs {FORMATS[dtype]}"
    weights = model.weight_bytes - model.decoder.config.vocab_size * _row_bytes(model)
    return [
        throughput_row(f"{name}, one stream", one, their_one, 0.9, "token/s"),
        throughput_row(
            f"{name}, one stream, weights read",
            [rate * weights / 1e9 for rate in one],
            [rate * weights / 1e9 for rate in their_one],
            None,
            "GB/s",
        ),
        throughput_row(f"{name}, {CONCURRENT} at once", many, their_many, 1.0, "token/s"),
        throughput_row(f"{name}, prompt of {PROMPT}", read, their_read, 1.0, "token/s"),
    ]


def _row_bytes(model: LoadedModel) -> float:
    """Bytes of an embedding's row, of which a token reads one only."""
    config = model.decoder.config
    layers = sum(model.card.layer_bytes.values())
    return (model.weight_bytes - layers) / (2 * config.vocab_size)


def _session(engine: Engine, prompt: list[int], context: int = CONTEXT) -> Session:
    return engine.session(prompt, context, GenerationRequest("", max_tokens=1, temperature=0.0))


def _decode_rate(engine: Engine, prompt: list[int], count: int) -> float:
    sessions = [_session(engine, prompt) for _ in range(count)]
    engine.prefill_together([(session, 0, len(prompt)) for session in sessions])
    return count * TOKENS / seconds(_times(TOKENS, partial(engine.decode, sessions)))


def _times(count: int, function: Callable[[], object]) -> Callable[[], object]:
    return lambda: [function() for _ in range(count)]


def prompt_rate(engine: Engine, prompt: list[int], context: int = CONTEXT) -> float:
    """Prompt tokens per second, of a session with room for ``context`` positions."""
    session = _session(engine, prompt, context)

    def read() -> None:
        for start in range(0, len(prompt), CHUNK):
            engine.prefill_together([(session, start, min(start + CHUNK, len(prompt)))])

    return len(prompt) / seconds(read)


async def _gaps(dtype: str, model: LoadedModel) -> list[BenchRow]:
    """A stream runs; eight prompts of a thousand tokens arrive."""
    words = SENTENCE * 80
    text = next(
        words[:size]
        for size in range(len(words), 0, -20)
        if len(model.tokenizer.encode(words[:size])) <= PROMPT
    )
    gaps: list[float] = []
    firsts: list[tuple[float, int]] = []
    async with trio.open_nursery() as nursery:
        limits = EngineLimits(max_batch=CONCURRENT + 1, kv_bytes=4 << 30)
        executor: Executor = await nursery.start(serve_executor, model, limits)
        async with trio.open_nursery() as readers:
            running = trio.Event()
            readers.start_soon(_stream, executor, gaps, running, firsts)
            await running.wait()
            begun = trio.current_time()
            for number in range(CONCURRENT):
                readers.start_soon(_first, executor, text, number, firsts)
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    order = [number for _, number in sorted(firsts)]
    times = sorted(at - begun for at, _ in firsts)
    return [
        BenchRow(f"{dtype}, longest gap, 8 prompts", max(gaps), 0.5, 0.5 / max(gaps), 1.0, "s"),
        BenchRow(f"{dtype}, first of 8 first tokens", times[0], None, None, None, "s"),
        BenchRow(f"{dtype}, last of 8 first tokens", times[-1], None, None, None, "s"),
        BenchRow(f"{dtype}, in order", float(order == sorted(order)), 1.0, None, None, "1: yes"),
    ]


async def _stream(
    executor: Executor, gaps: list[float], running: trio.Event, firsts: list[tuple[float, int]]
) -> None:
    request = GenerationRequest(SENTENCE, max_tokens=STREAM_TOKENS, temperature=0.0)
    async with await executor.open(request) as generation:
        before = None
        async for event in generation:
            if not isinstance(event, TokenEvent):
                return
            now = trio.current_time()
            if before is not None:
                gaps.append(now - before)
            before = now
            if event.index == 4:
                gaps.clear()
                running.set()
            if len(firsts) == CONCURRENT:
                return


async def _first(
    executor: Executor, text: str, number: int, firsts: list[tuple[float, int]]
) -> None:
    request = GenerationRequest(text, max_tokens=2, temperature=0.0)
    async with await executor.open(request) as generation:
        await anext(generation)
        firsts.append((trio.current_time(), number))


def _against_transformers(directory: Path) -> list[BenchRow]:
    model = load_model(directory, threads=THREADS)
    engine, prompt = Engine(model.decoder, CONCURRENT), model.tokenizer.encode(SENTENCE)
    with peer_process(Peer, directory) as peer:
        one, theirs, many, their_many = in_turn(
            ROUNDS,
            partial(_decode_rate, engine, prompt, 1),
            partial(peer.call, "tokens_per_second", prompt, 1, TOKENS),
            partial(_decode_rate, engine, prompt, CONCURRENT),
            partial(peer.call, "tokens_per_second", prompt, CONCURRENT, TOKENS),
        )
    return [
        throughput_row("float32 vs transformers, one", one, theirs, 1.0, "token/s"),
        throughput_row(f"float32 vs transformers, {CONCURRENT}", many, their_many, 1.0, "token/s"),
    ]
