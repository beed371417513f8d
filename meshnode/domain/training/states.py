"""What a node in training says and keeps of itself (document, 2.3; decisions/0095).

Terms as in ``replica``, which has the table of the states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from meshnode.domain.training.agreement import Weights


class State(Enum):
    """Where a node is in its round."""

    WAITING = "waiting"
    INNER = "inner"
    EXCHANGE = "exchange"
    OUTER = "outer"
    SETTLING = "settling"
    FETCHING = "fetching"


@dataclass(frozen=True, slots=True)
class Report:
    """What a node says of itself. ``kept`` is its anchor; ``pending`` what it would keep next."""

    round_id: int
    state: State
    kept: Weights
    pending: Weights | None = None
    contributions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def latest(self) -> Weights:
        """The newest weights that the node has made."""
        return self.pending or self.kept


@dataclass(frozen=True, slots=True)
class Persisted:
    """What has to be on the disk before the node says a word of it."""

    kept: Weights
    round_id: int
    contributed: str | None = None
    """Digest of the own contribution to ``round_id``, once made."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. The exchange waits for stragglers a share of what the own inner steps took."""

    exchange_least_s: float = 5.0
    exchange_share: float = 0.5
    settle_s: float = 15.0
    retry_s: float = 2.0
    distrust_s: float = 20.0


@dataclass(slots=True)
class Tally:
    """What became of the rounds."""

    rounds: int = 0
    successful_syncs: int = 0
    failed_syncs: int = 0
    adopted: int = 0
