"""The same loss with little traffic: ``python -m bench.diloco`` (interface 1, 2.1 and 2.3).

Four real nodes train a small model (``bench.small_model``) for twenty rounds of 500 inner steps.
They report the held-out loss of the weights that they agree on.

Two comparisons use the same tokens. One is synchronous data parallelism in this process: each step
takes the batches of the same four shards as one batch, with one step of AdamW at the same rate.
Nodes with H = 1 would give the same result, but would take hours. The other is one of the four
nodes without the others, which shows that the comparison can fail.

``--model`` trains the model in another directory, even the default model if there are hours to
spare.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from bench.plot import Chart, Line, render
from bench.small_model import write_small_model
from bench.training_nodes import NODES, Plan, train_together, write_text
from meshnode.assembly.training import ROW_TOKENS
from meshnode.model.data import TokenData, shards_of
from meshnode.model.loading import load_model
from meshnode.model.training import Batch, InnerTrainer, Recipe, evaluate
from meshnode.services.training.learner import VALIDATION_BATCH, VALIDATION_ROWS

OUT = Path(__file__).parent / "plots"


def read_text(directory: Path, text: Path) -> TokenData:
    """Return the rows of the text that nodes with this model would train on."""
    model = load_model(directory)
    length = min(ROW_TOKENS, model.card.context_length + 1)
    end = min(model.eos_token_ids, default=None)
    return TokenData.of_folder(text, model.tokenizer, length, end)


def joined(batches: list[Batch]) -> Batch:
    """Make one batch of several."""
    inputs = torch.cat([one.inputs for one in batches])
    return Batch(inputs, torch.cat([one.targets for one in batches]))


def in_one_process(directory: Path, data: TokenData, plan: Plan, shares: int) -> list[float]:
    """Return the held-out loss of one model, before the first round and after each round.

    Each step joins the batches of the first ``shares`` nodes into one batch.
    """
    model = load_model(directory, trainable=True)
    names = [f"{node:02}" for node in range(NODES)]
    shards = [shards_of(name, names, data.shards) for name in names[:shares]]
    parts = [data.batches(own, plan.batch, seed) for seed, own in enumerate(shards)]
    held_out = data.validation_batches(VALIDATION_BATCH, VALIDATION_ROWS)
    trainer = InnerTrainer(model.decoder, Recipe(learning_rate=plan.rate))
    losses = [evaluate(model.decoder, held_out).loss]
    for number in range(plan.rounds):
        trainer.recipe = Recipe(learning_rate=plan.rate_of(number))
        for _ in range(plan.inner_steps):
            trainer.step(joined([next(part).batch for part in parts]))
        losses.append(evaluate(model.decoder, held_out).loss)
        print(f"{shares} as one, round {number + 1}: {losses[-1]:.4f}", file=sys.stderr)
    return losses


def draw(curves: dict[str, list[float]], inner_steps: int) -> str:
    """Return a chart of the held-out losses, as SVG."""
    names = {
        "diloco": f"four nodes, H = {inner_steps}",
        "synchronous": "synchronous",
        "one alone": "one of the four, alone",
    }
    lines = [
        Line(names[key], list(enumerate(curve)), dashed=key != "diloco")
        for key, curve in curves.items()
    ]
    lowest = math.floor(min(map(min, curves.values())) * 2) / 2
    return render(
        [Chart(f"Held-out loss by rounds of {inner_steps} steps", "rounds", lines, lowest)]
    )


def main() -> None:
    """Run everything, print the figures, write a plot and a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="model directory (default: a new small model)")
    parser.add_argument(
        "--warm-up", type=int, default=2000, help="steps that train the small model first"
    )
    parser.add_argument("--steps", type=int, default=500, help="H")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds of H steps")
    parser.add_argument("--batch", type=int, default=16, help="rows in a step of a node")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate in the first round")
    parser.add_argument(
        "--final", type=float, default=0.1, help="fraction of the rate in the last round"
    )
    parser.add_argument(
        "--documents",
        type=int,
        default=70_000,
        help="number of documents, of about a hundred tokens each",
    )
    options = parser.parse_args()
    load = os.getloadavg()[0]
    plan = Plan(options.steps, options.rounds, options.batch, options.rate, options.final)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        write_text(text, options.documents)
        model: Path = options.model or Path(folder) / "small"
        if options.model is None:
            write_small_model(model, text, options.warm_up)
        traffic, diloco = train_together(str(model), text, plan)
        torch.set_num_threads(os.cpu_count() or 1)
        data = read_text(model, text)
        synchronous = in_one_process(model, data, plan, NODES)
        alone = in_one_process(model, data, plan, 1)
    curves = {
        "diloco": [synchronous[0], *diloco],
        "synchronous": synchronous,
        "one alone": alone,
    }
    result = {
        "plan": asdict(plan),
        "nodes": NODES,
        "documents": options.documents,
        "load_at_start": round(load, 2),
        "steps": traffic.steps,
        "seconds": round(traffic.seconds),
        "held_out_loss": {"before": synchronous[0]}
        | {name: curve[-1] for name, curve in curves.items()},
        "difference": diloco[-1] / synchronous[-1] - 1,
    }
    print(json.dumps(result, indent=1))
    OUT.mkdir(exist_ok=True)
    (OUT / "diloco.json").write_text(json.dumps(result | {"curves": curves}, indent=1) + "\n")
    (OUT / "diloco.svg").write_text(draw(curves, plan.inner_steps))


if __name__ == "__main__":
    main()
