"""Paths through the holders of a model's layers (interface 1: layers are split over nodes).

Terms: a *holder* is a node with a contiguous run of layers; a *hop* is one holder computing some of
them; a *path* is a sequence of hops that covers the wanted layers, each once and in order. The
*load* of a holder is the number of this node's own sessions there.

Invariants (decisions 0036, 0134): a hop runs to the last layer of its holder, as
``PipelineForward`` does, so no holder is on a path twice. The chosen path is the cheapest among
those with the fewest distrusted holders, and of these with the fewest newcomers; it does not depend
on the order of the arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from meshnode.domain.reputation import Standing

HOP_MS = 1.0
"""Cost of a hop in addition to its latency: encoding, decoding and a turn in the event loop."""
LOAD_MS = 0.5
"""Cost of each session at a holder, since sessions share the holder's steps."""
_RELUCTANCE_MS = {Standing.PROVEN: 0.0, Standing.NEWCOMER: 1e8, Standing.DISTRUSTED: 1e12}
"""Cost of a hop at a holder of each standing: more than 1024 hops of the better one can have."""
SLOW_TIMES = 3
SLOW_MS = 50.0
"""A path is slow if a position takes this many times as long as on another, and so much longer."""
SHORT_CUT_MS = 3.0
"""What an answer straight to the driver costs the two: one more call, and that to another node."""
REPLAY_SPEED = 2
"""How many replayed positions are taken to cost as much as one that is generated."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A node that holds layers ``first`` to ``last``, both included."""

    node_id: str
    first: int
    last: int
    latency_ms: float = 0.0
    load: int = 0
    layer_ms: float = 0.0
    """The time that one layer is expected to take there."""
    standing: Standing = Standing.PROVEN

    def expected_ms(self, layers: int) -> float:
        """The time that one position is expected to take in ``layers`` layers, without load."""
        return HOP_MS + max(0.0, self.latency_ms) + layers * max(0.0, self.layer_ms)

    def loaded_ms(self, layers: int) -> float:
        """The time that one position is expected to take in ``layers`` layers, under load."""
        return self.expected_ms(layers) + LOAD_MS * max(0, self.load)

    def cost_ms(self, layers: int) -> float:
        """The cost of one hop at this holder."""
        return _RELUCTANCE_MS[self.standing] + min(1e4, self.loaded_ms(layers))


@dataclass(frozen=True, slots=True)
class Hop:
    """Layers ``first`` to ``last``, both included, computed at ``node_id``."""

    node_id: str
    first: int
    last: int


Path = tuple[Hop, ...]


def longest_run(layers: Iterable[int]) -> range:
    """The longest run of consecutive indices, the first of equally long ones; empty if none.

    Nodes of this project hold one run. If another implementation holds several, one is used.
    """
    best = run = range(0)
    for layer in sorted(set(layers)):
        run = range(run.start, layer + 1) if run and run.stop == layer else range(layer, layer + 1)
        if len(run) > len(best):
            best = run
    return best


def choose_path(
    holders: Iterable[Holder], first: int, total: int, excluded: Collection[str] = ()
) -> Path | None:
    """The cheapest path over layers ``first`` to ``total - 1``; None if some layer has no holder.

    Of equally cheap paths it is the shortest, then the one with the smallest node ids. ``excluded``
    are the ids of nodes that must not be used.
    """
    usable = [holder for holder in holders if holder.node_id not in excluded]
    # Backwards from the last layer: the cheapest path from each layer on.
    best: list[tuple[float, int, tuple[str, ...], Path] | None] = [None] * total
    best.append((0.0, 0, (), ()))
    for layer in range(total - 1, first - 1, -1):
        for holder in usable:
            if not holder.first <= layer <= holder.last:
                continue
            stop = min(holder.last + 1, total)
            rest = best[stop]
            if rest is None:
                continue
            candidate = (
                holder.cost_ms(stop - layer) + rest[0],
                1 + rest[1],
                (holder.node_id, *rest[2]),
                (Hop(holder.node_id, layer, stop - 1), *rest[3]),
            )
            known = best[layer]
            if known is None or candidate[:3] < known[:3]:
                best[layer] = candidate
    found = best[first]
    return None if found is None else found[3]


def saved_by_short_cut(latencies_ms: Sequence[float]) -> float:
    """The milliseconds that a message saves if its answer comes straight from the last hop.

    ``latencies_ms`` has the driver's latency to each hop of the path. A driver does not know those
    between hops, and takes its own for them: then the answer is spared a way for each hop but one.
    """
    return sum(max(0.0, each) for each in latencies_ms[:-1]) / 2


def is_worth_leaving(position_ms: float, other_ms: float, length: int, left: int) -> bool:
    """Whether a session of ``length`` positions should leave its path for another one.

    ``position_ms`` and ``other_ms`` are the times of a position on the two; ``left`` is the most
    positions that may still come.
    """
    saved_ms = position_ms - other_ms
    if saved_ms < SLOW_MS or position_ms < SLOW_TIMES * other_ms:
        return False
    # Generations often end before their limit, so only half of what is left counts; and the gain
    # is expected, while the replay is certain.
    return saved_ms * left / 2 >= 2 * other_ms * length / REPLAY_SPEED


def missing_layers(
    holders: Iterable[Holder], first: int, total: int, excluded: Collection[str] = ()
) -> tuple[int, ...]:
    """The layers from ``first`` to ``total - 1`` that no holder has."""
    held = {
        layer
        for holder in holders
        if holder.node_id not in excluded
        for layer in range(max(first, holder.first), min(total - 1, holder.last) + 1)
    }
    return tuple(layer for layer in range(first, total) if layer not in held)


def spell_layers(layers: Sequence[int]) -> str:
    """Ascending indices as text: ``2, 4-7``."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1] = [runs[-1][0], layer]
        else:
            runs.append([layer])
    return ", ".join("-".join(map(str, run)) for run in runs)
