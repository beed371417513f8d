"""Updates of a holder's weights, when a message steps (decisions/0100). Runs in the torch thread.

Invariant: all holders of a model clip by the norm of the whole gradient, whose square they add up
on the way back and are told by its answer.
"""

from __future__ import annotations

import math

from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.model.decoder import Decoder
from meshnode.model.training import Recipe, Trainer
from meshnode.services.shards.graphs import Gradients, by_local_name

GRADIENT_SQUARE = "gradient-square"
"""Metadata of PipelineBackward when a message steps: the sum of the squares of all gradients of the
holders after this one; and of its answer: the same of all holders."""
MOST_SQUARE = 1e30


class Stepper:
    """The optimizer of the held layers."""

    def __init__(self) -> None:
        """Its moments take memory from the first update on."""
        self.steps = 0
        """Updates of the weights."""
        self._trainer: Trainer | None = None

    def update(
        self, decoder: Decoder, gradients: Gradients, square: float, learning_rate: float
    ) -> None:
        """One step of AdamW. ``square`` is that of the gradients of all holders."""
        if self._trainer is None:
            self._trainer = Trainer(decoder, Recipe())
        self._trainer.recipe = Recipe(learning_rate=learning_rate)
        self._trainer.update(by_local_name(decoder, gradients), math.sqrt(square))
        self.steps += 1


def added(earlier: Gradients, later: Gradients) -> Gradients:
    """The sums, by name."""
    total = dict(earlier)
    for name, gradient in later.items():
        total[name] = total[name] + gradient if name in total else gradient
    return total


def add_to(total: dict[str, Tensor], gradients: Gradients) -> None:
    """The same, in place."""
    for name, gradient in gradients.items():
        if name in total:
            total[name] += gradient
        else:
            total[name] = gradient


def square_in(text: str) -> float:
    """A sum of squares from metadata. Raises InvalidRequest for what is none."""
    try:
        square = float(text) if len(text) <= 32 else math.nan
    except ValueError:
        square = math.nan
    if not 0.0 <= square <= MOST_SQUARE:
        raise InvalidRequest(GRADIENT_SQUARE, "must be a sum of squares")
    return square
