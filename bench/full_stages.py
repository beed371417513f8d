"""Many streams over two or three nodes, each with a core of its own: does every stage compute?

``python -m bench.full_stages [--model billion] [--dtype int8] [--nodes 2] [STREAMS...]`` takes ten
minutes and 6 GB of memory; a model of a billion parameters needs 4.4 GB on the disk, too. Nodes of
a pipeline compute with one thread, each bound to one core; the node with all layers has two
threads on two cores. Two drivers use the same holders: one lets positions of several streams travel
together (decision 0213), the other has ``pipeline.convoys`` off. All answer the same prompts, and
the texts must be equal.

A stage's *share* is the part of the time that its torch thread spends computing, by the node's own
count (``meshnode_engine_computing_seconds_total``), from the moment at which all streams have a
token until the first of them ends. Beside a load on the machine a step takes longer, and the share
is too high; tokens for each second of processor time, which are printed too, are right even then.

With fewer cores than nodes only the processor time says something. The busiest stage should
compute for 0.85 of the time, and two nodes reach 0.9 of the rate of one. Tokens for each second in
which a core computes for the engine say what of that the smaller steps of a pipeline allow, whose
streams go in groups by turns, if nothing else cost anything.
"""

from __future__ import annotations

import argparse
import os
import statistics
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import psutil
import torch
import trio

from bench.http import Load, Node
from bench.node_process import RunningNode, running_node
from bench.pipeline import wait_joined
from bench.random_model import BILLION, CONFIG, THREADS, random_model
from bench.table import BenchRow

STREAMS = (8, 32)
MODELS = {
    "small": (CONFIG, {2: ("0-7", "8-11"), 3: ("0-4", "5-9", "10-11")}),
    "billion": (BILLION, {2: ("0-11", "12-21"), 3: ("0-7", "8-15", "16-21")}),
}
"""Layers of about equal cost: a head costs as much as three and a half small or 1.5 large ones."""
TOKENS = 48
ROUNDS = 3
MIN_SHARE, MIN_OF_ONE = 0.85, 0.9
COMPUTING = "meshnode_engine_computing_seconds_total"
PATIENT_S = 300.0
"""How long a driver waits for a holder, and the nodes for one another, on a busy machine."""
PLACES = {
    "MESHNODE_LIMITS_MAX_BATCH": "32",
    "MESHNODE_PIPELINE_SPECULATE": "false",
    "MESHNODE_PIPELINE_CALL_S": str(PATIENT_S),
}
PLAIN = {**PLACES, "MESHNODE_PIPELINE_CONVOYS": "false"}
SHARED = {**PLACES, "MESHNODE_LIMITS_MAX_BATCH": "64"}
"""For holders: a driver's sessions end there some moments after its streams, when the other's have
begun."""
PROMPTS = tuple(f"Once upon a time there were {count} nodes that" for count in range(2, 34))


@dataclass(frozen=True)
class Sample:
    """What was seen while all streams ran."""

    rate: float
    """Tokens a second, of all streams together."""
    shares: tuple[float, ...]
    """Of each node, the part of the time in which it computed."""
    per_cpu_s: float
    """Tokens for each second of processor time of all nodes."""
    per_computing_s: float
    """Tokens for each second in which a core of a node computes for its engine."""


@dataclass(frozen=True)
class Stages:
    """The nodes of a path, the driver first."""

    nodes: tuple[RunningNode, ...]
    threads: int = 1
    """With which each computes."""

    def computing_s(self) -> list[float]:
        """The seconds in which each has computed."""
        return [_computing_s(node) for node in self.nodes]

    def cpu_s(self) -> float:
        """The processor time of all."""
        times = [psutil.Process(node.pid).cpu_times() for node in self.nodes]
        return sum(each.user + each.system for each in times)


@contextmanager
def on_core(*cores: int) -> Iterator[None]:
    """Processes that are started meanwhile stay on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core % (os.cpu_count() or 1) for core in cores})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def stages(model: Sequence[str], layers: Sequence[str]) -> Iterator[tuple[Stages, Stages]]:
    """The same holders under two drivers: with convoys, and without.

    ``model`` are a directory and the arguments that say how it is held.
    """
    directory, *held_as = model
    with ExitStack() as stack:
        with on_core(0):
            driver = running_node(directory, 1, "--layers", layers[0], *held_as, **PLACES)
            drivers = [stack.enter_context(driver)]
            joining = ("--tracker", drivers[0].url, *held_as)
            other = running_node(directory, 1, "--layers", layers[0], *joining, **PLAIN)
            drivers.append(stack.enter_context(other))
        holders = []
        for core, held in enumerate(layers[1:], 1):
            with on_core(core):
                node = running_node(directory, 1, "--layers", held, *joining, **SHARED)
                holders.append(stack.enter_context(node))
        # A holder takes sessions of strangers last, so it has to know the drivers as well.
        for each in (*drivers, *holders):
            wait_joined(each, len(layers), PATIENT_S)
        first, second = (Stages((driver, *holders)) for driver in drivers)
        yield first, second


async def sample(where: Stages, streams: int) -> Sample:
    """Run so many streams."""
    node = Node(where.nodes[0].url, where.nodes[0].token)
    times: list[list[float]] = [[] for _ in range(streams)]
    running, ended = trio.Event(), trio.Event()

    async def read(number: int) -> None:
        async for at in node.stream(Load(streams, TOKENS, PROMPTS[number])):
            times[number].append(at)
            if all(times):
                running.set()
        ended.set()

    async with trio.open_nursery() as nursery:
        for number in range(streams):
            nursery.start_soon(read, number)
        await running.wait()
        began, computed, cpu_s = trio.current_time(), where.computing_s(), where.cpu_s()
        await ended.wait()
        stopped, after, cpu_after = trio.current_time(), where.computing_s(), where.cpu_s()
    elapsed = stopped - began
    tokens = sum(began < at <= stopped for some in times for at in some)
    shares = tuple((b - a) / elapsed for a, b in zip(computed, after, strict=True))
    computing_s = sum(shares) * elapsed * where.threads
    return Sample(tokens / elapsed, shares, tokens / (cpu_after - cpu_s), tokens / computing_s)


async def texts(where: Stages, streams: int) -> list[str]:
    """What the node answers to each prompt, all at once."""
    node, found = Node(where.nodes[0].url, where.nodes[0].token), [""] * streams

    async def ask(number: int) -> None:
        found[number] = (await node.generate(Load(streams, TOKENS, PROMPTS[number])))["text"]

    async with trio.open_nursery() as nursery:
        for number in range(streams):
            nursery.start_soon(ask, number)
    return found


def run(
    counts: Sequence[int] = STREAMS,
    nodes: Sequence[int] = (2, 3),
    model: str = "small",
    dtype: str = "float32",
) -> list[BenchRow]:
    """Measure with so many nodes of a pipeline, and so many streams."""
    torch.set_num_threads(THREADS)
    rows: list[BenchRow] = []
    config, layers = MODELS[model]
    with random_model(config) as directory, on_core(0, 1):
        held = (str(directory), "--dtype", dtype)
        for count in nodes:
            with ExitStack() as stack:
                whole = running_node(held[0], THREADS, *held[1:], **PLACES)
                one = Stages((stack.enter_context(whole),), THREADS)
                ours, plain = stack.enter_context(stages(held, layers[count]))
                for streams in counts:
                    name = f"{model}, {dtype}: {count} nodes, {streams} streams"
                    rows += _compare(name, streams, one, ours, plain)
    return rows


def _compare(name: str, streams: int, one: Stages, ours: Stages, plain: Stages) -> list[BenchRow]:
    expected = trio.run(texts, one, streams)
    for each in (ours, plain):
        if trio.run(texts, each, streams) != expected:
            raise RuntimeError(f"{name}: the texts differ")
    rounds = [
        [trio.run(partial(sample, each, streams)) for each in (ours, plain, one)]
        for _ in range(ROUNDS)
    ]
    mine, theirs, alone = zip(*rounds, strict=True)
    busiest = [statistics.median(max(each.shares) for each in some) for some in (mine, theirs)]
    rate = [statistics.median(each.rate for each in some) for some in (mine, theirs, alone)]
    per_cpu = [statistics.median(each.per_cpu_s for each in some) for some in (mine, theirs, alone)]
    computing = [statistics.median(each.per_computing_s for each in some) for some in (mine, alone)]
    note = f"load {os.getloadavg()[0]:.1f}; shares " + ", ".join(
        f"{statistics.median(each.shares[stage] for each in mine):.2f}"
        for stage in range(len(ours.nodes))
    )
    enough = len(ours.nodes) <= (os.cpu_count() or 1)
    target = MIN_OF_ONE if enough and len(ours.nodes) == 2 else None
    return [
        BenchRow(
            f"{name}: busiest stage",
            busiest[0],
            busiest[1],
            busiest[0] / MIN_SHARE,
            1.0,
            "of 1",
            note,
        ),
        BenchRow(f"{name}: vs no convoys", rate[0], rate[1], rate[0] / rate[1], 1.0, "token/s"),
        BenchRow(f"{name}: vs one node", rate[0], rate[2], rate[0] / rate[2], target, "token/s"),
        BenchRow(
            f"{name}: vs no convoys, counted",
            per_cpu[0],
            per_cpu[1],
            per_cpu[0] / per_cpu[1],
            None,
            "token/CPUs",
        ),
        BenchRow(
            f"{name}: vs one node, counted",
            per_cpu[0],
            per_cpu[2],
            per_cpu[0] / per_cpu[2],
            None,
            "token/CPUs",
        ),
        BenchRow(
            f"{name}: vs one node, computing",
            computing[0],
            computing[1],
            computing[0] / computing[1],
            None,
            "token/CPUs",
        ),
    ]


def _computing_s(node: RunningNode) -> float:
    request = urllib.request.Request(  # noqa: S310 - our own node
        f"{node.url}/metrics", headers={"Authorization": f"Bearer {node.token}"}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own node
        for line in answer.read().decode().splitlines():
            if line.startswith(COMPUTING):
                return float(line.split()[1])
    raise RuntimeError("the node does not count the time in which it computes")


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    parser = argparse.ArgumentParser(prog="python -m bench.full_stages")
    parser.add_argument("streams", type=int, nargs="*", default=STREAMS)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--nodes", type=int, choices=(2, 3), help="default: 2, and then 3")
    chosen = parser.parse_args()
    nodes = (2, 3) if chosen.nodes is None else (chosen.nodes,)
    print_table({"stages": run(chosen.streams, nodes, chosen.model, chosen.dtype)})


if __name__ == "__main__":
    main()
