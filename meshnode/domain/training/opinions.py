"""What nodes find of each other's contributions, and whose count no more (decision 0209).

Terms: after a round a node *measures* contributions: by how much the loss falls when a contribution
alone moves the weights, on sequences that were *assigned* to its maker and on *others*. Its
*opinion* of a node is the mean of these, in which what is older counts less. A contribution says
its maker's opinions, signed. A node is *condemned* in a round when most of the others that
contribute to it hold that its contributions raise the loss on both.

Invariants: who is condemned follows from the contributions of a set alone, so all nodes that apply
the set agree; less than half of the others condemn nobody, and neither do nodes without an opinion;
no more are condemned than the robust rules bear.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshnode.domain.errors import InvalidRequest

MAX_OPINIONS = 64
"""Nodes of which a contribution may say an opinion: those measured last."""
ID_CHARS = 40
NEWEST = 0.5
"""The part of an opinion that the newest measurement has."""
MARGIN = 0.002
"""Opinions nearer to 0 condemn nobody."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What contributions of a node do to the loss, from -1 to 1; above 0 they lower it.

    1 is the greatest effect that any contribution of a round has had.
    """

    assigned: float
    """On sequences that the node was to train on."""
    others: float
    """On sequences of other nodes."""

    @property
    def harmful(self) -> bool:
        """Whether the contributions raise the loss on both."""
        return max(self.assigned, self.others) < -MARGIN


Statements = Mapping[str, Mapping[str, Opinion]]
"""The opinions in the contributions of a set, by their makers."""


def check_opinions(opinions: Mapping[str, Opinion]) -> None:
    """Raise InvalidRequest unless there are few, all within their bounds."""
    values = [v for one in opinions.values() for v in (one.assigned, one.others)]
    if len(opinions) > MAX_OPINIONS or not all(-1.0 <= value <= 1.0 for value in values):
        raise InvalidRequest("opinions", f"must be at most {MAX_OPINIONS}, from -1 to 1")
    if any(len(node_id) != ID_CHARS for node_id in opinions):
        raise InvalidRequest("opinions", "must be of node ids")


class Opinions:
    """One node's opinions."""

    def __init__(self) -> None:
        self._held: dict[str, Opinion] = {}
        """The one measured last stands last."""

    def current(self) -> dict[str, Opinion]:
        """By node id."""
        return dict(self._held)

    def longest_unmeasured(self, nodes: Iterable[str], most: int) -> list[str]:
        """``most`` of these nodes: those never measured, then those measured longest ago."""
        age = {node: place for place, node in enumerate(self._held)}
        return sorted(nodes, key=lambda node: (age.get(node, -1), node))[:most]

    def measured(self, effects: Mapping[str, tuple[float, float]]) -> None:
        """Note by how much, relatively, contributions lower the loss: on assigned, on others.

        What is no number counts as the greatest harm.
        """
        finite = [abs(v) for effect in effects.values() for v in effect if math.isfinite(v)]
        greatest = max(finite, default=0.0) or 1.0
        for node, (assigned, others) in effects.items():
            before = self._held.pop(node, None)
            now = Opinion(_bounded(assigned / greatest), _bounded(others / greatest))
            self._held[node] = now if before is None else _mixed(before, now)
        while len(self._held) > MAX_OPINIONS:
            del self._held[next(iter(self._held))]


def condemned(statements: Statements, tolerated: int) -> frozenset[str]:
    """The makers whose contributions to this set do not count; at most ``tolerated`` of them.

    If there are more, nobody is condemned: then the measurements do not tell liars from others.
    """
    found = []
    for node in statements:
        against = sum(view.harmful for view in _of(node, statements))
        if 2 * against > len(statements) - 1:
            found.append(node)
    return frozenset(found) if len(found) <= tolerated else frozenset()


def _of(node: str, statements: Statements) -> list[Opinion]:
    """What the others hold of a node."""
    return [held[node] for judge, held in statements.items() if judge != node and node in held]


def _bounded(value: float) -> float:
    return max(-1.0, min(1.0, value)) if math.isfinite(value) else -1.0


def _mixed(before: Opinion, now: Opinion) -> Opinion:
    def mean(old: float, new: float) -> float:
        return old + NEWEST * (new - old)

    return Opinion(mean(before.assigned, now.assigned), mean(before.others, now.others))
