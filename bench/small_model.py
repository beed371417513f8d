"""A model that is small enough for long training runs: 0.1 million parameters, 512 tokens.

The model is float32, with 2 layers, hidden size 64, 2 heads, intermediate size 192, rows of up to
128 tokens; the tokenizer is trained on the default model's corpus. ``meshnode train`` trains it a
little first, so that a benchmark does not measure the first steps from random weights.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.loading import save_model
from tools.default_model.vocabulary import BEGIN_ID, END_ID, train_tokenizer

VOCABULARY, SAMPLE_DOCUMENTS = 512, 5000
CONFIG = DecoderConfig(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=192,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=32,
    context_length=128,
    tied_head=True,
    bos_token_id=BEGIN_ID,
    eos_token_ids=(END_ID,),
)
WARM_UP = ("--batch-size", "32", "--learning-rate", "2e-3", "--warmup", "100")


def write_small_model(directory: Path, text: Path, warm_up_steps: int) -> None:
    """Write the model after ``warm_up_steps`` training steps of 32 rows from folder ``text``."""
    decoder = Decoder(CONFIG)
    decoder.init_weights(torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder) / "tokenizer.json"
        train_tokenizer(VOCABULARY, SAMPLE_DOCUMENTS).save(str(tokenizer))
        if not warm_up_steps:
            save_model(directory, decoder, tokenizer)
            return
        fresh = Path(folder) / "fresh"
        save_model(fresh, decoder, tokenizer)
        command = [sys.executable, "-m", "meshnode", "train", "--from", str(fresh)]
        command += ["--text", str(text), "--out", str(directory), "--steps", str(warm_up_steps)]
        subprocess.run([*command, *WARM_UP], check=True, stdout=subprocess.DEVNULL)
