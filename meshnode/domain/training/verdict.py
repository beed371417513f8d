"""Whether a round made the agreed weights worse, decided by all from what all have (decision 0226).

Terms: a *measurement* says how the held-out loss of the present weights compares with that of the
weights before them, on the text of one node; it is a part of the node's signed contribution. The
*verdict* on the present weights follows from the measurements of one set of contributions.

Invariants: the same set gives every node the same verdict; measurements of less than half of the
contributions, or lies of a minority, change no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.trend import STEP

MAX_DROPPED = 3
"""Rounds in a row that are dropped before a node stops training."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One node's measurement."""

    previous: str
    """The hash of the weights that the present ones were made from."""
    before: float
    """Their held-out loss."""
    after: float
    """That of the present weights; infinite if it is not a number."""

    @property
    def change(self) -> float:
        """The relative change of the loss."""
        return (self.after - self.before) / max(abs(self.before), 1e-12)

    @property
    def worse(self) -> bool:
        """Whether the loss rose by ``STEP`` or more."""
        return self.change >= STEP

    def check(self) -> None:
        """Raise InvalidRequest unless the losses are plausible."""
        if not (math.isfinite(self.before) and self.before > 0 and self.after > 0):
            raise InvalidRequest("held_out", "must be losses above zero")


def is_worse(measured: Sequence[HeldOut | None], previous: str) -> bool:
    """Whether the present weights are worse than ``previous``, from which they were made.

    ``measured`` has one entry for each contribution of the set, None where it has no measurement.
    """
    about = [one.change for one in measured if one is not None and one.previous == previous]
    if 2 * len(about) <= len(measured):
        return False
    return median_low(about) >= STEP
