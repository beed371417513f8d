"""design: paths take the least time that is expected under load, and say so (decision 0039)."""

from __future__ import annotations

import itertools
import math

import pytest

from meshnode.domain.routing import HOP_MS, LOAD_MS
from meshnode.services.pipeline.routes import RemoteHop
from spec_tests.services.pipeline.simulated import (
    FIRST,
    NORMAL_MS,
    TOTAL,
    SimulatedHolder,
    SimulatedNetwork,
)

MIDDLE = 4
LATENCY_MS = 5.0


def stage(name: str, layers: range, ms: float) -> SimulatedHolder:
    return SimulatedHolder(name, layers, ms, latency_ms=LATENCY_MS)


async def measured(network: SimulatedNetwork) -> None:
    """Have every holder measured: whoever has been is out of the way for the others."""
    everybody = list(network.book.peers)
    for index in range(2):
        network.book.peers = everybody[index::2]
        await network.generate_all(4)
    network.book.peers = everybody


def hops_of(network: SimulatedNetwork) -> list[tuple[RemoteHop, ...]]:
    """All paths that there are."""
    stages: list[list[RemoteHop]] = [[], []]
    for peer in network.book.peers:
        hop = RemoteHop(peer.node_id, peer.host, 1, peer.layers[0], peer.layers[-1])
        stages[peer.layers[0] != FIRST].append(hop)
    return list(itertools.product(*stages))


async def test_the_path_is_the_quickest_under_load(autojump_clock: object) -> None:
    network = SimulatedNetwork(
        stage("a", range(FIRST, MIDDLE), NORMAL_MS),
        stage("b", range(FIRST, MIDDLE), NORMAL_MS + 3),
        stage("c", range(MIDDLE, TOTAL), NORMAL_MS + 2),
        stage("d", range(MIDDLE, TOTAL), NORMAL_MS),
        relay=False,
    )
    await measured(network)
    taken = set()
    for _ in range(24):
        path = network.routes.choose()
        assert path is not None
        expected = {
            tuple(hop.node_id for hop in hops): network.routes.expected_ms(hops) or math.inf
            for hops in hops_of(network)
        }
        assert len(expected) == 4
        mine = tuple(hop.node_id for hop in path)
        assert expected[mine] == pytest.approx(min(expected.values()))
        # One more session makes the path slower for the next one.
        network.routes.enter(path)
        assert network.routes.expected_ms(path) == pytest.approx(expected[mine] + 2 * LOAD_MS)
        taken.add(mine)
    assert len(taken) > 1


async def test_what_is_expected_is_what_was_measured(autojump_clock: object) -> None:
    network = SimulatedNetwork(stage("a", range(FIRST, TOTAL), NORMAL_MS))
    path = network.routes.choose()
    assert path is not None
    assert network.routes.expected_ms(path) is None
    await network.generate_all(4)
    expected = network.routes.expected_ms(path)
    assert expected is not None
    assert expected == pytest.approx(NORMAL_MS + HOP_MS, rel=0.1)
