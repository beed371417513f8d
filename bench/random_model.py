"""Llamas of 134 million and of 1.1 billion random parameters, and ``transformers`` with them.

The small one has 12 layers, hidden size 768, 12 heads, intermediate size 2048, vocabulary 32000. In
both the head is not tied to the embedding, and the weights are float32. ``transformers`` runs with
its defaults: ``generate`` with its default attention, greedy, with a cache, in inference mode.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bench.table import seconds
from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.loading import DEFAULT_MODEL, save_model

THREADS = 2
CONFIG = DecoderConfig(
    vocab_size=32000,
    hidden_size=768,
    intermediate_size=2048,
    num_layers=12,
    num_heads=12,
    num_kv_heads=12,
    head_dim=64,
    context_length=2048,
)

BILLION = DecoderConfig(
    vocab_size=32000,
    hidden_size=2048,
    intermediate_size=5632,
    num_layers=22,
    num_heads=32,
    num_kv_heads=4,
    head_dim=64,
    context_length=2048,
)
"""The shape of TinyLlama."""


@contextmanager
def random_model(config: DecoderConfig = CONFIG) -> Iterator[Path]:
    """Yield a temporary model directory: half a gigabyte, or 4.4 for a billion parameters."""
    with torch.device("meta"):
        decoder = Decoder(config)
    decoder.to_empty(device="cpu")
    decoder.init_weights(torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "random"
        save_model(directory, decoder, DEFAULT_MODEL / "tokenizer.json")
        del decoder
        yield directory


class Peer:
    """``transformers`` with the weights of a model directory."""

    def __init__(self, directory: Path) -> None:
        torch.set_num_threads(THREADS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from transformers import LlamaForCausalLM  # heavy, and only needed here

            self._model: Any = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self._model.eval()  # type: ignore[no-untyped-call]  # transformers leaves eval without types

    def tokens_per_second(self, prompt: list[int], batch: int, tokens: int) -> float:
        """Return tokens per second over the whole batch, including the prompt's computation."""
        inputs = torch.tensor([prompt] * batch)

        def generate() -> None:
            self._model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
            )

        with torch.inference_mode():
            return batch * tokens / seconds(generate)
