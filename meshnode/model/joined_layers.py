"""The layers of several holders, joined to one model (decision 0201).

Each file has the tensors of a contiguous range of layers under their checkpoint names; its metadata
``layers`` is the range, as ``FIRST-LAST``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
from safetensors import safe_open
from torch import Tensor

from meshnode.model.naming import EMBEDDING, HEAD

Weights = Mapping[str, Tensor]
"""Tensors by their checkpoint names."""


def joined(paths: Sequence[Path]) -> tuple[dict[str, Tensor], dict[str, object]]:
    """The tensors of several files, and the changes that they make to the configuration.

    Where the head shares its weights with the embedding, and another node holds it, training has
    made two matrices of the one.
    """
    weights: dict[str, Tensor] = {}
    changes: dict[str, object] = {}
    for path in sorted(paths, key=_first_layer):
        for name, tensor in safetensors.torch.load_file(path).items():
            if name == EMBEDDING and name in weights:
                weights[HEAD], changes = tensor, {"tie_word_embeddings": False}
            else:
                weights[name] = tensor
    return weights, changes


def _first_layer(path: Path) -> int:
    with safe_open(path, framework="pt") as file:
        return int(file.metadata()["layers"].partition("-")[0])
