"""A checkpoint as sent and as stored: an LZ4 frame of safetensors (interface 2.3, 8).

Terms: a checkpoint holds an anchor's weights under their names, and its outer momentum under the
same names behind ``velocity.``, unless that is zero; its *version* is the round that made it
(decision 0097).

Invariants: nothing is ever unpickled; the tensors that are read have exactly the model's names,
shapes and type, are finite, and the weights have the announced hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.model.tensor_file import file_parts
from meshnode.model.trained_model import Anchor, Tensors

VELOCITY = "velocity."
FIELD = "checkpoint_data"
MAX_BYTES = 95 * 1024 * 1024
"""The most bytes of weights and momentum in one message, before framing. The rest of a message
(interface 8) is left for what framing adds and for the other fields."""
HEADER_BYTES = 1 << 20
"""Space for names and offsets, enough for some ten thousand tensors."""


def dump_anchor(anchor: Anchor, version: int) -> bytes:
    """Serialise an anchor as safetensors, without the LZ4 frame."""
    return b"".join(anchor_parts(anchor, version))


def anchor_parts(anchor: Anchor, version: int) -> Iterator[bytes | memoryview]:
    """The same in parts, which take no memory of their own."""
    momentum = {VELOCITY + name: tensor for name, tensor in anchor.velocity.items()}
    metadata = {"version": str(version), "model_hash": anchor.model_hash}
    return file_parts({**anchor.weights, **momentum}, metadata)


def largest(shapes: Mapping[str, tuple[int, ...]], *, momentum: bool) -> int:
    """The largest size, in bytes, of a checkpoint of these tensors, without the LZ4 frame."""
    elements = sum(torch.Size(shape).numel() for shape in shapes.values())
    return (8 if momentum else 4) * elements + HEADER_BYTES


def read_anchor(data: bytes, shapes: Mapping[str, tuple[int, ...]], model_hash: str) -> Anchor:
    """Parse an anchor whose weights have ``model_hash``. Raises InvalidRequest otherwise."""
    return _read(partial(safetensors.torch.load, data), shapes, model_hash)


def map_anchor(path: Path, shapes: Mapping[str, tuple[int, ...]], model_hash: str) -> Anchor:
    """The same from a file, which is mapped: the anchor takes no private memory.

    Raises OSError as well. The file may be removed meanwhile, but not changed.
    """
    return _read(partial(safetensors.torch.load_file, path), shapes, model_hash)


def _read(
    load: Callable[[], Tensors], shapes: Mapping[str, tuple[int, ...]], model_hash: str
) -> Anchor:
    try:
        tensors = load()
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        raise InvalidRequest(FIELD, "is not a safetensors file") from None
    weights = _checked(tensors, shapes, "")
    moving = len(tensors) > len(shapes)
    velocity = _checked(tensors, shapes, VELOCITY) if moving else {}
    if len(tensors) != len(weights) + len(velocity):
        raise InvalidRequest(FIELD, "has tensors that the model has not")
    anchor = Anchor.of(weights, velocity)
    if anchor.model_hash != model_hash:
        raise InvalidRequest(FIELD, "has other weights than its hash says")
    return anchor


def _checked(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], prefix: str
) -> dict[str, Tensor]:
    found = {}
    for name, shape in shapes.items():
        tensor = tensors.get(prefix + name)
        if tensor is None or tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
            raise InvalidRequest(FIELD, f"{prefix}{name} is missing or has another shape")
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidRequest(FIELD, f"{prefix}{name} is not finite")
        found[name] = tensor
    return found
