"""What holders did for this node, and what it therefore expects of them (decision 0134).

Terms: an *answer* is a call that a holder answered properly. A *fault* is one that it failed; its
*backoff* doubles with each fault that follows before it is proven again; a false result has the
longest at once. *Hearsay* is a fault that another holder reported while relaying: either of the two
may be to blame.

==========  =============================================  ==========
standing    event                                          next
==========  =============================================  ==========
NEWCOMER    PROVEN_ANSWERS answers since its last fault    PROVEN
NEWCOMER    a fault, full, or MAX_HEARSAY times hearsay    DISTRUSTED
PROVEN      the same                                       DISTRUSTED
DISTRUSTED  the backoff of a fault has passed              NEWCOMER
DISTRUSTED  the backoff of a full holder has passed        as before
==========  =============================================  ==========

Invariants: memory is bounded, whatever ids peers make up; nothing that a peer claims about itself
enters; whatever a holder did, it counts less as time passes; a standing only orders holders, so
that a distrusted one still serves when there is no other.
"""

from __future__ import annotations

import statistics
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

PROVEN_ANSWERS = 128
"""Answers after which a holder is proven: about three generations."""
TRIAL_SHARE = 1 / 8
"""Part of the sessions that newcomers without any answer get together."""
MAX_TRIALS = 1 / 2
"""The most that all other newcomers get together."""
FAULT_S = 30.0
MAX_FAULT_S = 3600.0
"""First and longest backoff after a fault."""
FULL_S = 0.5
MAX_FULL_S = 30.0
"""First and longest backoff of a holder that has no room."""
MAX_HEARSAY = 2
HEARSAY_S = 600.0
"""Hearsay is forgotten after this time."""
HALF_LIFE_S = 300.0
"""A measured time counts half after this time without a newer one, so slow holders are tried
again."""
NEWEST = 0.25
"""Weight of the newest measurement in the average time."""
MAX_KNOWN = 1024
"""Holders remembered. Only those that were called are, so strangers cannot crowd others out."""


class Standing(IntEnum):
    """How much a holder is trusted; smaller is better."""

    PROVEN = 0
    NEWCOMER = 1
    DISTRUSTED = 2


@dataclass(slots=True)
class Conduct:
    """What one holder did. Times are seconds of a monotonic clock."""

    answers: int = 0
    """Since the last fault."""
    faults: int = 0
    """Since the holder was last proven."""
    refusals: int = 0
    """How often it was full since its last answer."""
    distrusted_until: float = float("-inf")
    hearsay: int = 0
    hearsay_at: float = float("-inf")
    layer_ms: float | None = None
    """Average time of one layer for one position, without the latency of a small call."""
    measured_at: float = 0.0

    def standing(self, now: float) -> Standing:
        """The standing now."""
        if now < self.distrusted_until:
            return Standing.DISTRUSTED
        return Standing.PROVEN if self.answers >= PROVEN_ANSWERS else Standing.NEWCOMER

    def expected_ms(self, now: float) -> float | None:
        """The time of one layer that is expected now; None if it was never measured."""
        if self.layer_ms is None:
            return None
        return float(self.layer_ms * 2.0 ** (-max(0.0, now - self.measured_at) / HALF_LIFE_S))

    def measured(self, layer_ms: float, now: float) -> None:
        """Average a measurement in."""
        before = self.expected_ms(now)
        self.layer_ms = layer_ms if before is None else before + NEWEST * (layer_ms - before)
        self.measured_at = now

    def answered(self) -> None:
        """Count an answer."""
        self.answers += 1
        self.refusals = 0
        if self.answers >= PROVEN_ANSWERS:
            self.faults = 0

    def failed(self, now: float) -> None:
        """Count a fault."""
        self.answers = 0
        self._distrust(now + backoff_s(self.faults, FAULT_S, MAX_FAULT_S))
        self.faults += 1

    def lied(self, now: float) -> None:
        """Count a false result: the longest backoff."""
        self.failed(now)
        self._distrust(now + MAX_FAULT_S)

    def was_full(self, now: float) -> None:
        """Count a call that was refused for want of room."""
        self._distrust(now + backoff_s(self.refusals, FULL_S, MAX_FULL_S))
        self.refusals += 1

    def rumoured(self, now: float) -> None:
        """Count a fault that may be this holder's, or another's."""
        if now - self.hearsay_at >= HEARSAY_S:
            self.hearsay = 0
        self.hearsay, self.hearsay_at = self.hearsay + 1, now
        if self.hearsay >= MAX_HEARSAY:
            self.hearsay = 0
            self.failed(now)

    def _distrust(self, until: float) -> None:
        self.distrusted_until = max(self.distrusted_until, until)


class Reputation:
    """The conduct of the holders that this node has called, by node id."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Conduct] = OrderedDict()

    def __len__(self) -> int:
        """How many holders are remembered."""
        return len(self._known)

    def of(self, node_id: str) -> Conduct:
        """A holder's conduct so far; do not change it."""
        return self._known.get(node_id) or Conduct()

    def of_called(self, node_id: str) -> Conduct:
        """The conduct of a holder that was called, to be changed."""
        conduct = self._known.setdefault(node_id, Conduct())
        self._known.move_to_end(node_id)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return conduct

    def typical_layer_ms(self, node_ids: Iterable[str], now: float) -> float | None:
        """The median time of a layer at these holders; None if none of them was measured.

        Of an even number it is the lower one, so that one slow holder of two is not typical.
        """
        times = [self.of(node_id).expected_ms(now) for node_id in node_ids]
        known = [each for each in times if each is not None]
        return statistics.median_low(known) if known else None


def backoff_s(earlier: int, first_s: float, longest_s: float) -> float:
    """Seconds of a backoff that doubles with each ``earlier`` one, up to the longest."""
    return min(longest_s, first_s * 2.0 ** min(earlier, 32))


def trial_shares(newcomers: Mapping[str, int]) -> dict[str, float]:
    """The part of the sessions that each newcomer gets; ``newcomers`` has the answers of each.

    All that have never answered share TRIAL_SHARE, so that a crowd of new ids gets no more than
    one. Each of the others has at least as much, and more as its answers become many; all their
    shares are scaled down if the sum is more than MAX_TRIALS.
    """
    untried = sorted(node_id for node_id, answers in newcomers.items() if not answers)
    tried = sorted(node_id for node_id, answers in newcomers.items() if answers)
    shares = {node_id: TRIAL_SHARE / len(untried) for node_id in untried}
    grown = {node_id: max(TRIAL_SHARE, newcomers[node_id] / PROVEN_ANSWERS) for node_id in tried}
    scale = min(1.0, MAX_TRIALS / sum(grown.values())) if grown else 1.0
    return shares | {node_id: share * scale for node_id, share in grown.items()}


def choose_trial(newcomers: Mapping[str, int], draw: float) -> str | None:
    """The newcomer that is tried in this session, if any. ``draw`` is a random number from 0 to 1.

    ``newcomers`` has the answers of each so far.
    """
    for node_id, share in trial_shares(newcomers).items():
        draw -= share
        if draw < 0.0:
            return node_id
    return None
