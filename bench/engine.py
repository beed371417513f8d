"""The engine against ``transformers``, on the same random weights in the same process.

The model is a Llama of 134 million parameters, float32: 12 layers, hidden 768, 12 heads,
intermediate 2048, vocabulary 32000, head not tied to the embedding. Both sides decode greedily,
with a cache, from the same prompts, on two threads. ``transformers`` runs as it comes: ``generate``
with its default attention, in inference mode.
"""

from __future__ import annotations

import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
import trio

from bench.table import BenchRow, in_turn, seconds, throughput_row
from meshnode.domain.generation import GenerationRequest
from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.loading import DEFAULT_MODEL, LoadedModel, load_model, save_model
from meshnode.services.executor import EngineLimits, Executor, serve_executor

THREADS = 2
TOKENS = 32
"""Generated in each sample."""
ROUNDS = 7
CONCURRENT = 8
CONFIG = DecoderConfig(
    vocab_size=32000,
    hidden_size=768,
    intermediate_size=2048,
    num_layers=12,
    num_heads=12,
    num_kv_heads=12,
    head_dim=64,
    context_length=1024,
)
PROMPT = "Once upon a time there was a node that served a model to its neighbours."


def run() -> list[BenchRow]:
    """Measure. Takes a few minutes, and half a gigabyte in the temporary folder."""
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "random"
        _write_random_model(directory)
        model = load_model(directory, threads=THREADS)
        peer = _load_peer(directory)
    prompt = model.tokenizer.encode(PROMPT)
    request = GenerationRequest(PROMPT, max_tokens=TOKENS, temperature=0.0)
    return trio.run(_measure, model, peer, prompt, request)


async def _measure(
    model: LoadedModel, peer: Any, prompt: list[int], request: GenerationRequest
) -> list[BenchRow]:
    async with trio.open_nursery() as nursery:
        limits = EngineLimits(max_batch=CONCURRENT)
        executor: Executor = await nursery.start(serve_executor, model, limits)
        samples = await trio.to_thread.run_sync(
            in_turn,
            ROUNDS,
            partial(trio.from_thread.run, _ours, executor, request, 1),
            partial(_theirs, peer, prompt, 1),
            _read_bandwidth,
            partial(trio.from_thread.run, _ours, executor, request, CONCURRENT),
            partial(_theirs, peer, prompt, CONCURRENT),
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
    """Tokens a second over all clients, prompt included, through the executor."""

    async def one() -> None:
        async with await executor.open(request) as generation:
            async for _ in generation:
                pass

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(clients):
            nursery.start_soon(one)
    return clients * TOKENS / (trio.current_time() - started)


def _theirs(peer: Any, prompt: list[int], clients: int) -> float:
    tokens = torch.tensor([prompt] * clients)
    with torch.inference_mode():
        duration = seconds(
            lambda: peer.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=TOKENS,
                min_new_tokens=TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
        )
    return clients * TOKENS / duration


def _read_bandwidth() -> float:
    """Gigabytes a second that ``torch.mv`` reads, of a matrix as large as the model."""
    rows, repeats = 36_000, 4
    if not _MATRIX:
        _MATRIX.append(torch.randn(rows, 3072))
        _MATRIX.append(torch.randn(3072))
    matrix, vector = _MATRIX
    with torch.inference_mode():
        duration = seconds(lambda: [torch.mv(matrix, vector) for _ in range(repeats)])
    return repeats * matrix.nbytes / duration / 1e9


_MATRIX: list[torch.Tensor] = []
"""Made once; allocating it would be measured otherwise."""


def _write_random_model(directory: Path) -> None:
    with torch.device("meta"):
        decoder = Decoder(CONFIG)
    decoder.to_empty(device="cpu")
    decoder.init_weights(torch.Generator().manual_seed(0))
    save_model(directory, decoder, DEFAULT_MODEL / "tokenizer.json")


def _load_peer(directory: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaForCausalLM  # heavy, and only needed here

        return LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
