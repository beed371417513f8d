"""Whether a running node should hold other layers than it does (decision 0250).

Terms: a *placement* says which layers each node holds. Its *expected time* is what a token takes
that has to share the holders with the tokens of ``LOAD - 1`` other generations: the quickest way
through the layers, and as many turns of the layer that the fewest positions can pass in a time, the
*narrowest* one. A layer is *short* if nobody holds it. A node that has announced a move *leaves*.

Invariants: a plan never lets go of a layer that no other node holds which stays; and it makes less
short, or, with as much short as before, the expected time shorter by a fifth, or by a node's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from meshnode.domain.placement import ModelSizes, nodes_for
from meshnode.domain.routing import HOP_MS

LOAD = 8
"""Generations that are taken to run, whatever runs now: a node moves for minutes to come."""
GAIN = 0.8
"""A move that only makes tokens quicker leaves at most this part of their expected time; among more
than five nodes, what is left without the part that one of them has on average."""
TRUST_TIMES = 16.0
"""What a node says of its own speed counts at most as so much quicker or slower than is usual."""
DEFAULT_LAYER_MS = 1.0
"""What a layer takes where nobody has measured it; only relations between nodes matter."""
MAX_BORDERS = 24
"""With more, only windows that fill the memory are tried: their number grows with the square."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node's part in a placement."""

    node_id: str
    held: range
    layer_ms: float = 0.0
    """The time that it says a position takes in one of its layers; 0.0 if it has not said so."""
    latency_ms: float = 0.0
    """What a small call to it takes."""
    target: range | None = None
    """The layers to which it has announced to move; those held if it seems that it never will."""
    leaves: bool = False
    """Whether nobody may rely on its layers, because it moves or stops."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A move that is worth it."""

    target: range
    relieves: bool
    """Whether less is short afterwards."""
    now_ms: float
    """The expected time as it is; infinite while a layer is short."""
    then_ms: float


@dataclass(frozen=True, slots=True, order=True)
class _Rank:
    """What a placement is judged by; less is better."""

    nodes: int
    """Nodes like this one that would still be needed."""
    missing: int
    """Weight of the layers that are short."""
    ms: float


class Placement:
    """What one node knows of all, and what would become of it if this node moved."""

    def __init__(self, own: Place, others: Iterable[Place], sizes: ModelSizes, budget: int) -> None:
        """``budget`` is the memory that this node's weights may take, in bytes."""
        self._own, self._sizes, self._budget = own, sizes, budget
        self._total = sizes.num_layers
        self._others = sorted(others, key=lambda place: place.node_id)
        self.gain = max(GAIN, 1 - 1 / (1 + len(self._others)))
        """What a move that is worth it leaves of the expected time at most."""
        told = [each.layer_ms for each in (own, *self._others) if each.layer_ms > 0]
        self._typical = median(told) if told else DEFAULT_LAYER_MS
        stays = [each for each in self._others if not each.leaves]
        covered = _covered((each.held for each in stays), self._total)
        self._needed = [layer for layer in own.held if not covered[layer]]
        # Those that have announced a move are where they will be.
        self._elsewhere = [
            (each.held if each.target is None else each.target, each)
            for each in self._others
            if each.target is not None or not each.leaves
        ]
        self._held_elsewhere = _covered((held for held, _ in self._elsewhere), self._total)

    def best_move(self) -> Plan | None:
        """The best move of this node; None if it should stay."""
        now = self._rank(self._own.held)
        best: tuple[tuple[_Rank, int, int], range] | None = None
        for window in self._windows():
            rank = self._rank(window)
            if not self._is_worth(now, rank):
                continue
            # Among equals the one that has most in common with what is held, then the lowest.
            key = rank, -len(_common(window, self._own.held)), window.start
            if best is None or key < best[0]:
                best = key, window
        return None if best is None else _plan(best[1], now, best[0][0])

    def judge(self, target: range) -> Plan | None:
        """The plan to move to ``target``; None if that is not worth it, or not allowed."""
        if not self._may(target):
            return None
        now, then = self._rank(self._own.held), self._rank(target)
        return _plan(target, now, then) if self._is_worth(now, then) else None

    def expected_ms(self) -> float:
        """The expected time as it is; infinite while a layer is short."""
        return self._rank(self._own.held).ms

    def _is_worth(self, now: _Rank, then: _Rank) -> bool:
        if (then.nodes, then.missing) != (now.nodes, now.missing):
            return (then.nodes, then.missing) < (now.nodes, now.missing)
        return then.ms <= self.gain * now.ms and math.isfinite(then.ms)

    def _may(self, window: range) -> bool:
        fits = len(window) > 0 and window.start >= 0 and window.stop <= self._total
        kept = all(layer in window for layer in self._needed)
        return fits and kept and self._sizes.of(window) <= self._budget

    def _windows(self) -> Iterable[range]:
        """The windows to try: between the borders of what others hold, and as long as fits."""
        held = [self._own.held, *(held for held, _ in self._elsewhere)]
        borders = {0, self._total, *(each.start for each in held), *(each.stop for each in held)}
        short = [layer for layer, is_held in enumerate(self._held_elsewhere) if not is_held]
        borders |= {layer for layer in short if layer - 1 not in short}
        borders |= {layer + 1 for layer in short if layer + 1 not in short}
        ordered = sorted(each for each in borders if 0 <= each <= self._total)
        windows = {self._longest_from(start) for start in ordered}
        windows |= {self._longest_to(stop) for stop in ordered}
        if len(ordered) <= MAX_BORDERS:
            windows |= {range(a, b) for a in ordered for b in ordered if a < b}
        windows.discard(self._own.held)
        return sorted(filter(self._may, windows), key=lambda window: (window.start, window.stop))

    def _longest_from(self, start: int) -> range:
        stop = start
        while stop < self._total and self._sizes.of(range(start, stop + 1)) <= self._budget:
            stop += 1
        return range(start, stop)

    def _longest_to(self, stop: int) -> range:
        start = stop
        while start > 0 and self._sizes.of(range(start - 1, stop)) <= self._budget:
            start -= 1
        return range(start, stop)

    def _rank(self, own: range) -> _Rank:
        """How good the placement is if this node holds ``own``."""
        missing = [
            layer
            for layer, is_held in enumerate(self._held_elsewhere)
            if not is_held and layer not in own
        ]
        if missing:
            weight = sum(self._sizes.weight(layer) for layer in missing)
            return _Rank(nodes_for(self._sizes, self._budget, missing), weight, math.inf)
        parts = [(own, 0.0, self._layer_ms(self._own))]
        parts += [
            (held, max(0.0, place.latency_ms), self._layer_ms(place))
            for held, place in self._elsewhere
        ]
        return _Rank(0, 0, expected_ms(parts, self._total))

    def _layer_ms(self, place: Place) -> float:
        if place.layer_ms <= 0:
            return self._typical
        least, most = self._typical / TRUST_TIMES, self._typical * TRUST_TIMES
        return min(max(place.layer_ms, least), most)


def as_claimed(own_id: str, others: Iterable[Place]) -> list[Place]:
    """The others as a node sees them that has a claim itself: those with larger ids give way."""
    return [
        replace(each, target=None, leaves=False)
        if each.target is not None and each.node_id > own_id
        else each
        for each in others
    ]


def is_contested(own: Place, target: range, others: Iterable[Place]) -> bool:
    """Whether a claim gives way to that of a node that holds what would be let go."""
    left = [layer for layer in own.held if layer not in target]
    return any(
        each.target not in (None, each.held)
        and each.node_id < own.node_id
        and any(layer in each.held for layer in left)
        for each in others
    )


def expected_ms(parts: Sequence[tuple[range, float, float]], total: int, load: int = LOAD) -> float:
    """The expected time of a token among ``load`` generations, in milliseconds.

    ``parts`` has for each node the layers held, the latency to it and the time of one layer there.
    Infinite if a layer is short.
    """
    return _quickest_ms(parts, total) + (load - 1) * _narrowest_ms(parts, total)


def _quickest_ms(parts: Sequence[tuple[range, float, float]], total: int) -> float:
    """The time of the quickest way: each hop runs to the last layer of its holder."""
    # Only where one holder ends can another one begin.
    stops = sorted({held.stop for held, _, _ in parts if held})
    best = {total: 0.0}
    for start in (*reversed([stop for stop in stops if stop < total]), 0):
        ways = (
            HOP_MS + latency_ms + (held.stop - start) * layer_ms + best.get(held.stop, math.inf)
            for held, latency_ms, layer_ms in parts
            if start in held
        )
        best[start] = min(ways, default=math.inf)
    return best[0]


def _narrowest_ms(parts: Sequence[tuple[range, float, float]], total: int) -> float:
    """The time between two positions that pass the narrowest layer."""
    change = [0.0] * (total + 1)
    for held, _, layer_ms in parts:
        if held:
            change[held.start] += 1 / (len(held) * layer_ms)
            change[held.stop] -= 1 / (len(held) * layer_ms)
    passing, least = 0.0, math.inf
    for each in change[:total]:
        passing += each
        least = min(least, passing)
    # What rounding leaves of a layer that nobody holds is far less than any node has.
    return 1 / least if least > 1e-9 else math.inf


def _covered(held: Iterable[range], total: int) -> list[bool]:
    """Whether each layer is in one of these."""
    change = [0] * (total + 1)
    for each in held:
        if each:
            change[max(0, each.start)] += 1
            change[min(total, each.stop)] -= 1
    found, count = [], 0
    for each_change in change[:total]:
        count += each_change
        found.append(count > 0)
    return found


def _common(a: range, b: range) -> range:
    return range(max(a.start, b.start), max(a.start, b.start, min(a.stop, b.stop)))


def _plan(target: range, now: _Rank, then: _Rank) -> Plan:
    relieves = (then.nodes, then.missing) < (now.nodes, now.missing)
    return Plan(target, relieves, now.ms, then.ms)
