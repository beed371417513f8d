"""How long a node waits for others in a round, and when it ends its own steps (decision 0245).

Terms: a *quorum* is half of the nodes that train from the same weights, rounded up. A node's *end*
is the time at which it has done its inner steps, or expects to have done them; that of a node which
says nothing of it is unknown. Once the contributions of a quorum are here, those that still compute
have the *grace* to contribute, too; the *deadline* is for those that have.

Invariant: as long as fewer than half of the others lie, the end of a quorum is not before that of
some honest node, and not after that of another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.states import Report, State, Timings

PAST = frozenset({State.EXCHANGE, State.OUTER, State.SETTLING})
"""States in which the inner steps of a round are done."""


def quorum_of(nodes: int) -> int:
    """How many of so many nodes are a quorum."""
    return (nodes + 1) // 2


@dataclass(frozen=True, slots=True)
class _End:
    """When a peer has done the steps of its round; ``inf`` if that is unknown."""

    round_id: int
    kept: WeightsVersion
    past: bool
    at: float


class Pace:
    """The ends of the peers, and this node's patience with them."""

    def __init__(self, timings: Timings, now: float) -> None:
        self._timings = timings
        self._ends: dict[str, _End] = {}
        self._begun = now
        self._deadline = now
        self._grace_s = timings.exchange_least_s
        self._quorum_at = math.inf
        self.joiners_until = now
        """Until then the exchange waits for peers that have other weights."""

    def heard(self, peer: str, report: Report, now: float) -> None:
        """Note a peer's report."""
        past = report.state in PAST
        at = now + report.left_s if report.state is State.INNER else math.inf
        end = _End(report.round_id, report.kept, past, now if past else at)
        before = self._ends.get(peer)
        if past and before == replace(end, at=before.at if before else now):
            # It was past its steps already.
            return
        self._ends[peer] = end

    def lost(self, peer: str) -> None:
        """Forget a peer."""
        self._ends.pop(peer, None)

    def quorum(self, kept: WeightsVersion) -> int:
        """How many of the nodes with these weights are a quorum; this node is one of them."""
        return quorum_of(1 + sum(end.kept == kept for end in self._ends.values()))

    def end(self, needed: int, round_id: int, kept: WeightsVersion) -> float:
        """When so many peers have done the steps of a round; ``inf`` if that is unknown."""
        same = (e.at for e in self._ends.values() if (e.round_id, e.kept) == (round_id, kept))
        ends = sorted(same)
        return ends[needed - 1] if 0 < needed <= len(ends) else math.inf

    def is_late(self, now: float, step_s: float, round_id: int, kept: WeightsVersion) -> bool:
        """Whether one more step of this node would end too long after those of a quorum."""
        end = self.end(self.quorum(kept), round_id, kept)
        return now + step_s > end + self._timings.slack_s

    def begin_exchange(self, now: float, inner_s: float) -> None:
        """Note that this node has contributed, after inner steps of so many seconds."""
        timings = self._timings
        self._begun, self._quorum_at = now, math.inf
        self._deadline = now + max(timings.exchange_least_s, timings.exchange_share * inner_s)
        self._grace_s = max(timings.exchange_least_s, timings.grace_share * inner_s)
        self.joiners_until = now + timings.exchange_least_s

    def note(
        self, contributors: Iterable[str], round_id: int, kept: WeightsVersion, now: float
    ) -> None:
        """Note whose contributions to the round are here, this node's among them.

        A node that has gone on to a later round will not apply them, so it is of no quorum.
        """
        gone = {peer for peer, end in self._ends.items() if end.round_id > round_id}
        if len(set(contributors) - gone) >= self.quorum(kept):
            self._quorum_at = min(self._quorum_at, now)

    @property
    def grace_until(self) -> float:
        """Until then the exchange waits for nodes that still compute; ``inf`` without a quorum."""
        return self._quorum_at + self._grace_s

    def deadline(self, round_id: int, kept: WeightsVersion) -> float:
        """Until then the exchange waits at most."""
        if self._quorum_at < math.inf:
            return max(self._deadline, self.grace_until)
        end = self.end(self.quorum(kept) - 1, round_id, kept)
        if end == math.inf:
            return self._deadline
        longest = self._begun + self._timings.exchange_most_s
        return max(self._deadline, min(end + self._grace_s, longest))
