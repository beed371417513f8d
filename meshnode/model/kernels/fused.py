"""The layers of a decoder, packed so that a step runs all of them in one call (decision 0150).

Terms: a *row* is one position of one session. Rows of a session are consecutive, at consecutive
positions; a step may have rows of many sessions, whatever their number and place.

Invariants: a row's results depend on its session's inputs up to its position alone, to the bit, not
on the other rows of the step, on where a chunk begins, on the split of the layers, or on the number
of threads; weights are kept once, in their format.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_void_p, cast

import torch
from torch import Tensor, nn

from meshnode.model.config import DecoderConfig
from meshnode.model.kernels.formats import Format, Rows
from meshnode.model.kernels.library import (
    PANEL,
    CacheStruct,
    LayerStruct,
    Library,
    Matrix,
    StepStruct,
)
from meshnode.model.kernels.rows import InTurn, TensorRows
from meshnode.model.kv import CacheFull, KVCache

_KV_FORMATS = {
    torch.float32: Format.FLOAT32,
    torch.bfloat16: Format.BFLOAT16,
    torch.float16: Format.FLOAT16,
}
_TABLE_BLOCK = 256
"""Positions whose rotations are computed at once."""


class RotationTable:
    """Cosines and sines of all positions: float32 ``[context, rotary_dim]``, filled as needed.

    They are computed as doubles and rounded, so that they do not depend on the vector width.
    """

    def __init__(self, frequencies: Tensor, magnitude: float, context: int) -> None:
        self._frequencies, self._magnitude = frequencies, magnitude
        # Pages that are never written take no memory.
        self.rows = torch.empty(context, 2 * len(frequencies))
        """The table; each row has the cosines, then the sines."""
        self._filled = 0

    @property
    def address(self) -> int:
        """Where the table begins."""
        return self.rows.data_ptr()

    @property
    def width(self) -> int:
        """Dimensions of a head that rotate."""
        return self.rows.shape[1]

    def reach(self, stop: int) -> int:
        """Fill the rows of all positions below ``stop``; returns how many are filled."""
        while self._filled < stop:
            end = min(self._filled + _TABLE_BLOCK, self.rows.shape[0])
            positions = torch.arange(self._filled, end, dtype=torch.float32)
            angles = (positions[:, None] * self._frequencies).double()
            sines = torch.cat((angles.cos(), angles.sin()), -1).float()
            self.rows[self._filled : end] = sines * self._magnitude
            self._filled = end
        return self._filled


class FusedLayers:
    """Some layers of a model, which run in the compiled kernels."""

    def __init__(
        self, config: DecoderConfig, library: Library, tables: list[RotationTable]
    ) -> None:
        self._config = config
        self._library = library
        self._tables = tables
        self._addresses = (c_void_p * len(tables))(*(table.address for table in tables))
        self._layers: list[LayerStruct] = []
        self._array: ctypes.Array[LayerStruct] | None = None
        self._kept: list[Tensor | Matrix] = []
        """Tensors and matrices whose addresses the structures hold."""
        self.layer_bytes: list[int] = []
        """Memory that each layer's weights take."""

    def keep(self, tensor: Tensor) -> int:
        """The address of a float32 copy of ``tensor`` that lives as long as the layers."""
        copy = tensor.detach().float().contiguous().clone()
        self._kept.append(copy)
        return copy.data_ptr()

    def matrix(self, weight: Rows, bias: Tensor | None, form: Format) -> Matrix:
        """Pack a matrix ``[outputs, inputs]``."""
        matrix = packed(self._library, weight, bias, form)
        self._kept.append(matrix)
        return matrix

    def gated(self, weight: Rows, bias: Tensor | None, form: Format) -> Matrix:
        """Pack gate and up projection ``[2 * inner, inputs]``, a panel of each in turn."""
        if bias is not None:
            column = InTurn(TensorRows(bias[:, None]), PANEL)
            bias = column.read(0, column.outputs)[:, 0]
        return self.matrix(InTurn(weight, PANEL), bias, form)

    def add(self, layer: LayerStruct) -> None:
        """Append the next layer."""
        self._layers.append(layer)
        kept = sum(each.nbytes for each in self._kept)
        self.layer_bytes.append(kept - sum(self.layer_bytes))
        self._array = (LayerStruct * len(self._layers))(*self._layers)

    def transform(self, hidden: Tensor, caches: Sequence[KVCache] | None, layers: range) -> Tensor:
        """As ``Decoder.transform``: ``[batch, seq, hidden]`` to the same."""
        batch, seq, size = hidden.shape
        if caches is None:
            dtype = torch.float32
            caches = [KVCache.allocate(self._config, len(layers), seq, dtype) for _ in range(batch)]
        result = self.run(hidden.reshape(-1, size), caches, [seq] * batch, layers)
        for cache in caches:
            cache.advance(seq)
        return result.view(batch, seq, size)

    def run(
        self, hidden: Tensor, caches: Sequence[KVCache], counts: Sequence[int], layers: range
    ) -> Tensor:
        """Run ``layers`` on ``hidden`` ``[rows, hidden]``: ``counts[i]`` rows of ``caches[i]``.

        Appends to the caches, whose lengths do not change. Raises CacheFull, MemoryError.
        """
        rows, first = hidden.shape[0], caches[0].storage
        structs = (CacheStruct * len(caches))()
        positions: list[int] = []
        sessions: list[int] = []
        for index, (cache, count) in enumerate(zip(caches, counts, strict=True)):
            stop = cache.length + count
            if stop > cache.capacity:
                raise CacheFull(f"{stop} positions, and room for {cache.capacity}")
            storage = cache.storage
            structs[index] = CacheStruct(storage.data_ptr(), None, *storage.stride()[:3])
            positions += range(cache.length, stop)
            sessions += [index] * count
        for table in self._tables:
            table.reach(max(positions) + 1)
        # Changed in place, row by row.
        result = hidden.detach().to(torch.float32, copy=True).contiguous()
        at = torch.tensor([positions, sessions], dtype=torch.int32)
        step = StepStruct(
            rows=rows,
            hidden_size=hidden.shape[1],
            kv_format=_KV_FORMATS[first.dtype],
            first_layer=0,
            hidden=result.data_ptr(),
            positions=at[0].data_ptr(),
            sessions=at[1].data_ptr(),
            caches=cast(structs, POINTER(CacheStruct)),
            rotations=cast(self._addresses, POINTER(c_void_p)),
        )
        self._library.layers(self._array, layers.start, len(layers), step)
        return result


class PackedMatrix(nn.Module):
    """An inference-only ``nn.Linear`` in a format, or an embedding of the same weights."""

    def __init__(self, library: Library, matrix: Matrix) -> None:
        super().__init__()
        self._library = library
        self.matrix = matrix

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., inputs]`` to ``[..., outputs]``, float32."""
        rows = self._library.product(self.matrix, hidden.reshape(-1, hidden.shape[-1]).float())
        return rows.view(*hidden.shape[:-1], rows.shape[-1])

    def normed(self, hidden: Tensor, norm: Tensor, eps: float) -> Tensor:
        """The same after a root-mean-square normalisation with the weights ``norm``."""
        rows = hidden.reshape(-1, hidden.shape[-1]).float()
        result = self._library.product(self.matrix, rows, norm.detach(), eps)
        return result.view(*hidden.shape[:-1], result.shape[-1])

    def dense(self) -> Tensor:
        """The weights, float32 ``[outputs, inputs]``, as the format holds them."""
        return self._library.unpack(self.matrix, torch.arange(self.matrix.outputs))


class PackedEmbedding(nn.Module):
    """An embedding whose rows are the outputs of a packed matrix."""

    def __init__(self, library: Library, matrix: Matrix) -> None:
        super().__init__()
        self._library = library
        self.matrix = matrix

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 ``[...]`` to float32 ``[..., hidden]``."""
        rows = self._library.unpack(self.matrix, tokens.reshape(-1))
        return rows.view(*tokens.shape, rows.shape[-1])


def packed(library: Library, weight: Rows, bias: Tensor | None, form: Format) -> Matrix:
    """A matrix ``[outputs, inputs]`` in a format."""
    matrix = Matrix(library, weight, form)
    if bias is not None:
        matrix.set_bias(bias)
    return matrix
