"""Whether trained weights are served (decision 0225).

Invariant: with ``better``, what is served never gets worse on the text that this node holds out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshnode.domain.training.agreement import WeightsVersion

OFF, LATEST, BETTER = "off", "latest", "better"
"""The values of ``training.serve``."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A version of the weights, with its loss on this node's held-out text."""

    weights: WeightsVersion
    loss: float | None
    """None if this node has not measured it."""


def is_worth_serving(setting: str, served: Measured, newest: Measured) -> bool:
    """Whether the newest weights that the network agreed on are to be served from now on."""
    if setting == OFF or newest.weights == served.weights:
        return False
    if setting == LATEST:
        return True
    if served.loss is None or newest.loss is None or not math.isfinite(newest.loss):
        return False
    return newest.loss < served.loss
