"""The compiled kernels, called through ctypes. See ``source/library.cpp`` for what each does.

Calls release Python's lock, so the event loop goes on while a step is computed. Structures mirror
those of the sources field by field; tensors whose addresses they hold are kept by their owners.
"""

from __future__ import annotations

import ctypes
import logging
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int32, c_int64, c_void_p
from functools import lru_cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from meshnode.model.kernels.build import NoKernels, library_path
from meshnode.model.kernels.formats import Format, Quantised, Rows, quantise
from meshnode.model.kernels.rows import blocks
from meshnode.model.side_by_side import side_by_side

log = logging.getLogger(__name__)

PANEL = 16
LANES = 8


class MatrixStruct(Structure):
    """``Matrix`` of matrix.hpp."""

    _fields_ = (
        ("format", c_int32),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("data", c_void_p),
        ("bias", c_void_p),
    )


class LayerStruct(Structure):
    """``Layer`` of library.cpp."""

    _fields_ = (
        *((name, c_void_p) for name in ("attention_norm", "q_norm", "k_norm")),
        *((name, c_void_p) for name in ("attention_post_norm", "feed_forward_norm")),
        ("feed_forward_post_norm", c_void_p),
        *((name, MatrixStruct) for name in ("qkv", "output", "gate_up", "down")),
        *((name, c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "rotary_dim")),
        *((name, c_int32) for name in ("window", "activation", "wide_norms", "rotation")),
        *((name, c_float) for name in ("softcap", "scale", "eps", "residual")),
    )


class CacheStruct(Structure):
    """``Cache`` of attention.hpp."""

    _fields_ = (
        ("base", c_void_p),
        ("blocks", c_void_p),
        *((name, c_int64) for name in ("layer_stride", "kind_stride", "head_stride")),
    )


class StepStruct(Structure):
    """``Step`` of library.cpp."""

    _fields_ = (
        *((name, c_int32) for name in ("rows", "hidden_size", "kv_format", "first_layer")),
        *((name, c_void_p) for name in ("hidden", "positions", "sessions")),
        ("caches", POINTER(CacheStruct)),
        ("rotations", POINTER(c_void_p)),
    )


class Matrix:
    """Weights ``[outputs, inputs]`` in panels, with an optional bias ``[outputs]``."""

    def __init__(self, library: Library, weight: Rows, form: Format) -> None:
        """Copy ``weight``."""
        self.format, self.outputs, self.inputs = form, weight.outputs, weight.inputs
        self.struct = MatrixStruct(int(form), weight.outputs, weight.inputs, None, None)
        self._bias: Tensor | None = None
        self._data = library.pack(self.struct, weight)
        self.struct.data = self._data.data_ptr()

    def set_bias(self, bias: Tensor) -> None:
        """Add ``bias`` ``[outputs]`` to each product."""
        self._bias = torch.zeros(-(-self.outputs // PANEL) * PANEL)
        self._bias[: self.outputs] = bias.detach().float()
        self.struct.bias = self._bias.data_ptr()

    @property
    def nbytes(self) -> int:
        """Memory that the weights and the bias take."""
        return self._data.nbytes + (0 if self._bias is None else self._bias.nbytes)


class Library:
    """The functions of the shared object, and threads that compute in it."""

    def __init__(self, threads: int) -> None:
        """Load the library, which may compile it first. Raises NoKernels."""
        self._functions = functions()
        self.threads = threads
        self._engine = self._functions.meshnode_start(threads)
        # The engine's threads and buffers serve one call at a time; executor and proofs both call.
        self._turn = Lock()
        if not self._engine:
            raise NoKernels("there is no memory for the kernels")

    def pack(self, struct: MatrixStruct, weight: Rows) -> Tensor:
        """The panels of a matrix, as bytes."""
        data = torch.empty(self._functions.meshnode_matrix_bytes(byref(struct)), dtype=torch.uint8)
        panel_bytes = data.numel() // -(-weight.outputs // PANEL)

        def pack(place: tuple[int, int]) -> None:
            first, stop = place
            block = MatrixStruct(struct.format, stop - first, struct.inputs, None, None)
            to = data.data_ptr() + first // PANEL * panel_bytes
            form = Format(struct.format)
            if not form.integer:
                rows = weight.read(first, stop).contiguous()
                self._functions.meshnode_pack_floats(byref(block), rows.data_ptr(), to)
                return
            held = weight.stored(first, stop, form) or quantise(weight.read(first, stop), form)
            self._pack_integers(block, held, to)

        side_by_side(pack, blocks(weight, 2 * PANEL))
        return data

    def _pack_integers(self, struct: MatrixStruct, held: Quantised, to: int) -> None:
        parts = [held.quants, held.scales, held.minima]
        kept = [None if part is None else part.contiguous() for part in parts]
        places = [None if part is None else part.data_ptr() for part in kept]
        self._functions.meshnode_pack_integers(byref(struct), *places, to)

    def unpack(self, matrix: Matrix, outputs: Tensor) -> Tensor:
        """The weights of ``outputs`` (int64 ``[count]``) as float32 ``[count, inputs]``."""
        rows = torch.empty(outputs.numel(), matrix.inputs)
        at = outputs.contiguous()
        self._functions.meshnode_unpack(
            byref(matrix.struct), at.data_ptr(), at.numel(), rows.data_ptr()
        )
        return rows

    def product(
        self, matrix: Matrix, rows: Tensor, norm: Tensor | None = None, eps: float = 0.0
    ) -> Tensor:
        """``[rows, inputs]`` to ``[rows, outputs]``, normalised first where there is a norm."""
        rows = rows.contiguous()
        result = torch.empty(rows.shape[0], matrix.outputs)
        with self._turn:
            failed = self._functions.meshnode_product(
                self._engine,
                byref(matrix.struct),
                rows.data_ptr(),
                rows.shape[0],
                None if norm is None else norm.data_ptr(),
                eps,
                result.data_ptr(),
            )
        _require_memory(failed)
        return result

    def layers(self, layers: Any, first: int, count: int, step: StepStruct) -> None:
        """Run ``count`` of an array of LayerStruct, from ``first`` on, on the step's rows."""
        at = ctypes.addressof(layers) + first * ctypes.sizeof(LayerStruct)
        with self._turn:
            failed = self._functions.meshnode_layers(self._engine, at, count, byref(step))
        _require_memory(failed)


def _require_memory(failed: int) -> None:
    if failed:
        raise MemoryError("no memory for a step's intermediate results")


@lru_cache
def functions() -> ctypes.CDLL:
    """The shared object, which may be compiled first. Raises NoKernels."""
    path = library_path()
    try:
        found = ctypes.CDLL(str(path))
    except OSError:
        raise NoKernels(f"{path} cannot be loaded") from None
    found.meshnode_matrix_bytes.restype = c_int64
    found.meshnode_start.restype = c_void_p
    found.meshnode_start.argtypes = [c_int]
    found.meshnode_product.argtypes = [
        *(c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_float, c_void_p),
    ]
    found.meshnode_layers.argtypes = [c_void_p, c_void_p, c_int, c_void_p]
    found.meshnode_unpack.argtypes = [c_void_p, c_void_p, c_int64, c_void_p]
    found.meshnode_pack_floats.argtypes = [c_void_p] * 3
    found.meshnode_pack_integers.argtypes = [c_void_p] * 5
    found.meshnode_floats_of_blocks.argtypes = [c_int, c_void_p, c_int64, c_void_p]
    found.meshnode_split_blocks.argtypes = [c_int, c_void_p, c_int64, *(c_void_p,) * 3]
    return found


@lru_cache
def library(threads: int) -> Library | None:
    """The kernels with this number of threads; None, and a line in the log, where there are none.

    Blocks while they are compiled, which happens once on a machine.
    """
    try:
        kernels = Library(threads)
    except NoKernels as error:
        log.warning("computing with torch's operators, which is slower: %s", error)
        return None
    log.info("computing with compiled kernels on %d threads", threads)
    return kernels
