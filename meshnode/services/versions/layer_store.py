"""The served version of a node that holds some of the layers, on its disk (decision 0246).

The folder ``served`` of the data folder has a file for each version that is served or about to be,
with the weights of the held layers, and ``layers.json``, which names the one that is served, the
model that it was trained from, and the hashes of all tensors of the model. Without these, or with
others', the node serves what it was started with.

Terms: a head that is tied to the embedding may have become a matrix of its own in training
(decision 0201). The whole model then has it under the head's name, its holder under the
embedding's.

Invariants: ``layers.json`` names a file that is complete; weights are loaded only if their tensors
have the hashes that are noted for the whole model, and these give the model's hash.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch

from meshnode.datadir import keep_file, make_private, write_private, write_private_parts
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.position import PipelineVersion, version_in
from meshnode.model.anchor_pieces import Unit, rows_in
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import (
    Manifest,
    TensorFacts,
    facts_of_tensors,
    hash_of_tensors,
    parts_of,
)
from meshnode.model.naming import EMBEDDING, HEAD, Part
from meshnode.model.tensor_file import file_parts
from meshnode.model.trained_files import TrainedFiles
from meshnode.services.versions.store import FOLDER, VersionFiles

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.model.files import ModelFiles
    from meshnode.services.model_source import ModelSource

log = logging.getLogger(__name__)

LAYERS_CHOICE_FILE = "layers.json"
FORMAT = "meshnode-served-layers-v1"

Facts = Mapping[str, TensorFacts]


@dataclass(frozen=True, slots=True)
class LayerFiles(VersionFiles):
    """A version of the weights, of which the held layers are in files that can be loaded."""

    version: PipelineVersion = field(default_factory=PipelineVersion)
    """What its pipeline calls it."""


class LayerStore:
    """The folder. All calls block."""

    def __init__(self, data_dir: Path, source: ModelSource) -> None:
        """``source`` is the model that the node was started with."""
        self.folder = data_dir / FOLDER
        self._source = source
        self._config, self.held = source.config, source.held
        self._shapes = {
            name: part.shape for name, part in parts_of(self._config, self.held).items()
        }
        weights = WeightsVersion(0, source.manifest.weights_hash)
        self.origin = LayerFiles(weights, source.files, source.manifest)
        """What the node was started with, as a version."""
        self._facts: dict[PipelineVersion, Facts] = {}
        self._files: dict[str, ModelFiles] = {self.origin.model_hash: self.origin.files}

    def chosen(self) -> LayerFiles:
        """The version that was served last; the origin if there is none that can be used."""
        path = self.folder / LAYERS_CHOICE_FILE
        try:
            choice = json.loads(path.read_bytes())
            if choice["format"] != FORMAT:
                raise ValueError("unknown format")
            if choice["origin"] != self.origin.model_hash:
                log.info("%s is of another model: serving the one that was named", path)
                return self.origin
            facts = {
                str(one["name"]): TensorFacts(
                    str(one["name"]), tuple(map(int, one["shape"])), str(one["sha256"])
                )
                for one in choice["tensors"]
            }
            loss = choice["loss"]
            version = version_in(str(choice["version"]))
            model_hash = str(choice["model_hash"])
            found = self.read(version, facts, model_hash, None if loss is None else float(loss))
        except FileNotFoundError:
            return self.origin
        except (
            *(OSError, ValueError, KeyError, TypeError, RecursionError),
            *(ModelUnreadable, InvalidRequest),
        ) as error:
            log.error("%s cannot be used, so version 0 is served: %s", path, error)
            return self.origin
        self._files[found.model_hash] = found.files
        return found

    def files(self, model_hash: str) -> ModelFiles | None:
        """The files of the origin, or of the version that is chosen, by their model hash.

        They have the weights of the held layers at least.
        """
        return self._files.get(model_hash)

    def has(self, version: PipelineVersion) -> bool:
        """Whether the layers of a version are in the folder."""
        return not version.number or self._file(version).exists()

    def take(self, path: Path, version: PipelineVersion) -> None:
        """Keep a file of the held layers, which may be removed afterwards. Raises OSError."""
        make_private(self.folder)
        keep_file(path, self._file(version))

    def save(self, tensors: Mapping[str, Tensor], version: PipelineVersion) -> None:
        """Keep layers that came from other nodes. Raises OSError."""
        make_private(self.folder)
        held = f"{self.held.start}-{self.held.stop - 1}"
        metadata = {"model_hash": self.origin.model_hash, "layers": held}
        write_private_parts(self._file(version), file_parts(tensors, metadata))

    def facts(self, version: PipelineVersion) -> Facts:
        """The facts of the held layers' tensors in a version that was taken.

        Reads them all, the first time. Raises ModelUnreadable.
        """
        if not version.number:
            tensors = self.origin.manifest.tensors
            return {name: tensors[name] for name in self._shapes}
        if version not in self._facts:
            self._facts[version] = self._read_facts(self._trained(version))
        return self._facts[version]

    def read(
        self, version: PipelineVersion, facts: Facts, model_hash: str, loss: float | None
    ) -> LayerFiles:
        """A version that was taken, if it belongs to a model with these ``facts`` and this hash.

        Raises ModelUnreadable.
        """
        if not version.number:
            if model_hash != self.origin.model_hash:
                raise ModelUnreadable("version 0 has another hash")
            return self.origin
        manifest = Manifest(dict(facts), self.origin.manifest.files)
        if manifest.model_hash != model_hash:
            raise ModelUnreadable(f"the tensors of version {version} give another model's hash")
        told = self.held_of(facts)
        for name, own in self.facts(version).items():
            if own.sha256 != told[name].sha256:
                raise ModelUnreadable(f"version {version} has another {name} here")
        weights = WeightsVersion(version.number, hash_of_tensors(facts))
        return LayerFiles(weights, self._trained(version), manifest, loss, version)

    def held_of(self, facts: Facts) -> Facts:
        """The facts of the held layers' tensors, of those of a model. Raises ModelUnreadable."""
        found = {}
        for name in self._shapes:
            apart = name == EMBEDDING and self.held.start > 0 and self._config.tied_head
            told = facts.get(HEAD if apart and HEAD in facts else name)
            if told is None:
                raise ModelUnreadable(f"{name} is not among the tensors of the model")
            found[name] = TensorFacts(name, told.shape, told.sha256)
        return found

    def piece(self, files: LayerFiles, unit: Unit) -> bytes | None:
        """Rows of a tensor of a version; None if it is not of the held layers.

        Raises InvalidRequest and ModelUnreadable.
        """
        shape = self._shapes.get(unit.name)
        if shape is None or files.weights != unit.weights:
            return None
        rows = rows_in(unit, shape)
        with files.files.checkpoint() as checkpoint:
            tensor = checkpoint.rows(Part(unit.name, shape), rows.start, rows.stop)
            return safetensors.torch.save({unit.name: tensor.contiguous()})

    def choose(self, chosen: LayerFiles) -> None:
        """Note which version is served. Raises OSError."""
        make_private(self.folder)
        tensors = chosen.manifest.tensors
        document = {
            "format": FORMAT,
            "origin": self.origin.model_hash,
            "version": str(chosen.version),
            "model_hash": chosen.model_hash,
            "loss": chosen.loss,
            "tensors": []
            if chosen.weights == self.origin.weights
            else [
                {"name": f.name, "shape": [*f.shape], "sha256": f.sha256} for f in tensors.values()
            ],
        }
        write_private(self.folder / LAYERS_CHOICE_FILE, json.dumps(document).encode())
        self._files = {
            self.origin.model_hash: self.origin.files,
            chosen.model_hash: chosen.files,
        }

    def tidy(self, needed: Collection[PipelineVersion]) -> None:
        """Remove the files of other versions. What is in memory needs none."""
        kept = {self._file(version) for version in needed}
        for path in self.folder.glob("layers-*"):
            if path not in kept:
                path.unlink(missing_ok=True)
        self._facts = {
            version: self._facts[version] for version in needed if version in self._facts
        }

    def _read_facts(self, files: TrainedFiles) -> Facts:
        try:
            with files.checkpoint() as checkpoint:
                parts = parts_of(self._config, self.held).values()
                return facts_of_tensors((p.name, checkpoint.parameter([p])) for p in parts)
        except OSError as error:
            raise ModelUnreadable(f"{files.weights.name}: {error.strerror}") from None

    def _trained(self, version: PipelineVersion) -> TrainedFiles:
        return TrainedFiles(self._source.files, self._file(version), self.held)

    def _file(self, version: PipelineVersion) -> Path:
        return self.folder / f"layers-{version}.safetensors"


def joined_facts(parts: Iterable[Facts], *, tied: bool) -> dict[str, TensorFacts]:
    """The tensors of a model whose layers are at several nodes, the first layer's first.

    A tied head that was trained apart is the model's own. Raises ModelUnreadable if two nodes have
    the same layers with different weights.
    """
    found: dict[str, TensorFacts] = {}
    for part in parts:
        for name, facts in part.items():
            if found.setdefault(name, facts).sha256 == facts.sha256:
                continue
            if name != EMBEDDING or not tied:
                raise ModelUnreadable(f"two nodes have different weights of {name}")
            head = TensorFacts(HEAD, facts.shape, facts.sha256)
            if found.setdefault(HEAD, head) != head:
                raise ModelUnreadable(f"two nodes have different weights of {HEAD}")
    return found
