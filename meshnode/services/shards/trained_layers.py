"""Trained weights of this node's layers on the disk (decisions 0138, 0201).

Each file is safetensors; its metadata says of which model and layers it is, and at which position
of their training. One file has the layers as they were when training was switched off; it is
removed when it is read again. The others are the *versions* of the pipeline that this node kept:
the latest, and the one that it was made from, because other holders may lack the latest.

Terms: a file *fits* if it is of the same model and layers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from meshnode.datadir import make_private, write_private_parts
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.position import PipelineVersion, Place, Position, place_in
from meshnode.model.tensor_file import file_parts

log = logging.getLogger(__name__)

LAYERS_FILE = "layers.safetensors"
_VERSION_FILE = re.compile(r"layers-(\d{1,9})-([0-9a-f]{16})\.safetensors")

Tensors = Mapping[str, Tensor]


class TrainedLayers:
    """The files. Its calls block."""

    def __init__(self, folder: Path, model_hash: str, held: range) -> None:
        """``model_hash`` names the model whose layers ``held`` were trained."""
        self._folder = folder
        self._path = folder / LAYERS_FILE
        self._metadata = {"model_hash": model_hash, "layers": f"{held.start}-{held.stop - 1}"}

    def versions(self) -> list[PipelineVersion]:
        """Those on the disk, newest first."""
        found = map(_VERSION_FILE.fullmatch, (path.name for path in self._folder.glob("layers-*")))
        return sorted((PipelineVersion(int(m[1]), m[2]) for m in found if m), reverse=True)

    def pause(self, tensors: Tensors, place: Place) -> None:
        """Write the weights of layers whose training is switched off. Raises OSError."""
        self._write(self._path, tensors, place)

    def paused(self) -> tuple[dict[str, Tensor], Place] | None:
        """The weights of when training was switched off, if they fit. Their file is removed."""
        found = self._read(self._path)
        if found is not None:
            # Should the node end now, the layers would begin with the latest version.
            self._path.unlink(missing_ok=True)
        return found

    def keep(self, tensors: Tensors, place: Place) -> None:
        """Write a version, and remove all but the one that it was made from. Raises OSError."""
        version, origin = place.position.version, place.origin
        self._write(self._file(version), tensors, place)
        kept = {version, origin.version if origin is not None else version}
        for other in self.versions():
            if other not in kept:
                self._file(other).unlink(missing_ok=True)

    def read(self, version: PipelineVersion) -> tuple[dict[str, Tensor], Place] | None:
        """A version that was kept; None if it is not there, or does not fit."""
        return self._read(self._file(version))

    def path_of(self, version: PipelineVersion) -> Path:
        """The file of a version, whether it is there or not."""
        return self._file(version)

    def drop_after(self, version: PipelineVersion) -> None:
        """Remove the versions that were made after this one, which was gone back to."""
        for other in self.versions():
            if other.number > version.number:
                self._file(other).unlink(missing_ok=True)

    def _file(self, version: PipelineVersion) -> Path:
        return self._folder / f"layers-{version}.safetensors"

    def _write(self, path: Path, tensors: Tensors, place: Place) -> None:
        make_private(path.parent)
        metadata = {**self._metadata, "place": str(place)}
        write_private_parts(path, file_parts(tensors, metadata))

    def _read(self, path: Path) -> tuple[dict[str, Tensor], Place] | None:
        try:
            with safe_open(path, framework="pt") as file:
                metadata = dict(file.metadata() or {})
                # Absent from a file of an earlier version of this node.
                place = place_in(metadata.pop("place", "")) or Place(Position())
                if metadata != self._metadata:
                    return None
                return {name: file.get_tensor(name) for name in file.keys()}, place  # noqa: SIM118 - it is no mapping
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, InvalidRequest) as error:
            log.warning("training: %s cannot be used: %s", path.name, type(error).__name__)
            return None


def kept_files(folder: Path, model_hash: str) -> dict[PipelineVersion, Path]:
    """The versions of layers of a model in a training folder, whichever layers these are. Blocks.

    Files of other models, and those that cannot be read, are left out.
    """
    found: dict[PipelineVersion, Path] = {}
    for path in folder.glob("layers-*"):
        match = _VERSION_FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("model_hash") == model_hash:
                    found[PipelineVersion(int(match[1]), match[2])] = path
        except (OSError, SafetensorError):
            log.warning("%s cannot be read", path)
    return found
