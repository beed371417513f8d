"""A training run of one process: steps, checkpoints, progress (interface 2.1 ``training``).

Terms: a run's *settings* are a JSON object of everything that its steps depend on besides the code;
its *checkpoint* is one safetensors file with the trainer's state, the settings and the
measurements.

Invariants: a run that was stopped at any point and resumed gives the same weights as an
uninterrupted one; a checkpoint is replaced atomically; a checkpoint with other settings is refused.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from meshnode.domain.errors import StartupError
from meshnode.model.training import Batch, InnerTrainer, Recipe, TrainingStateMismatch

CHECKPOINT_SECONDS = 120.0
RECENT_STEPS = 50
"""The number of steps over which the displayed loss is averaged."""
LOG_EVERY = 100
TERMINAL_EVERY = 1


class TrainingRun:
    """One run. Its calls block."""

    def __init__(
        self,
        trainer: InnerTrainer,
        checkpoint: Path,
        *,
        settings: dict[str, Any],
        steps: int,
        recipe: Callable[[int], Recipe],
    ) -> None:
        """``recipe`` returns the recipe of the step with the given number."""
        self.trainer = trainer
        self.steps = steps
        self.seconds = 0.0
        """Seconds spent on steps, summed over all processes that worked on the run."""
        self.recent: list[float] = []
        self._checkpoint = checkpoint
        self._settings = json.loads(json.dumps(settings))
        self._recipe = recipe

    @property
    def loss(self) -> float:
        """Mean loss of the last steps."""
        return sum(self.recent) / len(self.recent)

    def resume(self) -> bool:
        """Load the checkpoint; False if there is none. StartupError if it is of another run."""
        if not self._checkpoint.exists():
            return False
        try:
            with safe_open(self._checkpoint, "pt") as file:
                notes = file.metadata() or {}
                settings = json.loads(notes["settings"])
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            if settings != self._settings:
                changes = _changes(settings, self._settings)
                raise StartupError(f"{self._checkpoint} was made with other settings: {changes}")
            self.trainer.restore(state)
            self.seconds = float(notes["seconds"])
            self.recent = [float(loss) for loss in json.loads(notes.get("recent", "[]"))]
        except (SafetensorError, OSError, ValueError, KeyError, TrainingStateMismatch):
            raise StartupError(f"{self._checkpoint} is damaged; remove it to begin anew") from None
        return True

    def save(self) -> None:
        """Write the checkpoint."""
        notes = {
            "settings": json.dumps(self._settings),
            "seconds": str(self.seconds),
            "recent": json.dumps(self.recent),
        }
        scratch = self._checkpoint.with_suffix(".new")
        save_file(self.trainer.state(), scratch, metadata=notes)
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        scratch.replace(self._checkpoint)

    def run(
        self,
        batches: Iterable[Batch],
        progress: Callable[[TrainingRun], None] = lambda run: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Do the remaining steps. ``batches`` are those of the whole run.

        After ``stop`` returns true, the current step is finished and saved as the last one.
        """
        started = saved = time.monotonic()
        before = self.seconds
        # A resumed run skips the batches that it has trained on. This takes seconds, not minutes.
        for batch in islice(batches, self.trainer.step_count, self.steps):
            self.trainer.recipe = self._recipe(self.trainer.step_count)
            report = self.trainer.step(batch)
            stopped, now = stop(), time.monotonic()
            self.seconds = before + now - started
            self.recent = [*self.recent[1 - RECENT_STEPS :], report.loss]
            if report.step + 1 == self.steps or stopped or now - saved > CHECKPOINT_SECONDS:
                self.save()
                saved = now
            progress(self)
            if stopped:
                return


def show_progress(run: TrainingRun) -> None:
    """Show a progress bar on a terminal; elsewhere, print a line from time to time."""
    terminal = sys.stderr.isatty()
    step, last = run.trainer.step_count, run.trainer.step_count == run.steps
    if not (last or step % (TERMINAL_EVERY if terminal else LOG_EVERY) == 0):
        return
    left = run.seconds / step * (run.steps - step)
    filled = round(20 * step / run.steps)
    bar = f"[{'#' * filled}{'.' * (20 - filled)}] " if terminal else ""
    line = f"{bar}step {step}/{run.steps}  loss {run.loss:.3f}  {left:.0f} s left"
    end = "\n" if last or not terminal else ""
    print(f"\r{line}\x1b[K" if terminal else line, end=end, file=sys.stderr, flush=True)


def _changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The settings that differ, with both values."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    shown = [f"{name} was {before.get(name)!r}, is now {now.get(name)!r}" for name in names]
    return "; ".join(shown)
