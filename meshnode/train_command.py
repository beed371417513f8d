"""``meshnode train``: train a model on a folder of text, in one process, resumable (interface 2.1).

The same loop trained the default model (``tools/default_model`` gives it a corpus and a schedule).
Nodes that train together do so with ``training.enabled`` instead.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Self

import torch

from meshnode.config import Config
from meshnode.domain.errors import StartupError
from meshnode.model.data import TokenData
from meshnode.model.files import locate_model, open_files
from meshnode.model.loading import DEFAULT_MODEL, load_model, save_model
from meshnode.model.run import TrainingRun, show_progress
from meshnode.model.training import Batch, InnerTrainer, Recipe, evaluate

CHECKPOINT_FILE = "checkpoint.safetensors"
SEED = 1
ROWS = 64
"""Fewest tokens in a sequence. A sequence is as long as the model's context, up to MAX_ROW."""
MAX_ROW = 512


def run_train_command(options: argparse.Namespace, config: Config) -> int:
    """Train to the last step, resuming an earlier run. Raises StartupError if it cannot.

    On SIGINT or SIGTERM it finishes and saves the current step, and returns 128 plus the signal.
    """
    missing = [n for n in ("text", "steps", "out") if getattr(options, n) is None]
    if missing:
        raise StartupError(f"train: --{missing[0]} is needed")
    if not 1 <= options.steps <= 100_000_000 or options.batch_size < 1:
        raise StartupError("--steps and --batch-size must be positive")
    if not options.text.is_dir():
        raise StartupError(f"--text: there is no folder {options.text}")
    torch.set_num_threads(config.resources.cpu_threads)
    start: Path = options.start or DEFAULT_MODEL
    files = open_files(locate_model(str(start)))
    model = load_model(files, trainable=True)
    decoder = model.decoder
    if options.fresh:
        decoder.init_weights(torch.Generator().manual_seed(SEED))
    _tell(f"reading {options.text}")
    length = max(ROWS, min(decoder.config.context_length, MAX_ROW)) + 1
    end = min(model.eos_token_ids, default=None)
    data = TokenData.of_folder(options.text, model.tokenizer, length, end)
    settings = {
        "start": str(start.resolve()),
        "text": str(options.text.resolve()),
        "steps": options.steps,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "warmup": options.warmup,
        "fresh": options.fresh,
        "sequences": len(data.train),
    }
    try:
        recipe = Recipe(
            learning_rate=options.learning_rate,
            warmup_steps=options.warmup,
            total_steps=options.steps,
        )
    except ValueError as error:
        raise StartupError(str(error)) from None
    out: Path = options.out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(f"cannot use the folder {out}: {error.strerror}") from None
    run = TrainingRun(
        InnerTrainer(decoder, recipe),
        out / CHECKPOINT_FILE,
        settings=settings,
        steps=options.steps,
        recipe=lambda _: recipe,
    )
    _tell(f"{len(data.train)} sequences of {length} tokens; measuring {len(data.validation)} more")
    before = evaluate(decoder, data.validation_batches(options.batch_size)).loss
    if run.resume():
        print(f"going on after step {run.trainer.step_count}")
    batches = _batches(data, options.batch_size)
    try:
        with _Interruption() as interruption:
            run.run(batches, show_progress, lambda: interruption.number > 0)
    except FloatingPointError as error:
        # The progress bar has not ended its line.
        _tell("")
        raise StartupError(f"{error}: try again with a lower --learning-rate") from None
    if run.trainer.step_count < options.steps:
        lead = "\n" if sys.stderr.isatty() else ""
        done = f"stopped after step {run.trainer.step_count} of {options.steps}"
        print(f"{lead}{done}; the same command goes on from there", file=sys.stderr)
        return 128 + interruption.number
    after = evaluate(decoder, data.validation_batches(options.batch_size))
    save_model(out, decoder, files)
    metrics = {
        "steps": run.trainer.step_count,
        "train_loss": round(run.loss, 5) if run.recent else None,
        "held_out_loss_before": round(before, 5),
        "held_out_loss": round(after.loss, 5),
        "held_out_tokens": after.tokens,
        "seconds": round(run.seconds, 1),
    }
    print(json.dumps(metrics, indent=2))
    return 0


class _Interruption:
    """A context in which the first stop signal is only recorded; a second one acts at once."""

    number = 0
    """The signal that was received; 0 before any."""
    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in self._SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, _: FrameType | None) -> None:
        self.number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _tell(line: str) -> None:
    """Announce slow work before the first step; like the progress bar, only on a terminal."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


def _batches(data: TokenData, size: int) -> Iterator[Batch]:
    return (one.batch for one in data.batches(range(data.shards), size, SEED))
