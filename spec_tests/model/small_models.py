"""Model directories for tests: small random models, and a tokenizer that covers every byte."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.loading import save_model

VOCAB_SIZE = 320
END_OF_TEXT = 0

TEXT = (
    "A node serves text inference, takes part in distributed training, and exposes its status. "
    "Naïve café, 東京, Ελλάδα, 🙂👩‍🚀: characters of one to four bytes. "
)


def byte_level_backend() -> Backend:
    """A BPE tokenizer with a token for each byte and a few merges; token 0 ends a text."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=["<|end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator([TEXT] * 4, trainer)
    return backend


def write_tokenizer(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "tokenizer.json"
    byte_level_backend().save(str(path))
    return path


def small_config(**changes: Any) -> DecoderConfig:
    shape: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_layers": 4,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "context_length": 256,
        "eos_token_ids": (END_OF_TEXT,),
        "initializer_range": 0.2,
    }
    return DecoderConfig(**(shape | changes))


def make_model(directory: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a small random model. ``changes`` are fields of DecoderConfig."""
    decoder = Decoder(small_config(**changes))
    decoder.init_weights(torch.Generator().manual_seed(seed))
    tokenizer = write_tokenizer(directory.with_name(directory.name + "-tokenizer"))
    save_model(directory, decoder, tokenizer)
    return directory


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON object in a file; a value of ``...`` removes the key."""
    document = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in document.items() if value is not ...}
    path.write_text(json.dumps(kept))


def random_tokens(rows: int, seq: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCAB_SIZE, (rows, seq), generator=generator)


def parametrize_ranges(num_layers: int, cuts: Sequence[int]) -> list[range]:
    """Contiguous layer ranges between the cuts."""
    edges = [0, *cuts, num_layers]
    return [range(a, b) for a, b in itertools.pairwise(edges)]
