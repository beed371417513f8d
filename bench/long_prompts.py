"""Prompts of up to 4,000 tokens against llama.cpp with the same weights.

``python -m bench.long_prompts [FORMAT...]`` takes two minutes for each format, and a quiet machine.
The weights are random; their shapes are those of SmolLM2-135M, whose many small heads make
attention a large part of a long prompt.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from bench.llama_peer import FORMATS, LlamaPeer, write_gguf
from bench.peer_process import peer_process
from bench.random_model import THREADS, random_model
from bench.speed import prompt_rate
from bench.table import BenchRow, in_turn, throughput_row
from meshnode.model.config import DecoderConfig
from meshnode.model.engine import Engine
from meshnode.model.loading import load_model

ROUNDS = 3
LENGTHS = (500, 1000, 2000, 4000)
SHAPE = DecoderConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    context_length=max(LENGTHS) + 1,
)


def run(dtypes: list[str]) -> list[BenchRow]:
    """Measure each format."""
    torch.set_num_threads(THREADS)
    rows: list[BenchRow] = []
    random = torch.Generator().manual_seed(0)
    prompt = torch.randint(0, 1000, (max(LENGTHS),), generator=random).tolist()
    with random_model(SHAPE) as directory, tempfile.TemporaryDirectory() as folder:
        for dtype in dtypes:
            path = Path(folder) / f"{dtype}.gguf"
            write_gguf(directory, path, dtype)
            engine = Engine(load_model(directory, threads=THREADS, dtype=dtype).decoder, 1)
            with peer_process(LlamaPeer, path, THREADS, 1, SHAPE.context_length) as peer:
                for length in LENGTHS:
                    ours, theirs = in_turn(
                        ROUNDS,
                        partial(prompt_rate, engine, prompt[:length], SHAPE.context_length),
                        partial(peer.call, "prompt_rate", prompt[:length]),
                    )
                    name = f"{dtype} vs {FORMATS[dtype]}, prompt of {length}"
                    rows.append(throughput_row(name, ours, theirs, 1.0, "token/s"))
    return rows


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    print_table({"long prompts": run(sys.argv[1:] or list(FORMATS))})


if __name__ == "__main__":
    main()
