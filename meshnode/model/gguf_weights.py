"""The weights of a GGUF file under Hugging Face's names, as float32 (interface 1).

Invariant: values are those that llama.cpp's definition of each type gives; the conversion's changes
of rows are undone, so the tensors are those of the Hugging Face directory that the file was made
from, rounded to the file's types.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meshnode.model.documents import ModelUnreadable
from meshnode.model.gguf_blocks import format_of, take_over
from meshnode.model.gguf_file import GgufFile, TensorPlace
from meshnode.model.gguf_model import GgufModel, TensorSource
from meshnode.model.kernels.formats import Format, Quantised
from meshnode.model.naming import Part
from meshnode.model.weights import Checkpoint

T = TypeVar("T", bound=np.generic)


class GgufCheckpoint(Checkpoint):
    """The tensors of an open GGUF file."""

    def __init__(self, file: GgufFile, model: GgufModel) -> None:
        super().__init__()
        self._file = file
        self._model = model

    def validate(self, part: Part) -> None:
        """Raise ModelUnreadable unless the tensor is there in its shape."""
        self._find(part)

    def rows(self, part: Part, first: int, stop: int) -> Tensor:
        """Rows ``first`` to ``stop`` of a tensor, float32. Raises ModelUnreadable."""
        out = torch.empty(stop - first, *part.shape[1:])
        self._read(part, first, stop, out)
        return out

    def copy(self, part: Part, out: Tensor) -> None:
        """Write a tensor to ``out``, which has its shape, as float32. Raises ModelUnreadable."""
        self._read(part, 0, part.shape[0], out)

    def stored(self, part: Part, first: int, stop: int, form: Format) -> Quantised | None:
        """Blocks of the file, where they are what we would make. Raises ModelUnreadable."""
        source, place = self._find(part)
        if format_of(place.kind) is not form or len(part.shape) != 2:
            return None
        size = part.shape[0] // source.heads if source.heads else 1
        begin, end = first // size * size, -(-stop // size) * size
        at = part.shape[0] * (source.expert or 0)
        raw = self._file.blocks(place, at + begin, at + end)
        raw = _unpermuted(raw, (end - begin) // size if source.heads else 0)
        return take_over(raw[first - begin : stop - begin], form)

    def _read(self, part: Part, first: int, stop: int, out: Tensor) -> None:
        source, place = self._find(part)
        rows, width = part.shape[0], place.shape[-1]
        if len(part.shape) == 1:
            line = np.empty((1, width), np.float32)
            self._file.floats(place, 0, 1, line)
            column = _unpermuted(line.reshape(-1, 1), source.heads)[first:stop, 0]
            out.copy_(torch.from_numpy(column - 1 if source.shifted else column))
        elif source.heads:
            size = rows // source.heads
            begin, end = first // size, -(-stop // size)
            heads = np.empty(((end - begin) * size, width), np.float32)
            self._file.floats(place, begin * size, end * size, heads)
            wanted = slice(first - begin * size, stop - begin * size)
            out.copy_(torch.from_numpy(_unpermuted(heads, end - begin)[wanted]))
        else:
            begin = rows * (source.expert or 0)
            self._file.floats(place, begin + first, begin + stop, out.numpy())

    def _find(self, part: Part) -> tuple[TensorSource, TensorPlace]:
        source = self._model.source(part.name)
        place = self._file.tensors.get(source.name)
        if place is None:
            raise ModelUnreadable(f"{self._file.path}: tensor {source.name} is missing")
        shape = place.shape
        if source.expert is not None:
            shape = shape[1:] if len(shape) == 3 and source.expert < shape[0] else ()
        if shape != part.shape:
            raise ModelUnreadable(
                f"{self._file.path}: tensor {source.name} has shape {list(place.shape)}, "
                f"the metadata says {list(part.shape)}"
            )
        return source, place


def _unpermuted(rows: NDArray[T], heads: int) -> NDArray[T]:
    """Rows of query or key heads in the order in which the rotation pairs halves."""
    if not heads:
        return rows
    by_pair = rows.reshape(heads, -1, 2, rows.shape[-1])
    return np.ascontiguousarray(by_pair.swapaxes(1, 2).reshape(rows.shape))
