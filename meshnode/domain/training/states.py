"""A node's states in training, what it reports and what it persists (interface 2.3; decision 0095).

Terms are explained in ``replica``, which decides when each transition happens.

========  ================================================  ========  ==============================
state     event                                             next      what the service does
========  ================================================  ========  ==============================
WAITING   ``begin``: this node has the weights that most    INNER     inner steps from the anchor
          have, and most are not about to replace them
WAITING   ``begin`` after a crash in EXCHANGE               EXCHANGE  sends the same contribution
WAITING   most nodes have other weights                     FETCHING  fetches them from a peer
INNER     ``inner_done``, early if a quorum is done         EXCHANGE  files its contribution, then
                                                                      sends it
INNER     ``give_up``: training was switched off            WAITING
INNER     most nodes have other weights                     FETCHING  fetches them from a peer
EXCHANGE  all peers have the same set, after the grace      OUTER     applies the set to a copy of
          those that have contributed, or the deadline                the anchor
          has passed; and this node is not left out
EXCHANGE  most nodes have other weights                     FETCHING  fetches them from a peer
OUTER     ``applied``                                       SETTLING  reports the new weights
SETTLING  all peers report the same weights: success        WAITING   keeps them
SETTLING  deadline; most have the same: failed sync         WAITING   keeps them
SETTLING  deadline; most still have the anchor: failed      WAITING   drops them
SETTLING  deadline; most have other weights: failed sync    FETCHING  fetches those from a peer
FETCHING  ``adopted``                                       WAITING   replaces its anchor
FETCHING  ``fetch_failed``                                  WAITING   tries again later
========  ================================================  ========  ==============================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from meshnode.domain.training.agreement import WeightsVersion


class State(Enum):
    """The state of a node within its round."""

    WAITING = "waiting"
    INNER = "inner"
    EXCHANGE = "exchange"
    OUTER = "outer"
    SETTLING = "settling"
    FETCHING = "fetching"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.WAITING: frozenset({State.INNER, State.EXCHANGE, State.FETCHING}),
    State.INNER: frozenset({State.EXCHANGE, State.WAITING, State.FETCHING}),
    State.EXCHANGE: frozenset({State.OUTER, State.FETCHING}),
    State.OUTER: frozenset({State.SETTLING}),
    State.SETTLING: frozenset({State.WAITING, State.FETCHING}),
    State.FETCHING: frozenset({State.WAITING}),
}
"""The table above, without events: which states may follow each one."""


@dataclass(frozen=True, slots=True)
class Report:
    """A node's report to its peers about its training.

    ``kept`` is its anchor, ``pending`` the weights it has computed and may keep next.
    """

    round_id: int
    state: State
    kept: WeightsVersion
    pending: WeightsVersion | None = None
    contributions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_s: float = math.inf
    """Seconds that its inner steps will still take, as it expects; ``inf`` if it does not say."""

    @property
    def latest(self) -> WeightsVersion:
        """The newest weights that the node has made."""
        return self.pending or self.kept


@dataclass(frozen=True, slots=True)
class Persisted:
    """The state that must be on the disk before the node reports any of it."""

    kept: WeightsVersion
    round_id: int
    contributed: str | None = None
    """Digest of this node's contribution to ``round_id``, once it has made one."""
    feedback: str | None = None
    """Digest of the contribution whose unsent rest is added to the next one (decision 0190)."""
    restored: bool = False
    """Whether a contribution made with ``feedback`` was dropped since weights were last fetched."""
    last: int | None = None
    """The latest round that this node has contributed to; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Timings:
    """How long the phases of a round wait for other nodes, in seconds."""

    exchange_least_s: float = 5.0
    """The shortest wait for other nodes in an exchange."""
    exchange_share: float = 0.5
    """The exchange waits this share of the time that this node's inner steps took, or longer."""
    grace_share: float = 0.1
    """And so long for nodes that still compute, once a quorum has contributed (decision 0245)."""
    exchange_most_s: float = 1800.0
    """The longest wait for a quorum; contributions are valid for twice as long."""
    slack_s: float = 1.0
    """How much later than a quorum a node ends its inner steps. Reports are as old as that."""
    settle_s: float = 15.0
    retry_s: float = 2.0
    """Pause after a failed fetch."""
    distrust_s: float = 20.0
    """How long the reports of a peer are ignored after its weights could not be fetched."""


@dataclass(slots=True)
class Tally:
    """Counts of rounds by how they ended."""

    rounds: int = 0
    successful_syncs: int = 0
    failed_syncs: int = 0
    adopted: int = 0
