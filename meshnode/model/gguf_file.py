"""A GGUF file: its metadata, and where its tensors lie.

The format is that of llama.cpp, version 2 or 3, little-endian: a header, key-value *metadata*, the
name, shape, type and offset of every tensor, then the tensors. The constants and the layout of the
quantised blocks come from the ``gguf`` package; the kernels read the usual types as well, to the
same bits and 20 to 100 times as fast.

The header is read here and not by the package's reader, which takes 2.7 s of processor time for a
vocabulary of 49,000 tokens and builds whatever lengths the file claims.

Invariants: the file is mapped into memory, and only the tensors that are asked for are read; no
length is believed before it was compared with the file's size; any fault of the file is reported
as one ``ModelUnreadable`` line.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnode.model.documents import ModelUnreadable
from meshnode.model.kernels.blocks import BLOCKS, block_reader

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DEPTH = 4
"""Arrays in arrays; known files have none."""
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 1 << 40
CHUNK_ELEMENTS = 1 << 17
"""About as many elements are dequantised at a time: few enough to stay in a processor's cache."""
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
"""The types of tensors that are read."""

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_PLAIN = {"F32": np.float32, "F16": np.float16}
"""The types that are numbers, not blocks."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor of the file. ``shape`` is in the order of numpy: rows first."""

    name: str
    shape: tuple[int, ...]
    kind: str
    """A name of :data:`TYPES`."""
    offset: int
    """In bytes from the beginning of the file."""
    row_bytes: int
    """Bytes along the last dimension."""

    @property
    def rows(self) -> int:
        """Rows of all leading dimensions together."""
        return math.prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.rows * self.row_bytes


class GgufFile:
    """An open GGUF file. Use it as a context manager, or keep it open; tensors outlive it."""

    def __init__(self, path: Path) -> None:
        """Read the header. Raises ModelUnreadable."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelUnreadable(f"{path}: no such file") from None
        except OSError as error:
            raise ModelUnreadable(f"{path}: {error.strerror or 'cannot be read'}") from None
        except ValueError:
            raise ModelUnreadable(f"{path}: is empty") from None
        reader = _Reader(self._data)
        try:
            self.metadata: dict[str, Any] = {}
            self.tensors: dict[str, TensorPlace] = {}
            self._read_header(reader)
        except (_Cut, struct.error):
            raise ModelUnreadable(f"{path}: not a whole GGUF file") from None
        except UnicodeDecodeError:
            raise ModelUnreadable(f"{path}: a name in its header is not valid UTF-8") from None
        except ModelUnreadable as error:
            raise ModelUnreadable(f"{path}: {error}") from None

    def floats(self, place: TensorPlace, first: int, stop: int, out: Floats) -> None:
        """Write rows ``first`` to ``stop`` (of all leading dimensions) to ``out`` ``[rows, n]``.

        The values are those that llama.cpp's definition of the type gives in float32.
        """
        step = max(1, CHUNK_ELEMENTS // place.shape[-1])
        for begin in range(first, stop, step):
            end = min(begin + step, stop)
            self._dequantise(place, begin, end, out[begin - first : end - first])
        self._release(place.offset + first * place.row_bytes, (stop - first) * place.row_bytes)

    def blocks(self, place: TensorPlace, first: int, stop: int) -> NDArray[np.uint8]:
        """Rows ``first`` to ``stop`` as they are stored, ``[rows, bytes]``."""
        rows = self._rows(place, first, stop).copy()
        self._release(place.offset + first * place.row_bytes, rows.nbytes)
        return rows

    def _rows(self, place: TensorPlace, first: int, stop: int) -> NDArray[np.uint8]:
        count, start = (stop - first) * place.row_bytes, place.offset + first * place.row_bytes
        return np.frombuffer(self._data, np.uint8, count, start).reshape(stop - first, -1)

    def _release(self, start: int, size: int) -> None:
        """Give the pages back; once they are read they count as this process's memory."""
        begin = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = (start + size - begin) // mmap.PAGESIZE * mmap.PAGESIZE
        if whole > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED, begin, whole)

    def _dequantise(self, place: TensorPlace, first: int, stop: int, out: Floats) -> None:
        raw = self._rows(place, first, stop)
        if place.kind in _PLAIN:
            out[:] = raw.view(_PLAIN[place.kind])
            return
        reader = block_reader()
        if reader is not None and place.kind in BLOCKS and out.flags.c_contiguous:
            reader.floats(place.kind, raw, out)
            return
        from gguf import quants

        # The blocks are handed over at once: the package's own loop takes 16 rows at a time, which
        # for small matrices takes twice as long.
        layout = getattr(quants, place.kind)
        # Scales of a broken file may be NaN or infinite, which is no reason for a warning here.
        with np.errstate(all="ignore"):
            out[:] = layout.dequantize_blocks(raw.reshape(-1, layout.type_size)).reshape(out.shape)

    def _read_header(self, reader: _Reader) -> None:
        if reader.take(4) != MAGIC:
            raise ModelUnreadable("not a GGUF file")
        version = reader.number("<I")
        if version not in VERSIONS:
            raise ModelUnreadable(f"GGUF version {version} is not read, only 2 and 3 are")
        tensors, pairs = reader.number("<Q"), reader.number("<Q")
        for _ in range(pairs):
            key = reader.text()
            self.metadata[key] = reader.value(reader.number("<I"), 0)
        places = list(self._places(reader, tensors))
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ModelUnreadable("general.alignment must be a power of two")
        start = -(-reader.at // alignment) * alignment
        for place in places:
            moved = TensorPlace(
                place.name, place.shape, place.kind, start + place.offset, place.row_bytes
            )
            if moved.offset + moved.nbytes > len(self._data):
                raise _Cut
            self.tensors[place.name] = moved

    @staticmethod
    def _places(reader: _Reader, count: int) -> Iterator[TensorPlace]:
        kinds = _kinds()
        for _ in range(count):
            name = reader.text()
            dimensions = reader.number("<I")
            if not 1 <= dimensions <= MAX_DIMENSIONS:
                raise ModelUnreadable(f"tensor {name} has {dimensions} dimensions")
            shape = tuple(reversed([reader.number("<Q") for _ in range(dimensions)]))
            number, offset = reader.number("<I"), reader.number("<Q")
            kind, block, size = kinds.get(number, (f"number {number}", 1, 1))
            if kind not in TYPES:
                raise ModelUnreadable(
                    f"tensor {name} has the type {kind}, which is not read; "
                    f"these are: {', '.join(TYPES)}"
                )
            if math.prod(shape) > MAX_ELEMENTS or shape[-1] % block or min(shape) < 1:
                raise ModelUnreadable(f"tensor {name} has the impossible shape {list(shape)}")
            yield TensorPlace(name, shape, kind, offset, shape[-1] // block * size)


class _Cut(Exception):
    """The file ends before what its header announces."""


class _Reader:
    """Reads the header from left to right."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise _Cut
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("<Q")).decode()

    def value(self, kind: int, depth: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            # Vocabularies may hold pieces of characters; they are refused when they are used.
            return self.take(self.number("<Q")).decode(errors="surrogateescape")
        if kind != _ARRAY or depth >= MAX_DEPTH:
            raise ModelUnreadable(f"its metadata has a value of the unknown type {kind}")
        of, count = self.number("<I"), self.number("<Q")
        if of in _SCALARS:
            form = np.dtype(_SCALARS[of])
            return np.frombuffer(self.take(count * form.itemsize), form).tolist()
        # Every element takes at least 8 bytes, so a false count ends with the file.
        return [self.value(of, depth + 1) for _ in range(count)]


def _kinds() -> dict[int, tuple[str, int, int]]:
    """Name, elements and bytes of a block, by the number of the type. Raises ModelUnreadable."""
    try:
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError:
        raise ModelUnreadable(
            "reading GGUF files needs the package gguf: pip install 'meshnode[gguf]'"
        ) from None
    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
