"""The values of contributions, as tensors (interface 2.3; decision 0190).

Everything from a peer is bounded here before it becomes a value: the size of a frame by the shape
of its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.message import MAX_NORM
from meshnode.model.diloco import SparseTensor, norm
from meshnode.wire.gradients import (
    Format,
    Packing,
    SparseValues,
    pack_float32,
    pack_int8,
    pack_sparse,
    unpack_gradient,
)

Shapes = Mapping[str, tuple[int, ...]]


def packed(values: Tensor, packing: Packing) -> bytes:
    """A tensor of a pseudo-gradient (decision 0190)."""
    if packing.kind is Format.SPARSE:
        return pack_sparse(values.numpy(), kept=packing.kept)
    pack = pack_int8 if packing.kind is Format.INT8 else pack_float32
    return pack(values.numpy())


def unpacked(data: bytes, shape: tuple[int, ...], field: str) -> Tensor | SparseTensor:
    """A tensor of exactly this shape, finite. Raises InvalidRequest, which names ``field``."""
    values = unpack_gradient(data, shape, field)
    if isinstance(values, SparseValues):
        indices = torch.from_numpy(values.indices)
        return SparseTensor(values.shape, indices, torch.from_numpy(values.values))
    return torch.from_numpy(values)


class PackedGradients(Mapping[str, Tensor | SparseTensor]):
    """The gradients of a message, each decoded whenever it is asked for.

    So a set of contributions takes the memory of its messages, and of one tensor of each. Asking
    raises InvalidRequest unless the tensor has exactly its shape and is finite.
    """

    def __init__(self, frames: Mapping[str, bytes], shapes: Shapes) -> None:
        """``frames`` has a value for each of the ``shapes``."""
        self._frames = frames
        self._shapes = shapes

    def __getitem__(self, name: str) -> Tensor | SparseTensor:
        """Decode a tensor."""
        return unpacked(self._frames[name], self._shapes[name], f"layer_gradients[{name}]")

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors."""
        return iter(self._shapes)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self._shapes)


def check_gradients(gradients: PackedGradients) -> None:
    """Raise InvalidRequest unless all can be decoded and their norm is bounded."""
    if norm(gradients) > MAX_NORM:
        raise InvalidRequest("layer_gradients", f"have a norm above {MAX_NORM:g}")
