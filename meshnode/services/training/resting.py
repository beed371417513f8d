"""The weights of a training that is switched off (interface 2.3: GetCheckpoint).

A node that has trained before keeps the weights of the last round on its disk. It goes on to say
and to serve them while it does not train, without having the model to train in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from meshnode.domain.metering import TrainingFigures
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.trained_model import Anchor
from meshnode.services.training.disk import TrainingDisk


class RestingTraining:
    """What was saved before this start, or before a run that failed."""

    def __init__(self, folder: Path, origin: str) -> None:
        """``origin`` is the hash of the untrained weights. Blocks. Raises StartupError or OSError.

        Creates the folder if it is missing.
        """
        self._disk = TrainingDisk(folder, WeightsVersion(0, origin))
        self.saved = self._disk.load()

    @property
    def kept(self) -> WeightsVersion:
        """The version of the weights, 0 before the first round."""
        return self.saved.persisted.kept

    @property
    def validation_loss(self) -> float:
        """Their held-out loss; 0.0 if it was not measured."""
        return self.saved.losses[-1] if self.saved.losses else 0.0

    def figures(self) -> TrainingFigures:
        """For ``GET /status`` and ``/metrics``."""
        counts = self.saved.counts
        return TrainingFigures(
            epoch=self.kept.version,
            loss=counts.loss,
            held_out_loss=self.validation_loss,
            steps_total=counts.steps,
        )

    def anchor(self, shapes: Mapping[str, tuple[int, ...]]) -> Anchor | None:
        """The weights; None if they are the untrained ones. Blocks. Raises StartupError.

        They are mapped from their file, since no memory is counted for a training that is off.
        """
        return self._disk.anchor(self.kept, shapes, mapped=True)
