"""Which weights count, and how far the nodes agree (interface 2.1: hash_agreement_rate).

Terms: a node *reports* the version of its weights and their hash; version 0 is what a node starts
with, before it has trained or joined. The *winner* is the version above 0 that most nodes report; a
tie goes to the newest version, and then to the lowest hash. Reports of version 0 count only if
there are no others.

Invariants: nodes that know the same reports name the same winner; newcomers outvote nobody; a
single liar with a high version outvotes at most one other node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class WeightsVersion:
    """The weights that a node has: the round that made them, and their SHA-256."""

    version: int
    model_hash: str


def winner(reports: Iterable[WeightsVersion]) -> WeightsVersion | None:
    """The weights that everybody should have; None without any report."""
    counts = Counter(reports)
    trained = {weights: count for weights, count in counts.items() if weights.version} or counts
    if not trained:
        return None
    return min(trained, key=lambda one: (-trained[one], -one.version, one.model_hash))


def agreement_rate(reports: Mapping[str, str]) -> float:
    """The share of nodes that report the most common model hash; 1.0 for a node alone."""
    if not reports:
        return 1.0
    return Counter(reports.values()).most_common(1)[0][1] / len(reports)
