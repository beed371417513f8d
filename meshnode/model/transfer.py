"""Weights as sent to peers: the ``weights_data`` of GetWeights (interface 2.3: WeightRequest).

Terms: a *unit* is what ``shard_range`` names (decision 0047):

==========================  ====================================================================
``4-7``, ``4``              layers, as safetensors under their checkpoint names
``embedding``, ``head``     tensors that come with the first and the last layer, likewise
``NAME``                    one tensor, likewise
``NAME[128:256]``           rows of one tensor, likewise, for one that is too large for a message
``manifest``                the manifest, as JSON
``config.json``, and so on  a file of the model, as it is
==========================  ====================================================================

Invariants: tensors travel in the type in which they are stored, nothing is ever unpickled; no
answer is larger than ``MAX_BYTES``: the refusal of a larger unit names smaller units to request.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from meshnode.domain.errors import InvalidRequest, LayerNotHeld
from meshnode.model.config import DecoderConfig
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import ModelFiles
from meshnode.model.manifest import FILES, Manifest, parts_of

MAX_BYTES = 64 * 1024 * 1024
"""Well below the largest message (interface 8), since a receiver holds several copies of it."""
MANIFEST = "manifest"
EMBEDDING_UNIT, HEAD_UNIT = "embedding", "head"
FIELD = "shard_range"

_LAYERS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_ROWS = re.compile(r"([A-Za-z0-9_.]{1,200})(?:\[([0-9]{1,9}):([0-9]{1,9})\])?")
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor, or some of its rows."""

    name: str
    first: int
    stop: int


class WeightFiles:
    """A model's files as a source of weights, for the layers that are held."""

    def __init__(
        self, files: ModelFiles, config: DecoderConfig, held: range, manifest: Manifest
    ) -> None:
        self._files = files
        self._config = config
        self._held = held
        self._manifest = manifest
        self._all = parts_of(config)
        self._own = parts_of(config, held)

    def read(self, unit: str) -> bytes:
        """Read the bytes of a unit. Blocks. Raises InvalidRequest or LayerNotHeld."""
        if unit == MANIFEST:
            return json.dumps(self._manifest.document()).encode()
        if unit in FILES:
            return self._file(unit)
        pieces = self._pieces(unit)
        size = sum(4 * self._elements(piece) for piece in pieces)
        if size > MAX_BYTES:
            # Checked as float32, the largest stored type, before anything is read.
            raise InvalidRequest(FIELD, self._advice(unit, pieces, size))
        with self._files.checkpoint() as checkpoint:
            tensors = {p.name: checkpoint.rows(self._all[p.name], p.first, p.stop) for p in pieces}
        return safetensors.torch.save(tensors)

    def _file(self, name: str) -> bytes:
        data = self._files.read(name)
        if data is None:
            raise InvalidRequest(FIELD, f"the model has no {name}")
        if len(data) > MAX_BYTES:
            raise InvalidRequest(FIELD, f"{name} is too large to be sent")
        return data

    def _pieces(self, unit: str) -> list[Piece]:
        names = self._names(unit)
        if names is not None:
            return [Piece(name, 0, self._all[name].shape[0]) for name in names]
        match = _ROWS.fullmatch(unit)
        if match is None or match[1] not in self._all:
            raise InvalidRequest(
                FIELD,
                "must be layers (4-7), embedding, head, a tensor's name, NAME[FIRST:STOP], "
                f"manifest, or one of {', '.join(FILES)}",
            )
        name, rows = match[1], self._all[match[1]].shape[0]
        if name not in self._own:
            raise LayerNotHeld(f"{name} is not held here")
        first, stop = (int(match[2]), int(match[3])) if match[2] else (0, rows)
        if not 0 <= first < stop <= rows:
            raise InvalidRequest(FIELD, f"{name} has rows 0 to {rows}")
        return [Piece(name, first, stop)]

    def _names(self, unit: str) -> list[str] | None:
        """The tensors of a named unit; None if ``unit`` is not such a name."""
        layers = _LAYERS.fullmatch(unit)
        if layers:
            first, last = int(layers[1]), int(layers[2] or layers[1])
            if not first <= last < self._config.num_layers:
                raise InvalidRequest(
                    FIELD, f"the model has layers 0 to {self._config.num_layers - 1}"
                )
            if first not in self._held or last not in self._held:
                raise LayerNotHeld(f"layers {unit} are not held here")
            return layer_names(self._config, range(first, last + 1))
        if unit == EMBEDDING_UNIT:
            if self._held.start != 0:
                raise LayerNotHeld("the embedding is not held here")
            return embedding_names(self._config)
        if unit == HEAD_UNIT:
            if self._held.stop != self._config.num_layers:
                raise LayerNotHeld("the head is not held here")
            return head_names(self._config)
        return None

    def _elements(self, piece: Piece) -> int:
        rest = 1
        for size in self._all[piece.name].shape[1:]:
            rest *= size
        return (piece.stop - piece.first) * rest

    def _advice(self, unit: str, pieces: list[Piece], size: int) -> str:
        mib = f"{unit} may take {size >> 20} MiB, more than {MAX_BYTES >> 20}"
        if len(pieces) > 1:
            names = ", ".join(piece.name for piece in pieces[:3])
            smaller = "a single layer, or " if "-" in unit else ""
            return f"{mib}; ask for {smaller}single tensors: {names}, ..."
        piece = pieces[0]
        rows = max(1, (piece.stop - piece.first) * MAX_BYTES // size)
        return f"{mib}; ask for rows: {piece.name}[{piece.first}:{piece.first + rows}]"


def layer_names(config: DecoderConfig, layers: range) -> list[str]:
    """Tensors of the layers alone, without embedding and head."""
    inner = tuple(f"model.layers.{layer}." for layer in layers)
    return [name for name in parts_of(config) if name.startswith(inner)]


def embedding_names(config: DecoderConfig) -> list[str]:
    """Tensors that come with the first layer."""
    return sorted(set(parts_of(config, range(1))) - set(layer_names(config, range(1))))


def head_names(config: DecoderConfig) -> list[str]:
    """Tensors that come with the last layer: the norm and the head, tied or not."""
    last = range(config.num_layers - 1, config.num_layers)
    names = set(parts_of(config, last)) - set(layer_names(config, last))
    if config.num_layers == 1:
        names -= set() if config.tied_head else set(embedding_names(config))
    return sorted(names)


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """Parse a peer's tensors. Raises ModelUnreadable if they are not safetensors of floats."""
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise ModelUnreadable("a peer's weights are not safetensors") from error
    if any(tensor.dtype not in _TYPES for tensor in tensors.values()):
        raise ModelUnreadable("a peer's weights have an unsupported type")
    return tensors
