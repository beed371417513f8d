"""The engine against ``transformers``, with the same random weights in the same process.

Both sides decode greedily, with a cache, from the same prompts, on two threads.
"""

from __future__ import annotations

from functools import partial

import torch
import trio

from bench.peer_process import PeerProcess, peer_process
from bench.random_model import CONFIG, THREADS, Peer, random_model
from bench.table import BenchRow, in_turn, seconds, throughput_row
from meshnode.domain.generation import GenerationRequest
from meshnode.model.loading import LoadedModel, load_model
from meshnode.services.executor import EngineLimits, Executor, serve_executor

TOKENS = 32
"""Tokens that each client gets in a sample."""
ROUNDS = 7
CONCURRENT = 8
PROMPT = "Once upon a time there was a node that served a model to its neighbours."


def run() -> list[BenchRow]:
    """Run the measurements, which take a few minutes."""
    torch.set_num_threads(THREADS)
    with random_model() as directory, peer_process(Peer, directory) as peer:
        model = load_model(directory, threads=THREADS)
        prompt = model.tokenizer.encode(PROMPT)
        request = GenerationRequest(PROMPT, max_tokens=TOKENS, temperature=0.0)
        return trio.run(_measure, model, peer, prompt, request)


async def _measure(
    model: LoadedModel, peer: PeerProcess, prompt: list[int], request: GenerationRequest
) -> list[BenchRow]:
    async with trio.open_nursery() as nursery:
        limits = EngineLimits(max_batch=CONCURRENT)
        executor: Executor = await nursery.start(serve_executor, model, limits)
        samples = await trio.to_thread.run_sync(
            in_turn,
            ROUNDS,
            partial(trio.from_thread.run, _ours, executor, request, 1),
            partial(peer.call, "tokens_per_second", prompt, 1, TOKENS),
            _read_bandwidth,
            partial(trio.from_thread.run, _ours, executor, request, CONCURRENT),
            partial(peer.call, "tokens_per_second", prompt, CONCURRENT, TOKENS),
        )
        nursery.cancel_scope.cancel()
    one, peer_one, bandwidth, many, peer_many = samples
    gigabytes = (CONFIG.parameters - CONFIG.vocab_size * CONFIG.hidden_size) * 4 / 1e9
    read = [rate * gigabytes for rate in one]
    batch = f"{CONCURRENT} at once"
    return [
        throughput_row("decode, one alone, vs transformers", one, peer_one, 1.2, "token/s"),
        throughput_row("decode, one alone, vs torch.mv", read, bandwidth, 0.8, "GB/s"),
        throughput_row(f"decode, {batch}, vs transformers batch", many, peer_many, 1.0, "token/s"),
        throughput_row(f"decode, {batch}, vs one alone", many, one, 3.0, "token/s"),
    ]


async def _ours(executor: Executor, request: GenerationRequest, clients: int) -> float:
    """Return tokens per second of all clients together, through the executor.

    The time that the prompts take is included.
    """

    async def one() -> None:
        async with await executor.open(request) as generation:
            async for _ in generation:
                pass

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(clients):
            nursery.start_soon(one)
    return clients * TOKENS / (trio.current_time() - started)


def _read_bandwidth() -> float:
    """Return the GB/s that ``torch.mv`` reads from a matrix about as large as the model.

    The embedding is not counted: a token reads one row of it.
    """
    rows, repeats = 36_000, 4
    if not _MATRIX:
        _MATRIX.append(torch.randn(rows, 3072))
        _MATRIX.append(torch.randn(3072))
    matrix, vector = _MATRIX
    with torch.inference_mode():
        duration = seconds(lambda: [torch.mv(matrix, vector) for _ in range(repeats)])
    return repeats * matrix.nbytes / duration / 1e9


_MATRIX: list[torch.Tensor] = []
"""The matrix and the vector, allocated only once, outside of the measurement."""
