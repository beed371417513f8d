"""What a node measures of its own training (interface 2.1: the /api/training routes)."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LOSSES = 100
"""How many losses are kept to find the trend."""


@dataclass(slots=True)
class Progress:
    """Counts since the start, and the latest loss."""

    begun_at: float
    steps: int = 0
    tokens: int = 0
    inner_step: int = 0
    loss: float = 0.0
    accepted: int = 0
