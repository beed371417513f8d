"""Updates of a holder's weights, when a message steps (decision 0100). Runs in the torch thread.

Invariant: all holders of a model clip by the norm of the whole gradient. They add its square up on
the way back to the driver, and the answers to these calls bring the sum to all of them.
"""

from __future__ import annotations

import math

from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.model.decoder import Decoder
from meshnode.model.training import InnerTrainer, Recipe, inner_recipe
from meshnode.services.shards.graphs import Gradients, by_local_name

GRADIENT_SQUARE = "gradient-square"
"""Metadata of PipelineBackward when a message steps: in the request, the sum of the squares of all
gradients of the holders after this one; in the answer, that of all holders."""
MAX_SQUARE = 1e30


class Stepper:
    """The optimizer of the held layers."""

    def __init__(self) -> None:
        """The optimizer's moments take memory only after the first update."""
        self.steps = 0
        """Updates of the weights."""
        self.changed = False
        """Whether the weights in memory differ from the model's."""
        self._trainer: InnerTrainer | None = None

    def update(
        self, decoder: Decoder, gradients: Gradients, square: float, learning_rate: float
    ) -> None:
        """One step of AdamW. ``square`` is the sum of the squares of all holders' gradients."""
        if self._trainer is None:
            self._trainer = InnerTrainer(decoder, Recipe())
        self._trainer.recipe = inner_recipe(learning_rate)
        self._trainer.update(by_local_name(decoder, gradients), math.sqrt(square))
        self.steps += 1
        self.changed = True

    def forget(self) -> None:
        """Drop the optimizer's moments, and the weights that it updates."""
        self._trainer = None
        self.changed = False


def added(earlier: Gradients, later: Gradients) -> Gradients:
    """The sum of two sets of gradients, by name."""
    total = dict(earlier)
    for name, gradient in later.items():
        total[name] = total[name] + gradient if name in total else gradient
    return total


def add_to(total: dict[str, Tensor], gradients: Gradients) -> None:
    """Add gradients to ``total``, in place."""
    for name, gradient in gradients.items():
        if name in total:
            total[name] += gradient
        else:
            total[name] = gradient


def square_in(text: str) -> float:
    """A sum of squares from metadata. Raises InvalidRequest if it is malformed or out of range."""
    try:
        square = float(text) if len(text) <= 32 else math.nan
    except ValueError:
        square = math.nan
    if not 0.0 <= square <= MAX_SQUARE:
        raise InvalidRequest(GRADIENT_SQUARE, "must be a sum of squares")
    return square
