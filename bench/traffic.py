"""The traffic of training together: ``python -m bench.traffic`` (interface 1 and 2.3).

Four real nodes train a model, once with ``diloco_steps`` at H and once at 1, which is synchronous
data parallelism. It counts the bytes at their sockets between the ends of two rounds, per step.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from bench.plot import Chart, Line, render
from bench.small_model import write_small_model
from bench.training_nodes import NODES, Plan, train_together, write_text

OUT = Path(__file__).parent / "plots"
DOCUMENTS = 4000
"""How often they are read does not matter: the traffic does not depend on it."""


def main() -> None:
    """Run both, print the figures, write a plot and a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="use the model of bench.diloco")
    parser.add_argument("--steps", type=int, default=500, help="H")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds of H steps")
    parser.add_argument("--short-rounds", type=int, default=30, help="number of rounds of one step")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    plan = Plan(options.steps, options.rounds, 2, 1e-4, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        text, model = Path(folder) / "text", ""
        write_text(text, DOCUMENTS)
        if options.small:
            model = str(Path(folder) / "small")
            write_small_model(Path(model), text, 0)
        short, _ = train_together(
            model, text, replace(plan, inner_steps=1, rounds=options.short_rounds)
        )
        long, _ = train_together(model, text, plan)
    result = {
        "nodes": NODES,
        "model": "small" if options.small else "default",
        "load_at_start": round(load, 2),
        "bytes_a_step": {"1": short.bytes_per_step, str(plan.inner_steps): long.bytes_per_step},
        "times_fewer": short.bytes_per_step / long.bytes_per_step,
        "runs": [asdict(short), asdict(long)],
    }
    print(json.dumps(result, indent=1))
    OUT.mkdir(exist_ok=True)
    name = "traffic-small" if options.small else "traffic"
    (OUT / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    points = [(1, short.bytes_per_step / 1e3), (plan.inner_steps, long.bytes_per_step / 1e3)]
    chart = Chart("Kilobytes that a node sends for a step", "H", [Line("at the sockets", points)])
    (OUT / f"{name}.svg").write_text(render([chart]))


if __name__ == "__main__":
    main()
