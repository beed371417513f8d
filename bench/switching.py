"""Streams while a node switches its weights: ``python -m bench.switching`` (decision 0225).

Two nodes train alone, with the same settings, in rounds of one step; one serves the weights of each
round (``training.serve`` = latest), the other none of them. ``--clients`` clients stream from each
in turn, so that machine and load are the same. Figures: streams that failed or ended with other
weights than they began with, the longest pause between two tokens of a stream, and the switches
meanwhile. With ``--layers 0-3 4-7`` each of the two is a pipeline of nodes with these layers
(decision 0246), in rounds of ten steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import trio

from bench.http import Load, Node
from bench.node_process import RunningNode, running_node
from bench.training_nodes import write_text

OUT = Path(__file__).parent / "out" / "switching.json"
PROMPT = "Once upon a time there was a small machine. "
DOCUMENTS = 400
WITHIN_S = 900.0


@dataclass
class Figures:
    """The samples of one node."""

    gaps_ms: list[float] = field(default_factory=list)
    """The longest pause between two tokens of each stream."""
    failed: list[str] = field(default_factory=list)
    streams: int = 0
    tokens: int = 0
    seconds: float = 0.0
    switches: int = 0


def switches_of(node: RunningNode) -> int:
    """How often a node has switched since its start."""
    request = urllib.request.Request(  # noqa: S310 - our own node
        f"{node.url}/metrics", headers={"Authorization": f"Bearer {node.token}"}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        lines = answer.read().decode().splitlines()
    name = "meshnode_version_switches_total "
    return int(float(next(line for line in lines if line.startswith(name)).split()[1]))


async def read_streams(running: RunningNode, load: Load, figures: Figures) -> None:
    """Let all clients stream at once, and add what they have seen."""
    node = Node(running.url, running.token)
    begun, before = trio.current_time(), switches_of(running)

    async def read() -> None:
        try:
            arrivals = [at async for at in node.stream(load)]
        except (SystemExit, OSError) as failure:
            figures.failed.append(str(failure))
            return
        figures.streams += 1
        figures.tokens += len(arrivals)
        if len(arrivals) > 1:
            gaps = (late - early for early, late in pairwise(arrivals))
            figures.gaps_ms.append(1e3 * max(gaps))

    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            for _ in range(load.streams):
                nursery.start_soon(read)
    figures.seconds += trio.current_time() - begun
    figures.switches += switches_of(running) - before


def wait_trained(running: RunningNode) -> None:
    """Wait until the node has kept the weights of a round."""
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        with urllib.request.urlopen(f"{running.url}/api/v1/status") as answer:  # noqa: S310
            if json.load(answer)["training"]["epoch"]:
                return
        time.sleep(0.5)
    raise SystemExit("the node does not train")


@contextmanager
def trained(layers: Sequence[str], **settings: str) -> Iterator[RunningNode]:
    """Run a node that trains alone, or a pipeline of nodes with these layers: its driver."""
    with ExitStack() as stack:
        first = ("--layers", layers[0]) if layers else ()
        driver = stack.enter_context(running_node("", 1, *first, **settings))
        for held in layers[1:]:
            joining = ("--layers", held, "--tracker", driver.url)
            stack.enter_context(running_node("", 1, *joining, **settings))
        yield driver


async def measure(
    still: RunningNode, changing: RunningNode, load: Load, rounds: int
) -> tuple[Figures, Figures]:
    """Measure both nodes in turn."""
    without, beside = Figures(), Figures()
    for number in range(rounds):
        for running, figures in ((still, without), (changing, beside)):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            await read_streams(running, load, figures)
    return without, beside


def main() -> None:
    """Measure, print the figures side by side, and write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", nargs="*", default=[])
    options = parser.parse_args()
    load, before = Load(options.clients, options.tokens, PROMPT), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        write_text(text, DOCUMENTS)
        settings = {
            "MESHNODE_TRAINING_ENABLED": "true",
            "MESHNODE_TRAINING_TEXT": str(text),
            "MESHNODE_TRAINING_DILOCO_STEPS": "10" if options.layers else "1",
            "MESHNODE_TRAINING_BATCH_SIZE": "1",
        }
        still = trained(options.layers, **settings, MESHNODE_TRAINING_SERVE="off")
        changing = trained(options.layers, **settings, MESHNODE_TRAINING_SERVE="latest")
        with still as first, changing as second:
            wait_trained(first)
            wait_trained(second)
            without, beside = trio.run(measure, first, second, load, options.rounds)
    if without.switches or not beside.switches:
        raise SystemExit("a node switched that should not, or did not that should")
    rows = [
        ("streams", float(without.streams), float(beside.streams)),
        ("failed streams", float(len(without.failed)), float(len(beside.failed))),
        ("switches meanwhile", float(without.switches), float(beside.switches)),
        (
            "longest pause of a stream, median, ms",
            statistics.median(without.gaps_ms),
            statistics.median(beside.gaps_ms),
        ),
        ("longest pause of all streams, ms", max(without.gaps_ms), max(beside.gaps_ms)),
        (
            "tokens/s of all streams",
            without.tokens / without.seconds,
            beside.tokens / beside.seconds,
        ),
    ]
    print(f"{'':40} {'off':>9} {'latest':>9}")
    for name, off, latest in rows:
        print(f"{name:40} {off:9.1f} {latest:9.1f}")
    print(f"load before {before:.2f}, {os.cpu_count()} processors, {load.streams} clients at once")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"load_before": before, "rows": rows}, indent=1) + "\n")
    if beside.failed:
        raise SystemExit(f"streams failed: {beside.failed[0]}")


if __name__ == "__main__":
    main()
