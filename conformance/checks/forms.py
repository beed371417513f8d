"""Interface 2.3: the usual forms of a tensor in a field of bytes. The document shows none of them.

A form turns values into bytes. Each is one that common libraries read: raw little-endian numbers,
safetensors, NumPy's file, LZ4 frames of these, and the text that the document's example hints at.
"""

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from conformance.frames import LZ4_MAGIC

Values = Sequence[float]
Form = Callable[[Values, Sequence[int]], bytes]

# Bytes of one value, of the forms that are nothing but values.
WIDTHS: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
# An LZ4 frame: independent blocks of 4 MiB without checksums, and the checksum of this descriptor.
FRAME = LZ4_MAGIC + b"\x60\x70\x73"
_BLOCK_BYTES = 4 * 1024 * 1024
_STORED = 1 << 31


def values_for(shape: Sequence[int], scale: float = 1.0) -> list[float]:
    """Return small values for a tensor of this shape, which every one of the types can hold."""
    return [scale * (index % 7 - 3) / 8 for index in range(math.prod(shape))]


def encode(form: str, shape: Sequence[int], scale: float = 1.0) -> bytes:
    """Make a tensor of small values of a shape in one of `FORMS`."""
    return FORMS[form](values_for(shape, scale), shape)


def _float32(values: Values, shape: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def _float16(values: Values, shape: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def _bfloat16(values: Values, shape: Sequence[int]) -> bytes:
    # The upper half of a float32.
    whole = _float32(values, shape)
    return b"".join(whole[at + 2 : at + 4] for at in range(0, len(whole), 4))


def _safetensors(values: Values, shape: Sequence[int]) -> bytes:
    data = _float32(values, shape)
    entry = {"dtype": "F32", "shape": list(shape), "data_offsets": [0, len(data)]}
    head = json.dumps({"hidden_states": entry}).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


def _npy(values: Values, shape: Sequence[int]) -> bytes:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    # The data begins at a multiple of 64, after a line feed.
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + _float32(values, shape)


def _lz4(inner: Form) -> Form:
    """Return the form that wraps another one into a frame; its blocks are stored as they are."""

    def frame(values: Values, shape: Sequence[int]) -> bytes:
        data = inner(values, shape)
        pieces = (data[at : at + _BLOCK_BYTES] for at in range(0, len(data), _BLOCK_BYTES))
        blocks = (struct.pack("<I", _STORED | len(piece)) + piece for piece in pieces)
        return FRAME + b"".join(blocks) + bytes(4)

    return frame


def _json(values: Values, shape: Sequence[int]) -> bytes:
    return json.dumps(_nested(values, shape)).encode()


def _nested(values: Values, shape: Sequence[int]) -> list[object]:
    if len(shape) <= 1:
        return list(values)
    step = len(values) // shape[0]
    rows: Iterable[Values] = (values[at * step : (at + 1) * step] for at in range(shape[0]))
    return [_nested(row, shape[1:]) for row in rows]


def _base64(values: Values, shape: Sequence[int]) -> bytes:
    return base64.b64encode(_float32(values, shape))


# In the order in which they are tried.
FORMS: Mapping[str, Form] = {
    "float32": _float32,
    "float16": _float16,
    "bfloat16": _bfloat16,
    "safetensors": _safetensors,
    "npy": _npy,
    "LZ4 frame of float32": _lz4(_float32),
    "LZ4 frame of float16": _lz4(_float16),
    "LZ4 frame of bfloat16": _lz4(_bfloat16),
    "LZ4 frame of safetensors": _lz4(_safetensors),
    "LZ4 frame of npy": _lz4(_npy),
    "text of JSON": _json,
    "text of base64": _base64,
}
