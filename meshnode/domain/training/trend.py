"""The trend of a series of losses (interface 2.1: loss_trend).

The losses of the last rounds, at most ``WINDOW`` of them, are split by age into two halves, whose
means are compared. If the newer half is lower by ``STEP`` or more, the trend is ``improving``; if
it is higher by as much, ``worsening``; otherwise ``stable``. With fewer than ``FEWEST`` losses it
is ``unknown``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

WINDOW = 20
FEWEST = 4
STEP = 0.005
"""Relative change: half a percent is above the noise of the validation batches of a round."""

UNKNOWN, IMPROVING, STABLE, WORSENING = "unknown", "improving", "stable", "worsening"


def rise(losses: Sequence[float]) -> tuple[float, float] | None:
    """The last two losses, if the newer one is higher by ``STEP`` or more, or not finite."""
    if len(losses) < 2:
        return None
    older, newer = losses[-2:]
    worse = not math.isfinite(newer) or newer - older >= STEP * max(abs(older), 1e-12)
    return (older, newer) if worse else None


def loss_trend(losses: Sequence[float]) -> str:
    """The trend of ``losses``, oldest first. If one is not finite, it is ``worsening``."""
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
