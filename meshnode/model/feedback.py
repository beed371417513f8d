"""What a contribution leaves unsent, for the next one (decision 0190).

A contribution sends an approximation of ``DECAY`` times the feedback plus the pseudo-gradient; what
the approximation leaves is the feedback of the next round. So a value that is too small to be sent
adds up over rounds until it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from meshnode.model.diloco import SparseTensor

DECAY = 0.95
"""What is old was computed from other weights, and counts less each round."""

Encode = Callable[[str, Tensor], tuple[bytes, Tensor | SparseTensor]]
"""Bytes for a tensor, and the values that a reader of these bytes gets."""


class FeedbackUnreadable(Exception):
    """The file of a feedback is missing or damaged."""


def contribute(
    gradient: Mapping[str, Tensor], feedback: Mapping[str, Tensor], encode: Encode
) -> tuple[dict[str, bytes], dict[str, Tensor]]:
    """The bytes of a contribution, and the feedback that it leaves.

    An empty feedback is zero. The arguments are not modified.
    """
    frames, left = {}, {}
    for name, tensor in gradient.items():
        whole = tensor.add(feedback[name], alpha=DECAY) if feedback else tensor.clone()
        frames[name], sent = encode(name, whole)
        if isinstance(sent, SparseTensor):
            whole.view(-1)[sent.indices] -= sent.values
        else:
            whole.sub_(sent)
        left[name] = whole
    return frames, left if any(bool(tensor.any()) for tensor in left.values()) else {}


def read_feedback(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read a feedback of a model of these shapes. Raises FeedbackUnreadable."""
    try:
        tensors = safetensors.torch.load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise FeedbackUnreadable(f"{path.name} is damaged or missing") from error
    fits = not tensors or tensors.keys() == shapes.keys()
    fits = fits and all(
        tensor.dtype == torch.float32
        and tuple(tensor.shape) == shapes[name]
        and bool(torch.isfinite(tensor).all())
        for name, tensor in tensors.items()
    )
    if not fits:
        raise FeedbackUnreadable(f"{path.name} is of another model, or damaged")
    return tensors
