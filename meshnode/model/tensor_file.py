"""Writing safetensors without a copy of the tensors in memory.

The library's own functions copy all tensors, one of them twice: for a state of half a gigabyte that
is a gigabyte more for a moment.

Invariant: the library reads what is written here, with equal values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

_ALIGNED = 8
"""The tensors begin at a multiple of this; the header is filled with spaces up to there."""


def file_parts(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """The contents of a file of these float32 tensors, in parts."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            raise TypeError(f"{name} is not float32")
        first, end = end, end + tensor.nbytes
        shape = list(tensor.shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [first, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    yield len(text).to_bytes(8, "little") + text
    for tensor in tensors.values():
        yield tensor.detach().contiguous().numpy().data.cast("B")
