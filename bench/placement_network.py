"""A network of simulated nodes: who holds what, how tokens go through them, and what would be best.

Terms: the *control plane* is who joins, dies and moves, by the rules of ``domain.placement``,
``domain.moves`` and ``domain.moving``; the *data plane* is tokens that go through the layers, on
paths by ``domain.routing``. A node is ``factor`` times as slow as the machine that measured.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshnode.domain.moves import Place, Placement, Plan, as_claimed, is_contested
from meshnode.domain.moving import MoveTimings, Moving, Step
from meshnode.domain.placement import ModelSizes, choose_layers
from meshnode.domain.routing import Holder, choose_path

NEWEST = 0.25
"""Weight of the newest time of a hop in what a driver believes of a holder."""
ROWS_AT_MOST = 32


@dataclass(frozen=True)
class Costs:
    """What was measured: seconds, of steps for as many sessions as ``rows`` says."""

    rows: tuple[int, ...]
    layer: tuple[float, ...]
    head: tuple[float, ...]
    hop: float
    """One call from node to node and back, without the computation."""

    def step(self, layers: int, rows: int, *, last: bool) -> float:
        """A step of some sessions in some layers, and in the head if they are the last."""
        took = layers * self._between(self.layer, rows)
        return took + (self._between(self.head, rows) if last else 0.0)

    def _between(self, values: Sequence[float], rows: int) -> float:
        place = bisect_left(self.rows, rows)
        if place == len(self.rows) or self.rows[place] == rows:
            return values[min(place, len(values) - 1)]
        low, high = self.rows[place - 1], self.rows[place]
        share = (rows - low) / (high - low)
        return (1 - share) * values[place - 1] + share * values[place]


@dataclass(eq=False)
class SimNode:
    """A node."""

    name: str
    factor: float
    room: int
    """Layers that it has memory for."""
    at: tuple[float, float]
    """Where it is, in seconds of one way."""
    held: range
    moving: Moving
    version: int = -1
    """Of the placement that ``plan`` was made for."""
    plan: Plan | None = None

    def way(self, other: SimNode) -> float:
        """Seconds that a message takes to another node."""
        return math.dist(self.at, other.at)


@dataclass
class Network:
    """All nodes that live."""

    layers: int
    costs: Costs
    draw: random.Random
    timings: MoveTimings
    spread: float
    """The greatest distance of two nodes in one direction, in seconds."""
    nodes: list[SimNode] = field(default_factory=list)
    moves: int = 0
    _number: itertools.count[int] = field(default_factory=itertools.count)
    _version: int = 0

    @property
    def sizes(self) -> ModelSizes:
        """In units of a layer; embedding and head are part of the process here."""
        return ModelSizes(self.layers, 1, 0, 0)

    def join(self, factor: float, room: int, now: float) -> SimNode:
        """A node chooses its layers by what there is, as at a start."""
        coverage = [sum(layer in node.held for node in self.nodes) for layer in range(self.layers)]
        held = choose_layers(self.sizes, min(room, self.layers), coverage)
        at = self.draw.random() * self.spread, self.draw.random() * self.spread
        name = f"{next(self._number):04d}-{self.draw.getrandbits(32):08x}"
        node = SimNode(name, factor, room, at, held, Moving(self.timings, self.draw.random))
        self.nodes.append(node)
        self._version += 1
        return node

    def die(self, node: SimNode) -> None:
        """A node is gone, and everybody knows it."""
        self.nodes.remove(node)
        self._version += 1

    @property
    def short(self) -> int:
        """How many layers nobody holds."""
        held = {layer for node in self.nodes for layer in node.held}
        return self.layers - len(held)

    def look(self, now: float) -> None:
        """Every node looks once, in random order; one that leaves has its new layers at once."""
        for node in self.draw.sample(self.nodes, len(self.nodes)):
            target = node.moving.target
            own, others = self._place(node, node), self._others(node)
            if node.version != self._version:
                seen = others if target is None else as_claimed(node.name, others)
                placement = Placement(own, seen, self.sizes, node.room)
                node.plan = placement.best_move() if target is None else placement.judge(target)
                node.version = self._version
            contested = target is not None and is_contested(own, target, others)
            step = node.moving.look(node.plan, quiet=True, contested=contested, now=now)
            if step in (Step.CLAIM, Step.WITHDRAW):
                self._version += 1
            if target is not None and step is Step.CHECK and self._is_held_by_others(node):
                node.held, node.plan = target, None
                node.moving = Moving(self.timings, self.draw.random, moved_at=now)
                self.moves += 1
                self._version += 1

    def _is_held_by_others(self, node: SimNode) -> bool:
        target = node.moving.target
        stays = [each for each in self.nodes if each is not node and each.moving.target is None]
        held = {layer for each in stays for layer in each.held}
        return target is not None and set(node.held) - set(target) <= held

    def _others(self, node: SimNode) -> list[Place]:
        return [self._place(each, node) for each in self.nodes if each is not node]

    def _place(self, node: SimNode, seen_by: SimNode) -> Place:
        return Place(
            node.name,
            node.held,
            1e3 * node.factor * self.costs.layer[0],
            2e3 * node.way(seen_by),
            node.moving.target,
            node.moving.target is not None,
        )


@dataclass
class Outcome:
    """What the data plane did."""

    rate: float
    """Tokens a second."""
    latencies: list[float]
    """Seconds between two tokens of a session."""


@dataclass(eq=False)
class _Session:
    path: list[tuple[SimNode, range]]
    place: int = 0
    left: int = 0
    began: float = 0.0
    """When its token began."""
    arrived: float = 0.0
    """When it came to the node where it is."""


class DataPlane:
    """Sessions that each compute a token after another, in virtual time."""

    def __init__(self, network: Network, sessions: int, tokens: int, seed: int) -> None:
        """``tokens`` are those of a session, after which another one begins elsewhere."""
        self._network, self._tokens, self._draw = network, tokens, random.Random(seed)  # noqa: S311 - a simulation
        self._costs, self._layers = network.costs, network.layers
        self._drivers = [node for node in network.nodes if 0 in node.held]
        self._events: list[tuple[float, int, SimNode | None, _Session | None]] = []
        self._order = itertools.count()
        self._waiting: dict[SimNode, list[_Session]] = defaultdict(list)
        self._computing: dict[SimNode, list[_Session]] = {}
        self._believed: dict[tuple[SimNode, SimNode], float] = {}
        self._load: dict[tuple[SimNode, SimNode], int] = defaultdict(int)
        self._done: list[tuple[float, float]] = []
        for _ in range(sessions):
            self._begin(0.0)

    def run(self, warm_s: float, measured_s: float) -> Outcome:
        """Run, and measure after ``warm_s`` seconds."""
        end = warm_s + measured_s
        while self._events and self._events[0][0] < end:
            now, _, node, session = heapq.heappop(self._events)
            if session is not None:
                self._arrive(session, now)
            elif node is not None:
                self._finish(node, now)
        latencies = [took for at, took in self._done if at >= warm_s]
        return Outcome(len(latencies) / measured_s, latencies)

    def _begin(self, now: float) -> None:
        driver = self._draw.choice(self._drivers)
        path = [(driver, driver.held)]
        if driver.held.stop < self._layers:
            by_name = {node.name: node for node in self._network.nodes if node is not driver}
            holders = [self._holder(driver, node) for node in by_name.values()]
            found = choose_path(holders, driver.held.stop, self._layers) or ()
            path += [(by_name[hop.node_id], range(hop.first, hop.last + 1)) for hop in found]
        for node, _ in path[1:]:
            self._load[driver, node] += 1
        session = _Session(path, left=self._tokens, began=now)
        self._push(now, None, session)

    def _holder(self, driver: SimNode, node: SimNode) -> Holder:
        known = self._believed.get((driver, node))
        typical = 1e3 * self._costs.layer[0]
        load = self._load[driver, node]
        latency_ms = 2e3 * driver.way(node)
        layer_ms = typical if known is None else 1e3 * known
        return Holder(node.name, node.held.start, node.held.stop - 1, latency_ms, load, layer_ms)

    def _push(self, at: float, node: SimNode | None, session: _Session | None) -> None:
        heapq.heappush(self._events, (at, next(self._order), node, session))

    def _arrive(self, session: _Session, now: float) -> None:
        node, _ = session.path[session.place]
        session.arrived = now
        self._waiting[node].append(session)
        self._start(node, now)

    def _start(self, node: SimNode, now: float) -> None:
        waiting = self._waiting[node]
        if node in self._computing or not waiting:
            return
        first = waiting[0].path[waiting[0].place][1]
        batch = [each for each in waiting if each.path[each.place][1] == first][:ROWS_AT_MOST]
        self._waiting[node] = [each for each in waiting if each not in batch]
        self._computing[node] = batch
        last = first.stop == self._layers
        took = node.factor * self._costs.step(len(first), len(batch), last=last)
        self._push(now + took, node, None)

    def _finish(self, node: SimNode, now: float) -> None:
        for session in self._computing.pop(node):
            driver = session.path[0][0]
            if node is not driver:
                layers = len(session.path[session.place][1])
                self._believe(driver, node, (now - session.arrived) / layers)
            session.place += 1
            if session.place < len(session.path):
                following = session.path[session.place][0]
                self._push(now + node.way(following) + self._costs.hop / 2, None, session)
                continue
            # The last holder answers the driver straight (decision 0219).
            way = node.way(driver) + self._costs.hop / 2 if node is not driver else 0.0
            self._token(session, now + way)
        self._start(node, now)

    def _token(self, session: _Session, now: float) -> None:
        self._done.append((now, now - session.began))
        session.left -= 1
        if session.left:
            session.place, session.began = 0, now
            self._push(now, None, session)
            return
        for node, _ in session.path[1:]:
            self._load[session.path[0][0], node] -= 1
        self._begin(now)

    def _believe(self, driver: SimNode, node: SimNode, layer_s: float) -> None:
        known = self._believed.get((driver, node), layer_s)
        self._believed[driver, node] = known + NEWEST * (layer_s - known)


def best_rate(
    held: Sequence[range], costs_of: Sequence[float], layers: int, error: float = 0.1
) -> float:
    """Positions a second that pass the layers at most, however they are routed.

    ``costs_of`` has the seconds of a position in a layer of each node. A hop may begin anywhere in
    a node's layers and ends with them, as in the node. Within ``error`` of the best (Garg and
    Könemann's method for packing: lengths of nodes grow with what flows through them).
    """
    lengths = [1.0] * len(held)
    flow = 0.0
    used = [0.0] * len(held)
    rounds = math.ceil(len(held) * math.log(len(held) + 2) / error**2)
    stops = sorted({each.stop for each in held}, reverse=True)
    for _ in range(rounds):
        best: dict[int, tuple[float, tuple[tuple[int, int], ...]]] = {layers: (0.0, ())}
        for start in (*(stop for stop in stops if stop < layers), 0):
            ways = []
            for n, each in enumerate(held):
                rest = best.get(each.stop)
                if start in each and rest is not None:
                    count = each.stop - start
                    ways.append((rest[0] + lengths[n] * count * costs_of[n], n, count, rest[1]))
            if ways:
                length, n, count, path = min(ways)
                best[start] = length, ((n, count), *path)
        if 0 not in best:
            return 0.0
        path = best[0][1]
        amount = min(1 / (count * costs_of[n]) for n, count in path)
        flow += amount
        for n, count in path:
            share = amount * count * costs_of[n]
            used[n] += share
            lengths[n] *= 1 + error * share
    return flow / max(used)


def best_placement(
    rooms: Sequence[int], costs_of: Sequence[float], layers: int
) -> tuple[float, list[range]]:
    """The best rate of all placements, by trying each, and one that has it."""
    choices = [
        [range(a, b) for a in range(layers) for b in range(a + 1, min(a + room, layers) + 1)]
        for room in rooms
    ]
    best, found = 0.0, [range(0)] * len(rooms)
    seen: set[tuple[tuple[float, range], ...]] = set()
    for held in itertools.product(*choices):
        if len({layer for each in held for layer in each}) < layers:
            continue
        # Nodes that are equally quick may change their places.
        key = tuple(sorted(zip(costs_of, held, strict=True), key=_order))
        if key in seen or _bound(held, costs_of, layers) <= best:
            continue
        seen.add(key)
        rate = best_rate(held, costs_of, layers)
        if rate > best:
            best, found = rate, list(held)
    return best, found


def _order(place: tuple[float, range]) -> tuple[float, int, int]:
    return place[0], place[1].start, place[1].stop


def _bound(held: Sequence[range], costs_of: Sequence[float], layers: int) -> float:
    """No routing is better: what could pass each layer if its holders did nothing else."""
    return min(
        sum(1 / cost for each, cost in zip(held, costs_of, strict=True) if layer in each)
        for layer in range(layers)
    )
