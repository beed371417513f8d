"""A message that trains, and the rules for its fields (interface 2.3; decision 0035)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.position import Place
from meshnode.model.config import DecoderConfig
from meshnode.services.shards.messages import POSITIONS, ForwardCall, unpack, validate_mask
from meshnode.wire.tensors import unpack_integers

IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCall:
    """A message that trains."""

    call: ForwardCall
    labels: bytes
    sender_url: str
    source_shard: int
    backward: bool
    """Whether gradients are wanted; otherwise only the loss is."""
    step: bool = False
    """Whether the weights are to be updated after the backward pass."""
    place: Place | None = None
    """Where its driver says that it steps from."""
    member: str = ""
    """The node id of the member that signed it, which may be this node's; empty if nobody did."""


def unpack_training(
    message: TrainingCall, config: DecoderConfig, context_length: int, *, is_last: bool
) -> tuple[Tensor, Tensor | None]:
    """Inputs, and targets for the holder of the last layer. Raises InvalidRequest."""
    call = message.call
    if call.use_cache or call.past:
        raise InvalidRequest("use_cache", "must be false for training")
    if not (call.session_id and call.request_id):
        raise InvalidRequest("request_id", "training needs session_id and request_id")
    if message.labels and not is_last:
        raise InvalidRequest("training_labels", "are for the holder of the last layer")
    if not message.labels and is_last:
        raise InvalidRequest("training_labels", "must be given to the holder of the last layer")
    inputs = unpack(call, config, context_length)
    batch, seq = inputs.states.shape[:2]
    if inputs.start:
        raise InvalidRequest(POSITIONS, "must begin at 0 for training")
    validate_mask(call.mask, batch, seq)
    if not is_last:
        return inputs.states, None
    targets = unpack_integers(message.labels, (batch, seq), "training_labels")
    counts = targets != IGNORED
    if not counts.any():
        raise InvalidRequest("training_labels", "must not all be ignored")
    if targets[counts].min() < 0 or targets[counts].max() >= config.vocab_size:
        raise InvalidRequest("training_labels", f"must be below {config.vocab_size}, or -100")
    return inputs.states, torch.from_numpy(targets)
