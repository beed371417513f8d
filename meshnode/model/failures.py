"""How a computation can fail, and what others are told of it."""

from __future__ import annotations

import torch

from meshnode.domain.errors import ComputationFailed, MeshnodeError, Overloaded
from meshnode.model.accelerator.pool import PoolEmpty

ComputationError = (RuntimeError, MemoryError, ArithmeticError)
"""Errors of torch, out of memory, and non-finite numbers. Any other exception is a bug."""

Failure = RuntimeError | MemoryError | ArithmeticError


class NonFiniteStates(ArithmeticError):
    """A shard computed NaN or infinity: its input was out of range, or its weights are corrupt."""


def reported(failure: Failure) -> MeshnodeError:
    """What a client or a peer is told of a failure.

    A device that has no memory left is too busy: the same may succeed later, or on another node.
    """
    if is_out_of_memory(failure):
        return Overloaded("the device has no memory left for this; later, or on another node")
    return ComputationFailed()


def is_out_of_memory(failure: object) -> bool:
    """Whether a device had no memory left."""
    return isinstance(failure, torch.OutOfMemoryError | PoolEmpty)
