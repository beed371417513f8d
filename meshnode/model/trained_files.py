"""A model's files with weights that were trained here: the generations that a node serves.

The small files are those of the model that was trained, its *origin*; the weights are in one
safetensors file under their checkpoint names, in float32 (an anchor, ``model.checkpoint``).

With ``--dtype auto`` they are kept in memory in the origin's format, so that training makes no
answer slower, but in eight bits at least: four would round away what was learned (decision 0225).

Invariant: the manifest is made from the tensors that are loaded, so its hash names these weights.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from meshnode.model.config import DecoderConfig
from meshnode.model.files import ModelFiles
from meshnode.model.kernels.formats import Format, narrowest
from meshnode.model.manifest import Manifest, facts_of_tensors, parts_of
from meshnode.model.weights import Checkpoint, SafetensorsCheckpoint, StoredRows


class TrainedFiles(ModelFiles):
    """The files of ``origin``, with the weights of another file."""

    def __init__(self, origin: ModelFiles, weights: Path, held: range | None = None) -> None:
        """``held`` are the layers whose weights are in the file, by default all."""
        super().__init__(origin.path)
        self._origin = origin
        self.weights = weights
        self._held = held

    @property
    def name(self) -> str:
        """The origin's name."""
        return self._origin.name

    @cached_property
    def auto_format(self) -> Format:
        """The format of the origin's weights, or INT8 if these have fewer bits."""
        found: set[Format] = set()
        with self._origin.checkpoint() as checkpoint:
            for part in parts_of(self.config(), self._held).values():
                if len(part.shape) == 2:
                    form = narrowest(StoredRows(checkpoint, [part]))
                    found.add(Format.INT8 if form.integer else form)
                    checkpoint.release()
        wide = found - {Format.INT8}
        if len(wide) > 1:
            # Neither of the two formats of 16 bits holds what the other does.
            return Format.FLOAT32
        return wide.pop() if wide else Format.INT8

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
