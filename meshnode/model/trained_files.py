"""A model's files with weights that were trained here: the generations that a node serves.

The small files are those of the model that was trained, its *origin*; the weights are in one
safetensors file under their checkpoint names, in float32 (an anchor, ``model.checkpoint``).

Invariant: the manifest is made from the tensors that are loaded, so its hash names these weights.
"""

from __future__ import annotations

from pathlib import Path

from meshnode.model.config import DecoderConfig
from meshnode.model.files import ModelFiles
from meshnode.model.manifest import Manifest, facts_of_tensors, parts_of
from meshnode.model.weights import Checkpoint, SafetensorsCheckpoint


class TrainedFiles(ModelFiles):
    """The files of ``origin``, with the weights of another file."""

    def __init__(self, origin: ModelFiles, weights: Path) -> None:
        super().__init__(origin.path)
        self._origin = origin
        self.weights = weights

    @property
    def name(self) -> str:
        """The origin's name."""
        return self._origin.name

    def read(self, name: str) -> bytes | None:
        """A small file of the origin."""
        return self._origin.read(name)

    def checkpoint(self) -> Checkpoint:
        """The trained weights."""
        return SafetensorsCheckpoint.of_file(self.weights)

    def weight_files(self) -> list[Path]:
        """The file of the trained weights."""
        return [self.weights]


def trained_manifest(files: TrainedFiles, config: DecoderConfig, origin: Manifest) -> Manifest:
    """The manifest of trained weights. Reads them all. Raises ModelUnreadable."""
    with files.checkpoint() as checkpoint:
        parts = parts_of(config).values()
        tensors = facts_of_tensors((part.name, checkpoint.parameter([part])) for part in parts)
    return Manifest(tensors, origin.files)
