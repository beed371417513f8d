"""Writes the model as a Hugging Face directory, completely or not at all.

The folder is written beside its final path and then renamed, so that a node that starts meanwhile
never finds an incomplete one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save_file

from meshnode.model.weights import checkpoint_tensors

from .vocabulary import BEGIN_ID, END_ID, tokenizer_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizers import Tokenizer

    from meshnode.model.config import DecoderConfig
    from meshnode.model.decoder import Decoder

MAX_ASSET_BYTES = 8 * 2**20


def config_document(config: DecoderConfig) -> dict[str, object]:
    """Return the ``config.json`` of the asset, which names the type of the stored weights."""
    return config.document() | {
        "eos_token_id": END_ID,
        "pad_token_id": None,
        "torch_dtype": "bfloat16",
    }


def write_asset(
    out: Path,
    model: Decoder,
    tokenizer: Tokenizer,
    metrics: Mapping[str, object],
    card: str,
) -> int:
    """Write the directory ``out`` and return its bytes; raise ValueError if there are too many."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".new-") as scratch:
        made = Path(scratch) / "model"
        made.mkdir()
        tensors = {n: tensor.bfloat16() for n, tensor in checkpoint_tensors(model).items()}
        save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
        _write_json(made / "config.json", config_document(model.config))
        _write_json(
            made / "generation_config.json",
            {"bos_token_id": BEGIN_ID, "eos_token_id": END_ID, "do_sample": True},
        )
        _write_json(made / "tokenizer_config.json", tokenizer_config(model.config.context_length))
        _write_json(made / "metrics.json", metrics)
        tokenizer.save(str(made / "tokenizer.json"), pretty=False)
        (made / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        size = sum(path.stat().st_size for path in made.iterdir())
        if size > MAX_ASSET_BYTES:
            raise ValueError(f"the asset has {size} bytes, more than {MAX_ASSET_BYTES}")
        for path in made.iterdir():
            path.chmod(0o644)
        old = Path(scratch) / "old"
        if out.exists():
            os.rename(out, old)
        os.rename(made, out)
        shutil.rmtree(old, ignore_errors=True)
    return size


def _write_json(path: Path, document: Mapping[str, object]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
