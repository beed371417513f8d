"""Serving beside training: ``python -m bench.beside_training`` (interface 1 and 2.1).

One node with the default model, started as a user would. ``--streams`` clients read SSE while
another client polls the health, in turn without and with training. ``PATCH /config`` switches
training, and sets few inner steps, so that whole rounds are measured. The number of steps shows
that the node trained. Each figure is compared with the same figure without training.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import trio

from bench.http import HEALTH_P99_MS, Load, Node, health_while
from bench.node_process import running_node
from bench.table import percentile

OUT = Path(__file__).parent / "out" / "beside_training.json"
PROMPT = "Once upon a time there was a small machine. "
SETTINGS = {"diloco_steps": 3, "batch_size": 8}
IDLE_S = 2.0
"""After this time without a step, the last one has ended."""
WITHIN_S = 600.0


@dataclass
class Figures:
    """The samples of all rounds without training, or with it."""

    health_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    """The longest pause between two tokens of each stream, including the wait for the first."""
    tokens_per_s: list[float] = field(default_factory=list)
    steps: int = 0
    outer_steps: int = 0
    seconds: float = 0.0


class JsonNode(Node):
    """A node that can also be asked for JSON."""

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request and return its JSON answer."""
        parts = [part async for part in self._exchange(method, path, body)]
        found: dict[str, Any] = json.loads(b"".join(parts))
        return found


async def gaps_and_rate(node: Node, load: Load, figures: Figures) -> None:
    """Read the streams at the same time, and add their figures."""
    begun, tokens = trio.current_time(), 0

    async def read() -> None:
        nonlocal tokens
        arrivals = [trio.current_time(), *[at async for at in node.stream(load)]]
        tokens += len(arrivals) - 1
        figures.gaps_ms.append(1e3 * max(late - early for early, late in pairwise(arrivals)))

    async with trio.open_nursery() as nursery:
        for _ in range(load.streams):
            nursery.start_soon(read)
    figures.tokens_per_s.append(tokens / (trio.current_time() - begun))


async def training_of(node: JsonNode) -> tuple[int, int]:
    """Return the number of inner and outer steps so far."""
    found = await node.ask("GET", "/api/training/global")
    return int(found["global_steps"]), int(found["diloco"]["outer_step_count"])


async def switch(node: JsonNode, *, on: bool) -> None:
    """Switch training on or off, and wait until it runs or its last step has ended."""
    await node.ask("PATCH", "/api/v1/config", {"training": {**SETTINGS, "enabled": on}})
    before, _ = await training_of(node)
    changed = trio.current_time()
    while on or trio.current_time() - changed < IDLE_S:
        await trio.sleep(0.1)
        steps, _ = await training_of(node)
        if on and steps > before:
            return
        if steps != before:
            before, changed = steps, trio.current_time()


async def measure(node: JsonNode, load: Load, rounds: int) -> tuple[Figures, Figures]:
    """Measure without and with training, in turn."""
    without, beside = Figures(), Figures()
    await gaps_and_rate(node, load, Figures())  # warm-up
    for number in range(rounds):
        for figures, on in ((without, False), (beside, True)):
            name = "beside training" if on else "alone"
            print(f"round {number + 1} of {rounds}, {name}", file=sys.stderr)
            with trio.fail_after(WITHIN_S):
                await switch(node, on=on)
            before, begun = await training_of(node), trio.current_time()

            async def streams(figures: Figures = figures) -> None:
                await gaps_and_rate(node, load, figures)

            figures.health_ms += await health_while(node, streams)
            after = await training_of(node)
            figures.steps += after[0] - before[0]
            figures.outer_steps += after[1] - before[1]
            figures.seconds += trio.current_time() - begun
    return without, beside


def rows(without: Figures, beside: Figures) -> list[tuple[str, float, float]]:
    """Return rows of a name, the figure alone, and the figure beside training."""
    health, busy = without.health_ms, beside.health_ms
    return [
        ("/health p50, ms", percentile(health, 50), percentile(busy, 50)),
        ("/health p99, ms", percentile(health, 99), percentile(busy, 99)),
        ("/health worst, ms", max(health), max(busy)),
        (
            "longest gap of a stream, median, ms",
            statistics.median(without.gaps_ms),
            statistics.median(beside.gaps_ms),
        ),
        ("longest gap of all streams, ms", max(without.gaps_ms), max(beside.gaps_ms)),
        (
            "tokens/s of all streams",
            statistics.median(without.tokens_per_s),
            statistics.median(beside.tokens_per_s),
        ),
    ]


def main() -> None:
    """Measure, print the figures side by side, and write a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    load, before = Load(options.streams, options.tokens, PROMPT), os.getloadavg()[0]
    with running_node("", options.threads, MESHNODE_TRAINING_TEXT="chain") as running:
        node = JsonNode(running.url, running.token)
        without, beside = trio.run(measure, node, load, options.rounds)
    if without.steps or not beside.steps:
        raise SystemExit("the node trained when it should not, or did not train when it should")
    found = rows(without, beside)
    print(f"{'':38} {'alone':>9} {'training':>9} {'ratio':>6}")
    for name, alone, busy in found:
        print(f"{name:38} {alone:9.1f} {busy:9.1f} {busy / alone:6.2f}")
    p99 = next(busy for name, _, busy in found if "p99" in name)
    print(f"/health p99 below {HEALTH_P99_MS:g} ms: {'met' if p99 < HEALTH_P99_MS else 'MISSED'}")
    print(
        f"meanwhile {beside.steps} inner and {beside.outer_steps} outer steps in "
        f"{beside.seconds:.0f} s; load before {before:.2f}, {os.cpu_count()} processors"
    )
    result = {
        "load_before": before,
        "processors": os.cpu_count(),
        "streams": load.streams,
        "rows": [{"name": n, "alone": a, "beside": b, "ratio": b / a} for n, a, b in found],
        "inner_steps": beside.steps,
        "outer_steps": beside.outer_steps,
        "seconds": beside.seconds,
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
