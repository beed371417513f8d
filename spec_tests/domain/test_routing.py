"""The path over layer holders is the cheapest, complete and deterministic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.reputation import Standing
from meshnode.domain.routing import (
    Holder,
    Hop,
    choose_path,
    is_worth_leaving,
    longest_run,
    missing_layers,
    spell_layers,
)

LAYERS = 6


@st.composite
def networks(draw: st.DrawFn) -> list[Holder]:
    """Up to six holders with random layers, latencies and loads, which may overlap."""
    count = draw(st.integers(0, 6))
    holders = []
    for index in range(count):
        first = draw(st.integers(0, LAYERS - 1))
        # A holder may claim more layers than the model has; paths must end at the last layer.
        last = draw(st.integers(first, LAYERS + 1))
        latency = draw(st.sampled_from([0.0, 0.5, 3.0, 40.0]))
        load = draw(st.integers(0, 8))
        holders.append(Holder(f"{index:02}", first, last, latency, load))
    return holders


def all_paths(holders: Sequence[Holder], layer: int) -> Iterator[tuple[Hop, ...]]:
    """Every path that covers the layers from ``layer`` on, with hops of any length."""
    if layer == LAYERS:
        yield ()
        return
    for holder in holders:
        if holder.first <= layer <= holder.last:
            for last in range(layer, min(holder.last, LAYERS - 1) + 1):
                for rest in all_paths(holders, last + 1):
                    yield (Hop(holder.node_id, layer, last), *rest)


def cost(path: Sequence[Hop], holders: Sequence[Holder]) -> float:
    by_id = {holder.node_id: holder for holder in holders}
    return sum(by_id[hop.node_id].cost_ms(hop.last - hop.first + 1) for hop in path)


@given(networks(), st.integers(0, LAYERS - 1), st.sets(st.sampled_from(["00", "01", "02"])))
def test_a_path_is_the_cheapest_of_all(
    holders: list[Holder], first: int, excluded: set[str]
) -> None:
    path = choose_path(holders, first, LAYERS, excluded)
    usable = [holder for holder in holders if holder.node_id not in excluded]
    costs = [cost(other, usable) for other in all_paths(usable, first)]
    if path is None:
        assert costs == []
        assert missing_layers(holders, first, LAYERS, excluded)
        return
    assert missing_layers(holders, first, LAYERS, excluded) == ()
    assert cost(path, usable) == pytest.approx(min(costs))
    # The path covers each layer once, at a node that holds it, and visits no node twice.
    covered = [layer for hop in path for layer in range(hop.first, hop.last + 1)]
    assert covered == list(range(first, LAYERS))
    by_id = {holder.node_id: holder for holder in usable}
    for hop in path:
        assert by_id[hop.node_id].first <= hop.first <= hop.last <= by_id[hop.node_id].last
    assert len({hop.node_id for hop in path}) == len(path)


@given(networks(), st.randoms(use_true_random=False))
def test_the_order_of_the_holders_does_not_matter(
    holders: list[Holder], order: random.Random
) -> None:
    shuffled = list(holders)
    order.shuffle(shuffled)
    assert choose_path(holders, 0, LAYERS) == choose_path(shuffled, 0, LAYERS)


def test_latency_load_and_hops_are_weighed() -> None:
    near, far = Holder("near", 4, 7, 0.2), Holder("far", 4, 7, 9.0)
    assert choose_path([far, near], 4, 8) == (Hop("near", 4, 7),)
    busy = Holder("near", 4, 7, 0.2, load=100)
    assert choose_path([far, busy], 4, 8) == (Hop("far", 4, 7),)
    halves = [Holder("a", 4, 5, 0.2), Holder("b", 6, 7, 0.2)]
    assert choose_path([*halves, Holder("c", 4, 7, 0.4)], 4, 8) == (Hop("c", 4, 7),)


def test_a_hop_begins_in_the_middle_of_what_its_holder_has() -> None:
    holders = [Holder("a", 0, 4), Holder("b", 3, 7)]
    assert choose_path(holders, 2, 8) == (Hop("a", 2, 4), Hop("b", 5, 7))


def test_standing_comes_before_cost() -> None:
    quick = Holder("quick", 4, 7, 0.1, layer_ms=0.1, standing=Standing.NEWCOMER)
    slow = Holder("slow", 4, 7, 90.0, load=50, layer_ms=900.0)
    assert choose_path([quick, slow], 4, 8) == (Hop("slow", 4, 7),)
    worse = replace(slow, standing=Standing.DISTRUSTED)
    assert choose_path([quick, worse], 4, 8) == (Hop("quick", 4, 7),)
    # Many newcomers are better than one distrusted holder, which is better than none.
    many = [replace(quick, node_id=f"{layer}", first=layer, last=layer) for layer in range(4, 8)]
    assert choose_path([worse, *many], 4, 8) == tuple(Hop(f"{n}", n, n) for n in range(4, 8))
    assert choose_path([worse], 4, 8) == (Hop("slow", 4, 7),)


@pytest.mark.parametrize(
    ("position_ms", "other_ms", "length", "left", "worth"),
    [
        (4000.0, 20.0, 10, 30, True),
        (4000.0, 20.0, 10, 0, False),
        (4000.0, 1000.0, 1000, 100, False),
        (60.0, 1.0, 10, 100, True),
        (40.0, 1.0, 10, 100, False),
        (250.0, 100.0, 10, 1000, False),
    ],
)
def test_a_slow_path_is_left_if_that_saves_more_than_the_replay(
    position_ms: float, other_ms: float, length: int, left: int, worth: bool
) -> None:
    assert is_worth_leaving(position_ms, other_ms, length, left) is worth


def test_nothing_is_left_to_cover() -> None:
    assert choose_path([], 8, 8) == ()


@pytest.mark.parametrize(
    ("layers", "run"),
    [
        ((), range(0)),
        ((3,), range(3, 4)),
        ((4, 5, 6), range(4, 7)),
        ((0, 1, 4, 5, 6), range(4, 7)),
        ((6, 0, 1, 7), range(2)),
        ((2, 2, 3), range(2, 4)),
    ],
)
def test_the_longest_run(layers: tuple[int, ...], run: range) -> None:
    assert longest_run(layers) == run


@pytest.mark.parametrize(
    ("layers", "words"), [((), ""), ((2,), "2"), ((2, 4, 5, 6, 7), "2, 4-7"), ((0, 1), "0-1")]
)
def test_layers_in_words(layers: tuple[int, ...], words: str) -> None:
    assert spell_layers(layers) == words
