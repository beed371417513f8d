"""Placement and routing of 64 simulated nodes in virtual time, beside the best that is possible.

``python -m bench placement`` takes some minutes. First it measures on this machine: the steps of
layers and head of a random model of 134 million parameters, by one thread, for several numbers of
sessions, and one hop between two real nodes (``bench.hop``). Nodes take these times, multiplied by
how much slower they are than this machine: by 1, 2 or 4. Those factors, memory for 3 to 8 of 80
layers, and up to 40 ms from one end to the other are assumed.

Small cases: four nodes and six layers. What nodes choose that join one after another, and then move
until nothing is worth it, is compared with the best of all placements (each is tried), by the
tokens a second with the best routing; and both, by the simulation with our routing.

64 nodes: tokens a second against a bound that no placement can exceed (every node computes all
the time, and no layer in vain), before and after moves, and under churn: every five minutes of an
hour four nodes that are near each other die, and 37.5 minutes later four new ones join,
with moves and without, in six such hours.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from functools import partial

import torch
import trio

from bench.hop import hop_ms
from bench.node_process import running_node
from bench.placement_network import Costs, DataPlane, Network, Outcome, best_placement, best_rate
from bench.random_model import CONFIG, THREADS, random_model
from bench.table import BenchRow, percentile
from bench.virtual_stages import least
from meshnode.domain.moving import MoveTimings
from meshnode.model.engine import Engine
from meshnode.model.loading import load_model

ROWS = (1, 2, 4, 8, 16, 32)
POSITIONS = 64
REPEATS = 8
NODES, LAYERS, SPREAD_S = 64, 80, 0.028
FACTORS, ROOMS = (1.0, 2.0, 4.0), (3, 4, 5, 6, 8)
SMALL_NODES, SMALL_LAYERS, SMALL_CASES = 4, 6, 8
BATCH = 3
"""The index of the number of sessions, 8, whose steps give the cost of a position."""
SESSIONS, TOKENS, HOURS = 256, 64, 6
WARM_S, MEASURED_S = 10.0, 10.0
CHURN_S, EVERY_S, AWAY_S, SITE = 3600.0, 300.0, 2250.0, 4
LOOK_S = 15.0
TIMINGS = MoveTimings(look_s=LOOK_S)
STILL = MoveTimings(look_s=LOOK_S, relief_s=1e9, speed_s=1e9)
SMALL_TARGET = 0.8


def run() -> list[BenchRow]:
    """Measure, and then simulate."""
    costs = measured()
    return [*small_cases(costs), *_many(costs), *_churn(costs)]


def measured() -> Costs:
    """What steps and hops take on this machine."""
    with random_model() as directory:
        model = load_model(directory, threads=1)
        engine = Engine(model.decoder, max(ROWS))
        last = CONFIG.num_layers
        middle, end = (_steps(engine, range(a, b)) for a, b in ((4, 8), (last - 4, last)))
        del engine, model
        with running_node(str(directory), THREADS, "--layers", "4-7") as holder:
            hop_s = trio.run(partial(hop_ms, holder, line=True)) / 1e3
    layer = tuple(each / 4 for each in middle)
    head = tuple(max(0.0, b - a) for a, b in zip(middle, end, strict=True))
    print(f"ms of a layer for {ROWS} sessions: {_ms(layer)}; of the head: {_ms(head)}")
    print(f"ms of a hop, without computation: {1e3 * hop_s:.2f}")
    return Costs(ROWS, layer, head, hop_s)


def _steps(engine: Engine, layers: range) -> list[float]:
    shards = [engine.shard(layers, POSITIONS + len(ROWS) * REPEATS + 1) for _ in range(max(ROWS))]
    for shard in shards:
        engine.extend(shard, torch.randn(1, POSITIONS, CONFIG.hidden_size))
    one = torch.randn(1, 1, CONFIG.hidden_size)
    steps: list[Callable[[], object]] = [
        partial(engine.step, shards[:rows], [one] * rows) for rows in ROWS
    ]
    return [least(step) for step in steps]


def small_cases(costs: Costs) -> list[BenchRow]:
    """Cases in which every placement can be tried."""
    rates: list[float] = []
    simulated: list[float] = []
    for seed in range(SMALL_CASES):
        draw = random.Random(seed)  # noqa: S311 - a simulation
        factors = [draw.choice(FACTORS) for _ in range(SMALL_NODES)]
        rooms = [draw.choice((2, 3, 4)) for _ in range(SMALL_NODES)]
        # Four nodes with room for two layers each do hold six; fewer need not.
        network = Network(SMALL_LAYERS, costs, draw, TIMINGS, SPREAD_S)
        _join(network, factors, rooms)
        _settle(network, 2 * 3600.0)
        costs_of = [costs.layer[BATCH] * factor / ROWS[BATCH] for factor in factors]
        mine = best_rate([node.held for node in network.nodes], costs_of, SMALL_LAYERS)
        best, held = best_placement(rooms, costs_of, SMALL_LAYERS)
        rates.append(mine / best)
        if network.short:
            simulated.append(0.0)
            continue
        ours = DataPlane(network, 16, TOKENS, seed).run(WARM_S, MEASURED_S)
        for node, each in zip(network.nodes, held, strict=True):
            node.held = each
        theirs = DataPlane(network, 16, TOKENS, seed).run(WARM_S, MEASURED_S)
        simulated.append(ours.rate / theirs.rate)
    name = f"{SMALL_NODES} nodes, {SMALL_LAYERS} layers, {SMALL_CASES} cases"
    return [
        _share(f"{name}: best routing", rates, SMALL_TARGET),
        _share(f"{name}: our routing", simulated, SMALL_TARGET),
    ]


def _share(name: str, shares: Sequence[float], target: float) -> BenchRow:
    middle = statistics.median(shares)
    note = f"least {min(shares):.2f}, largest {max(shares):.2f}"
    return BenchRow(name, middle, 1.0, middle, target, "of best", note)


def _join(network: Network, factors: Sequence[float], rooms: Sequence[int]) -> None:
    for factor, room in zip(factors, rooms, strict=True):
        network.join(factor, room, 0.0)


def _settle(network: Network, seconds: float) -> None:
    now = 0.0
    while now < seconds:
        now += LOOK_S
        network.look(now)


def _network(costs: Costs, timings: MoveTimings, seed: int) -> Network:
    draw = random.Random(seed)  # noqa: S311 - a simulation
    network = Network(LAYERS, costs, draw, timings, SPREAD_S)
    _join(
        network,
        [draw.choice(FACTORS) for _ in range(NODES)],
        [draw.choice(ROOMS) for _ in range(NODES)],
    )
    return network


def _bound(network: Network) -> float:
    """Tokens a second if every node computed all the time, with the largest batches."""
    costs = network.costs
    token = LAYERS * costs.layer[-1] / ROWS[-1] + costs.head[-1] / ROWS[-1]
    return sum(1 / node.factor for node in network.nodes) / token


def _many(costs: Costs) -> list[BenchRow]:
    network = _network(costs, TIMINGS, 1)
    bound = _bound(network)
    joined = _flow(network)
    first = DataPlane(network, SESSIONS, TOKENS, 1).run(WARM_S, MEASURED_S)
    _settle(network, 2 * 3600.0)
    moved = _flow(network)
    after = DataPlane(network, SESSIONS, TOKENS, 1).run(WARM_S, MEASURED_S)
    name = f"{NODES} nodes, {SESSIONS} sessions"
    best = f"best routing: {joined:.3g} as joined, {moved:.3g} after {network.moves} moves"
    return [
        BenchRow(
            f"{name}: vs a bound", after.rate, bound, after.rate / bound, None, "token/s", best
        ),
        BenchRow(
            f"{name}: vs as joined", after.rate, first.rate, after.rate / first.rate, 1.0, "token/s"
        ),
        _latency(f"{name}: token, vs as joined", after, first),
    ]


def _flow(network: Network) -> float:
    """Tokens a second of the placement with the best routing, in batches of eight."""
    costs_of = [network.costs.layer[BATCH] * node.factor / ROWS[BATCH] for node in network.nodes]
    return best_rate([node.held for node in network.nodes], costs_of, LAYERS, error=0.2)


def _latency(name: str, ours: Outcome, other: Outcome) -> BenchRow:
    mine, theirs = (1e3 * statistics.median(each.latencies) for each in (ours, other))
    high = (1e3 * percentile(each.latencies, 95) for each in (ours, other))
    note = "p95 " + " and ".join(f"{each:.0f}" for each in high)
    return BenchRow(name, mine, theirs, theirs / mine, None, "ms", note)


def _rates(name: str, ours: float, other: float, target: float | None, note: str = "") -> BenchRow:
    return BenchRow(name, ours, other, ours / other, target, "token/s", note)


def _churn(costs: Costs) -> list[BenchRow]:
    """The same nodes die and join, with moves and without, in some hours that chance made."""
    hours = [
        [_an_hour(costs, timings, seed) for seed in range(HOURS)] for timings in (TIMINGS, STILL)
    ]
    ours, still = (
        Outcome(
            statistics.mean(each.rate for outcomes, _, _ in some for each in outcomes),
            [took for outcomes, _, _ in some for each in outcomes for took in each.latencies],
        )
        for some in hours
    )
    answered, without = (1 - statistics.mean(broken for _, broken, _ in some) for some in hours)
    name = f"{NODES} nodes, {HOURS} hours of churn"
    note = f"{sum(moves for _, _, moves in hours[0])} moves"
    return [
        _rates(f"{name}: vs no moves", ours.rate, still.rate, 1.0, note),
        _latency(f"{name}: token, vs no moves", ours, still),
        BenchRow(f"{name}: all layers held", answered, without, answered / without, 1.0, "of 1"),
    ]


def _an_hour(costs: Costs, timings: MoveTimings, seed: int) -> tuple[list[Outcome], float, int]:
    """Outcomes at six moments, the share of the time with short layers, and the moves."""
    network, fate = _network(costs, timings, seed), random.Random(seed)  # noqa: S311 - a simulation
    now, broken, outcomes = 0.0, 0.0, []
    away: list[tuple[float, int]] = []
    """When how many nodes come."""
    while now < CHURN_S:
        now += LOOK_S
        network.look(now)
        broken += LOOK_S * bool(network.short)
        if now % EVERY_S == 0:
            # A site goes: a node, and those that are nearest to it. Others come later.
            victim = fate.choice(sorted(network.nodes, key=lambda node: node.name))
            near = sorted(network.nodes, key=victim.way)[:SITE]
            for node in near:
                network.die(node)
            away.append((now + AWAY_S, len(near)))
        while away and away[0][0] <= now:
            for _ in range(away.pop(0)[1]):
                network.join(fate.choice(FACTORS), fate.choice(ROOMS), now)
        if now % (CHURN_S / 6) == 0 and not network.short:
            plane = DataPlane(network, SESSIONS, TOKENS, int(now))
            outcomes.append(plane.run(WARM_S / 2, MEASURED_S / 2))
    return outcomes, broken / now, network.moves


def _ms(times: Sequence[float]) -> str:
    return ", ".join(f"{1e3 * each:.2f}" for each in times)
