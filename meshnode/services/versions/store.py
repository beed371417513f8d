"""The served version on the disk: the choice survives a restart (decision 0225).

The folder ``served`` of the data folder has the weights of the chosen version, and ``served.json``,
which names it and the model that it was trained from. Without them, or with others', the node
serves what it was started with.

Invariants: ``served.json`` names a file that is complete; weights are loaded only if they have the
hash that it names.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshnode.datadir import keep_file, write_private
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import parts_of
from meshnode.model.trained_files import TrainedFiles, trained_manifest

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.model.config import DecoderConfig
    from meshnode.model.files import ModelFiles
    from meshnode.model.manifest import Manifest
    from meshnode.services.model_source import ModelSource

log = logging.getLogger(__name__)

FOLDER = "served"
CHOICE_FILE = "served.json"
FORMAT = "meshnode-served-v1"


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """A version of the weights, in files that can be loaded."""

    weights: WeightsVersion
    files: ModelFiles
    manifest: Manifest
    loss: float | None = None
    """Its held-out loss when it was chosen, if that was known."""

    @property
    def model_hash(self) -> str:
        """The hash of the model with these weights (decision 0139)."""
        return self.manifest.model_hash

    def tensors(self, config: DecoderConfig) -> dict[str, Tensor]:
        """The weights, float32, by their checkpoint names. Blocks. Raises ModelUnreadable."""
        with self.files.checkpoint() as checkpoint:
            return {part.name: checkpoint.parameter([part]) for part in parts_of(config).values()}


class VersionStore:
    """The folder. All calls block."""

    def __init__(self, data_dir: Path, source: ModelSource) -> None:
        """``source`` is the model that the node was started with."""
        self.folder = data_dir / FOLDER
        self._source = source
        weights = WeightsVersion(0, source.manifest.weights_hash)
        self.origin = VersionFiles(weights, source.files, source.manifest)
        """What the node was started with, as a version."""
        self._files = {self.origin.model_hash: self.origin.files}

    def chosen(self) -> VersionFiles:
        """The version that was served last; the origin if there is none that can be used."""
        path = self.folder / CHOICE_FILE
        try:
            choice = json.loads(path.read_bytes())
            if choice["format"] != FORMAT:
                raise ValueError("unknown format")
            if choice["origin"] != self.origin.model_hash:
                log.info("%s is of another model: serving the one that was named", path)
                return self.origin
            weights = WeightsVersion(int(choice["version"]), str(choice["weights_hash"]))
            if weights == self.origin.weights:
                return self.origin
            found = self.read(weights)
            loss = choice.get("loss")
        except FileNotFoundError:
            return self.origin
        except (OSError, ValueError, KeyError, TypeError, RecursionError, ModelUnreadable) as error:
            log.error("%s cannot be used, so version 0 is served: %s", path, error)
            return self.origin
        self._files[found.model_hash] = found.files
        return replace(found, loss=None if loss is None else float(loss))

    def files(self, model_hash: str) -> ModelFiles | None:
        """The files of the origin, or of the version that is chosen, by their model hash."""
        return self._files.get(model_hash)

    def take(self, anchor: Path, weights: WeightsVersion) -> None:
        """Keep the weights of an anchor, which may be removed afterwards. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_file(anchor, self._file(weights))

    def read(self, weights: WeightsVersion) -> VersionFiles:
        """A version that was taken. Raises ModelUnreadable unless it has the hash that it should.

        Reads all weights.
        """
        files = TrainedFiles(self._source.files, self._file(weights))
        manifest = trained_manifest(files, self._source.config, self.origin.manifest)
        if manifest.weights_hash != weights.model_hash:
            raise ModelUnreadable(f"{files.weights}: other weights than those of {weights.version}")
        return VersionFiles(weights, files, manifest)

    def choose(self, chosen: VersionFiles) -> None:
        """Note which version is served, and remove the others. Raises OSError.

        The files of a version that is still in use may be removed: it is in memory.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {
            "format": FORMAT,
            "origin": self.origin.model_hash,
            "version": chosen.weights.version,
            "weights_hash": chosen.weights.model_hash,
            "model_hash": chosen.model_hash,
            "loss": chosen.loss,
        }
        write_private(self.folder / CHOICE_FILE, json.dumps(document).encode())
        for path in self.folder.glob("version-*"):
            if path != self._file(chosen.weights):
                path.unlink(missing_ok=True)
        self._files = {
            self.origin.model_hash: self.origin.files,
            chosen.model_hash: chosen.files,
        }

    def _file(self, weights: WeightsVersion) -> Path:
        name = f"version-{weights.version}-{weights.model_hash[:16]}.safetensors"
        return self.folder / name
