"""The DHT in a simulated network: ``python -m bench.dht [--nodes N ...] [--seed S] [--refresh]``.

The node's own core (``meshnode.domain.kademlia``) runs in networks of several sizes, in virtual
time. A network first grows by joins only. Then, during one virtual hour, a fifth of its nodes are
replaced, while random nodes look up random ids and published records. Without ``--refresh`` no
bucket is refreshed, and no node makes lookups of its own after it has joined. This is harder than
real conditions, and allows 10,000 nodes within minutes; one size also runs with refreshes for
comparison.

A node lookup succeeds if it finds the live node closest to the target. A record lookup succeeds if
it finds the value while the publisher is alive. The program prints a table and writes ``dht.json``
and ``dht.svg`` into ``bench/plots/``. The same seed gives the same figures, except seconds and
bytes.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.dht_network import Network
from bench.plot import Chart, Line, render
from bench.table import BenchRow
from meshnode.domain.kademlia.bucket import K
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import ID_BYTES, NodeId, distance, key_of
from meshnode.domain.kademlia.query import LookupResult
from meshnode.domain.kademlia.records import RecordStore

OUT = Path(__file__).parent / "plots"
SIZES = (100, 300, 1_000, 3_000, 10_000)
REFRESHED_SIZE = 1_000
GROWTH_S = 600.0
SETTLING_S = 60.0
HOUR_S = 3600.0
REPLACED_PER_HOUR = 0.2
LOOKUPS = 2_000
"""Half of them for nodes and half for records, so that one failure is 0.1 %."""
RECORDS = 200
JOINED_AFTER_S = 10.0
"""A younger node may still be joining, so it neither looks up nor has to be found."""
WEIGHED_NODES = 20
"""How many nodes have their memory measured."""
TARGET_PERCENT = 99.5


@dataclass(slots=True)
class Tally:
    """The results of all lookups of one kind."""

    succeeded: int = 0
    hops: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)

    def note(self, result: LookupResult, succeeded: bool) -> None:
        """Add the result of one lookup."""
        self.succeeded += succeeded
        self.hops.append(result.hops)
        self.messages.append(result.messages)

    @property
    def percent(self) -> float:
        """The percentage of lookups that succeeded."""
        return 100 * self.succeeded / len(self.hops)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. Messages are requests; their answers are not counted."""

    nodes: int
    refresh: bool
    seed: int
    replaced: int
    node_lookups: int
    node_success_percent: float
    closest_20_recall_percent: float
    record_lookups: int
    record_success_percent: float
    log2_nodes: float
    hops_mean: float
    hops_p99: float
    messages_per_lookup_mean: float
    messages_per_lookup_p99: float
    messages_per_record_lookup_mean: float
    messages_per_node_hour: float
    contacts_per_node: float
    kib_per_node_mean: float
    kib_per_node_max: float
    stores_refused: int
    cpu_seconds: float


class Experiment:
    """One network, through growth and an hour of churn."""

    def __init__(self, nodes: int, seed: int, refresh: bool, lookups: int = LOOKUPS) -> None:
        self._size = nodes
        self._seed = seed
        self._lookups = lookups
        self._network = Network(seed, refresh)
        self._born: dict[Contact, float] = {}
        self._publishers: dict[str, Contact] = {}
        self._found_node = Tally()
        self._found_record = Tally()
        self._replaced = 0

    def run(self) -> Figures:
        """Run the whole experiment."""
        started = time.process_time()
        network = self._network
        for number in range(self._size):
            network.after(GROWTH_S * number / self._size, self._join)
        network.run(GROWTH_S + SETTLING_S)
        for number in range(min(RECORDS, self._size)):
            self._publish(f"record {number}")
        network.run(network.now + SETTLING_S)
        begin = network.now
        before = sum(network.calls.values())
        for _ in range(round(self._size * REPLACED_PER_HOUR)):
            network.after(network.random.uniform(0, HOUR_S), self._replace)
        for number in range(self._lookups):
            look = self._look_for_record if number % 2 else self._look_for_node
            network.after(HOUR_S * number / self._lookups, look)
        network.run(begin + HOUR_S)
        calls = sum(network.calls.values()) - before
        network.run(begin + HOUR_S + SETTLING_S)
        return self._figures(calls, time.process_time() - started)

    # Events

    def _join(self) -> None:
        contact = self._network.join()
        self._born[contact] = self._network.now

    def _replace(self) -> None:
        leaving = self._network.anybody()
        self._network.remove(leaving)
        del self._born[leaving]
        self._replaced += 1
        self._join()

    def _publish(self, name: str) -> None:
        publisher = self._network.anybody()
        self._publishers[name] = publisher
        self._network.announce(publisher, key_of(name), f"value of {name}")

    def _somebody(self) -> Contact:
        while True:
            contact = self._network.anybody()
            if self._network.now - self._born[contact] >= JOINED_AFTER_S:
                return contact

    def _look_for_node(self) -> None:
        network, began = self._network, self._network.now
        caller = self._somebody()
        target = NodeId(network.random.randbytes(ID_BYTES))

        def judge(result: LookupResult) -> None:
            nearest = heapq.nsmallest(
                K,
                (contact for contact in network.alive if contact != caller),
                key=lambda c: distance(c.node_id, target),
            )
            expected = [c for c in nearest if began - self._born[c] >= JOINED_AFTER_S]
            found = set(result.closest)
            self._found_node.note(result, expected[0] in found)
            self._found_node.recall.append(statistics.mean(c in found for c in expected))

        network.find(caller, target, judge)

    def _look_for_record(self) -> None:
        network = self._network
        name, publisher = network.random.choice(sorted(self._publishers.items()))
        if publisher not in network.nodes:
            return
        key = key_of(name)

        def judge(result: LookupResult) -> None:
            self._found_record.note(result, f"value of {name}" in result.values)

        network.find(self._somebody(), key, judge, for_value=True)

    # Results

    def _figures(self, calls: int, cpu_seconds: float) -> Figures:
        network, found, records = self._network, self._found_node, self._found_record
        nodes = list(network.nodes.values())
        weighed = network.random.sample(nodes, min(WEIGHED_NODES, len(nodes)))
        kib = [weigh(node) / 1024 for node in weighed]
        return Figures(
            nodes=self._size,
            refresh=network.refresh,
            seed=self._seed,
            replaced=self._replaced,
            node_lookups=len(found.hops),
            node_success_percent=round(found.percent, 2),
            closest_20_recall_percent=round(100 * statistics.mean(found.recall), 2),
            record_lookups=len(records.hops),
            record_success_percent=round(records.percent, 2),
            log2_nodes=round(math.log2(self._size), 2),
            hops_mean=round(statistics.mean(found.hops), 2),
            hops_p99=percentile(found.hops, 99),
            messages_per_lookup_mean=round(statistics.mean(found.messages), 1),
            messages_per_lookup_p99=percentile(found.messages, 99),
            messages_per_record_lookup_mean=round(statistics.mean(records.messages), 1),
            messages_per_node_hour=round(calls / self._size, 1),
            contacts_per_node=round(statistics.mean(len(node.table) for node in nodes), 1),
            kib_per_node_mean=round(statistics.mean(kib), 1),
            kib_per_node_max=round(max(kib), 1),
            stores_refused=network.calls["store refused"],
            cpu_seconds=round(cpu_seconds, 1),
        )


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that ``percent`` of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def weigh(thing: object, seen: set[int] | None = None) -> int:
    """Return the bytes of an object and of all data that it refers to, without code and types."""
    seen = set() if seen is None else seen
    if id(thing) in seen or callable(thing):
        return 0
    seen.add(id(thing))
    size = sys.getsizeof(thing)
    if isinstance(thing, dict):
        return size + sum(weigh(k, seen) + weigh(v, seen) for k, v in thing.items())
    if isinstance(thing, list | tuple | set | frozenset):
        return size + sum(weigh(part, seen) for part in thing)
    slots = [slot for cls in type(thing).__mro__ for slot in getattr(cls, "__slots__", ())]
    parts = [getattr(thing, slot) for slot in slots if hasattr(thing, slot)]
    return size + sum(weigh(p, seen) for p in [*parts, getattr(thing, "__dict__", {})])


def record_overhead(count: int = 10_000) -> float:
    """Return the bytes that a stored record takes besides its value, with ten records a sender."""
    store = RecordStore()
    empty = weigh(store)
    for number in range(count):
        key, group = key_of(str(number)), f"group {number // 10}"
        store.store(key, f"10.{number % 250}.0.1:8000", group, now=number / 10)
    size = weigh(store) - empty
    return round(size / count - statistics.mean(len(record.value) for record in store))


def table(runs: Sequence[Figures]) -> str:
    """Return the figures as a table of text."""
    head = (
        "nodes   refresh  replaced  node found  closest 20  record found  hops (p99)  log2 N"
        "  msgs/lookup (p99)  KiB/node  contacts  CPU s"
    )
    lines = [head, "-" * len(head)]
    lines += [
        f"{f.nodes:>6,}  {'yes' if f.refresh else 'no':>7}  {f.replaced:>8,}"
        f"  {f.node_success_percent:>9.2f}%  {f.closest_20_recall_percent:>9.2f}%"
        f"  {f.record_success_percent:>11.2f}%  {f.hops_mean:>5.2f} ({f.hops_p99:g})"
        f"  {f.log2_nodes:>8.2f}"
        f"  {f.messages_per_lookup_mean:>11.1f} ({f.messages_per_lookup_p99:g})"
        f"  {f.kib_per_node_mean:>9.1f}  {f.contacts_per_node:>8.1f}  {f.cpu_seconds:>5.1f}"
        for f in runs
    ]
    return "\n".join(lines)


def charts(runs: Sequence[Figures]) -> list[Chart]:
    """Return charts of hops, messages and memory over the size of the network."""
    plain = sorted((f for f in runs if not f.refresh), key=lambda f: f.nodes)
    plain = plain or list(runs)

    def line(name: str, field_name: str, dashed: bool = False) -> Line:
        return Line(name, [(f.log2_nodes, getattr(f, field_name)) for f in plain], dashed)

    halved = Line("(log2 N) / 4", [(f.log2_nodes, f.log2_nodes / 4) for f in plain], dashed=True)
    axis = "log2 of the number of nodes"
    return [
        Chart("Hops to the closest node", axis, [line("mean", "hops_mean"), halved]),
        Chart(
            "Messages per lookup",
            axis,
            [line("mean", "messages_per_lookup_mean"), line("p99", "messages_per_lookup_p99")],
        ),
        Chart("Memory per node, KiB", axis, [line("mean", "kib_per_node_mean")]),
    ]


def run() -> list[BenchRow]:
    """Measure the smaller sizes, as rows of the common table."""
    return [
        BenchRow(
            name=f"DHT lookups found, {figures.nodes:,} nodes, 20 % replaced an hour",
            ours=min(figures.node_success_percent, figures.record_success_percent),
            peer=TARGET_PERCENT,
            ratio=min(figures.node_success_percent, figures.record_success_percent)
            / TARGET_PERCENT,
            target=1.0,
            unit="%",
            note=f"{figures.hops_mean} hops, {figures.messages_per_lookup_mean} messages",
        )
        for figures in (Experiment(size, seed=1, refresh=False).run() for size in (100, 1_000))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; return 0 if the target is met, else 1."""
    parser = argparse.ArgumentParser(description="Simulate the DHT.")
    parser.add_argument(
        "--nodes", type=int, nargs="+", help=f"sizes of the networks (default: {SIZES})"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--refresh", action="store_true", help="refresh buckets at every size")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    plan = [(size, options.refresh) for size in options.nodes or SIZES]
    if not options.nodes and not options.refresh:
        plan.append((REFRESHED_SIZE, True))
    runs: list[Figures] = []
    for size, refresh in plan:
        runs.append(Experiment(size, options.seed, refresh).run())
        print(table(runs[-1:]).splitlines()[-1] if len(runs) > 1 else table(runs), flush=True)
    overhead = record_overhead()
    print(f"a stored record takes {overhead:g} bytes besides its value")
    options.out.mkdir(parents=True, exist_ok=True)
    document = {"runs": [asdict(figures) for figures in runs], "record_overhead_bytes": overhead}
    (options.out / "dht.json").write_text(json.dumps(document, indent=2) + "\n")
    (options.out / "dht.svg").write_text(render(charts(runs)))
    worst = min(min(f.node_success_percent, f.record_success_percent) for f in runs)
    return 0 if worst >= TARGET_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
