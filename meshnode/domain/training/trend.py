"""What a row of losses says (document, 2.1: loss_trend).

The rule: the losses of the last rounds, up to ``WINDOW`` of them, are halved by age; the means of
the halves are compared. A newer half lower by ``STEP`` or more is ``improving``, higher by as much
``worsening``, anything between ``stable``. Fewer than ``FEWEST`` losses are ``unknown``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

WINDOW = 20
FEWEST = 4
STEP = 0.005
"""Relative: half a percent, above the noise of the validation batches of a round."""

UNKNOWN, IMPROVING, STABLE, WORSENING = "unknown", "improving", "stable", "worsening"


def loss_trend(losses: Sequence[float]) -> str:
    """The trend of ``losses``, oldest first. One that is not finite is ``worsening``."""
    recent = losses[-WINDOW:]
    if any(not math.isfinite(loss) for loss in recent):
        return WORSENING
    if len(recent) < FEWEST:
        return UNKNOWN
    middle = len(recent) // 2
    older, newer = fmean(recent[:middle]), fmean(recent[middle:])
    change = (newer - older) / max(abs(older), 1e-12)
    if change <= -STEP:
        return IMPROVING
    return WORSENING if change >= STEP else STABLE
