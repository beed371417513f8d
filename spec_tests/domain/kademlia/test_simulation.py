"""The simulation in ``bench/`` is deterministic, and a small network meets its target."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from bench.dht import TARGET_PERCENT, Experiment, Figures, charts, record_overhead, table, weigh
from bench.plot import render
from meshnode.domain.kademlia.records import OVERHEAD_BYTES


def repeatable(figures: Figures) -> Figures:
    return replace(figures, cpu_seconds=0, kib_per_node_mean=0, kib_per_node_max=0)


def test_the_same_seed_gives_the_same_figures() -> None:
    first, second = (Experiment(20, seed=7, refresh=True, lookups=40).run() for _ in range(2))
    assert repeatable(first) == repeatable(second)
    assert first.node_success_percent >= TARGET_PERCENT
    assert first.record_success_percent >= TARGET_PERCENT
    assert first.replaced == 4


def test_the_figures_are_shown_as_a_table_and_a_plot() -> None:
    runs = [Experiment(size, seed=1, refresh=False, lookups=40).run() for size in (10, 20)]
    assert len(table(runs).splitlines()) == 4
    ET.fromstring(render(charts(runs)))  # noqa: S314 - written by us a moment ago


def test_records_are_charged_what_they_take() -> None:
    # From half of it to double: the true figure differs between versions of Python.
    assert OVERHEAD_BYTES / 2 < record_overhead(2000) < 2 * OVERHEAD_BYTES


def test_shared_objects_are_weighed_once() -> None:
    shared = "x" * 1000
    assert weigh([shared, shared]) < 2 * weigh(shared)
    assert weigh([shared]) > weigh(shared)
