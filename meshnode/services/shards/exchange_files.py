"""What a holder of some layers keeps for the exchange between pipelines (decision 0222).

Beside the versions of its layers (``trained_layers``) there are, in the same folder: the outer
momentum of each version, *candidates*, which are new weights before all have agreed on them, and
*rests*, which are what a contribution left unsent (decision 0190).

Invariant: a file is replaced as a whole; a name in a file name is hexadecimal. All calls block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from meshnode.datadir import make_private, write_private_parts
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.position import PipelineVersion
from meshnode.model.checkpoint import VELOCITY
from meshnode.model.feedback import read_feedback
from meshnode.model.loading import load_model
from meshnode.model.tensor_file import file_parts
from meshnode.model.weights import checkpoint_tensors
from meshnode.services.shards.trained_layers import TrainedLayers

Tensors = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]
_NAME = re.compile(r"[0-9a-f]{16,64}")


class ExchangeFiles:
    """The files."""

    def __init__(
        self,
        folder: Path,
        layers: TrainedLayers,
        shapes: Shapes,
        original: Callable[[], Tensors],
    ) -> None:
        """``shapes`` are those of the held layers; ``original`` reads their untrained weights."""
        self._folder = folder
        self._layers = layers
        self._shapes = shapes
        self._original = original

    def weights(self, version: PipelineVersion) -> Tensors | None:
        """The weights of a version; None if it is not here."""
        if not version.number:
            return self._original()
        found = self._layers.read(version)
        return None if found is None or found[0].keys() != self._shapes.keys() else found[0]

    def momentum(self, version: PipelineVersion) -> Tensors | None:
        """The outer momentum that belongs to a version, empty if it is zero; None if not here."""
        return self._read(self._momentum(version)) if version.number else {}

    def save_momentum(self, version: PipelineVersion, velocity: Tensors) -> None:
        """Save the momentum of a version before its weights. Raises OSError."""
        self._write(self._momentum(version), velocity)

    def save_candidate(self, name: str, weights: Tensors, velocity: Tensors) -> None:
        """Save new weights with their outer momentum. Raises OSError."""
        moving = {VELOCITY + name: tensor for name, tensor in velocity.items()}
        self._write(self._file("candidate", name), {**weights, **moving})

    def candidate(self, name: str) -> tuple[Tensors, Tensors] | None:
        """New weights and their momentum; None if they are not here."""
        found = self._read(self._file("candidate", name))
        if found is None:
            return None
        weights = {n: t for n, t in found.items() if not n.startswith(VELOCITY)}
        velocity = {n.removeprefix(VELOCITY): t for n, t in found.items() if n not in weights}
        return (weights, velocity) if weights.keys() == self._shapes.keys() else None

    def tidy(self) -> None:
        """Remove all candidates, and the momentum of versions that are gone."""
        needed = {self._momentum(version) for version in self._layers.versions()}
        for path in self._folder.glob("candidate-*"):
            path.unlink(missing_ok=True)
        for path in self._folder.glob("momentum-*"):
            if path not in needed:
                path.unlink(missing_ok=True)

    def save_rest(self, name: str, rest: Tensors) -> None:
        """Save what a contribution leaves unsent. Raises OSError."""
        self._write(self._file("rest", name), rest)

    def rest(self, name: str) -> dict[str, Tensor]:
        """What a contribution left unsent. Raises FeedbackUnreadable."""
        return read_feedback(self._file("rest", name), self._shapes) if name else {}

    def name_rest(self, name: str, final: str) -> bool:
        """Give a rest its final name. False if there is none."""
        try:
            self._file("rest", name).replace(self._file("rest", final))
        except FileNotFoundError:
            return self._file("rest", final).exists()
        return True

    def keep_rests(self, *names: str) -> None:
        """Remove all other rests."""
        kept = {self._file("rest", name) for name in names if name}
        for path in self._folder.glob("rest-*"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def _momentum(self, version: PipelineVersion) -> Path:
        return self._folder / f"momentum-{version}.safetensors"

    def _file(self, kind: str, name: str) -> Path:
        if _NAME.fullmatch(name) is None:
            raise InvalidRequest("name", "must be 16 to 64 hex characters")
        return self._folder / f"{kind}-{name}.safetensors"

    def _write(self, path: Path, tensors: Tensors) -> None:
        make_private(path.parent)
        write_private_parts(path, file_parts(tensors))

    def _read(self, path: Path) -> dict[str, Tensor] | None:
        try:
            found: dict[str, Tensor] = safetensors.torch.load_file(path)
        except (OSError, SafetensorError, ValueError, KeyError, RuntimeError):
            return None
        return found


def original_layers(directory: Path, held: range) -> Tensors:
    """The untrained weights of layers, float32. Blocks."""
    return checkpoint_tensors(load_model(directory, held, trainable=True).decoder)
