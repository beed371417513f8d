"""One round beside synchronous training: ``python -m bench.one_round`` (decision 0262).

What is lost where four replicas average what their inner steps led to, instead of averaging each
step? Every round begins with the weights that synchronous training has then; the optimizers keep
their moments, as nodes' do. Both read the same batches. It prints, after each round, the held-out
loss of synchronous training and of multiples of the replicas' mean; and after the last one, for
each kind of tensor, how the mean compares with the way of synchronous training: its length, its
cosine with that way, and the cosine of two replicas.

``--times 2`` lets the replicas take their steps at twice the rate.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from bench.diloco import joined, read_text
from bench.diloco_formats import starting_point, write_default_model
from bench.training_nodes import NODES, Plan
from meshnode.model.data import TokenData, shards_of
from meshnode.model.loading import load_model
from meshnode.model.training import Batch, InnerTrainer, Recipe, evaluate
from meshnode.services.training.learner import VALIDATION_BATCH, VALIDATION_ROWS

MULTIPLES = (0.5, 1.0, 1.5, 2.0)
KEPT = "embedding.weight"
"""The tensor that also stays at its mean while the others are multiplied."""

Weights = dict[str, Tensor]


class Replica:
    """A model that trains with an optimizer of its own."""

    def __init__(self, directory: Path) -> None:
        self._decoder = load_model(directory, trainable=True).decoder
        self._trainer = InnerTrainer(self._decoder, Recipe())

    def weights(self) -> Weights:
        """Return a copy of the weights."""
        return {name: one.detach().clone() for name, one in self._decoder.named_parameters()}

    def set(self, weights: Weights) -> None:
        """Take other weights; the optimizer keeps its moments."""
        with torch.no_grad():
            for name, one in self._decoder.named_parameters():
                one.copy_(weights[name])

    def train(self, batches: list[Batch], rate: float) -> None:
        """Take a step for each batch."""
        self._trainer.recipe = Recipe(learning_rate=rate)
        for batch in batches:
            self._trainer.step(batch)

    def loss(self, weights: Weights, held_out: list[Batch]) -> float:
        """Return the held-out loss of these weights, which it keeps."""
        self.set(weights)
        return evaluate(self._decoder, held_out).loss


def added(anchor: Weights, ways: Weights, multiple: float, kept: str = "") -> Weights:
    """Return the weights that lie a multiple of these ways from the anchor, one of them at 1."""
    return {
        name: one + (1.0 if name == kept else multiple) * ways[name] for name, one in anchor.items()
    }


def kind_of(name: str) -> str:
    """Return the name of a tensor without the number of its layer."""
    return re.sub(r"^layers\.\d+\.", "layers: ", name)


def compare(directory: Path, data: TokenData, plan: Plan, times: float) -> None:
    """Train both ways, and print what each round and each kind of tensor came to."""
    names = [f"{node:02}" for node in range(NODES)]
    parts = [
        data.batches(shards_of(name, names, data.shards), plan.batch, seed)
        for seed, name in enumerate(names)
    ]
    held_out = list(data.validation_batches(VALIDATION_BATCH, VALIDATION_ROWS))
    together, judge = Replica(directory), Replica(directory)
    replicas = [Replica(directory) for _ in names]
    heads = [f"mean x {one}" for one in MULTIPLES]
    print("| round | synchronous | " + " | ".join([*heads, f"x 2, {KEPT} x 1"]) + " |")
    for number in range(plan.rounds):
        anchor, rate = together.weights(), plan.rate_of(number)
        steps = [[next(part).batch for part in parts] for _ in range(plan.inner_steps)]
        together.train([joined(step) for step in steps], rate)
        synchronous = {name: one - anchor[name] for name, one in together.weights().items()}
        ways = []
        for place, replica in enumerate(replicas):
            replica.set(anchor)
            replica.train([step[place] for step in steps], rate * times)
            ways.append({name: one - anchor[name] for name, one in replica.weights().items()})
        mean = {name: torch.stack([way[name] for way in ways]).mean(dim=0) for name in anchor}
        made = [added(anchor, mean, one) for one in MULTIPLES] + [added(anchor, mean, 2.0, KEPT)]
        losses = [judge.loss(one, held_out) for one in (together.weights(), *made)]
        print(f"| {number + 1} | " + " | ".join(f"{loss:.4f}" for loss in losses) + " |")
    print("\n| tensors | length of the mean | its cosine | cosine of two replicas |")
    found = defaultdict[str, list[tuple[float, float, float]]](list)
    for name, way in synchronous.items():
        ratio = float(mean[name].norm() / way.norm())
        pair = cosine(ways[0][name], ways[1][name])
        found[kind_of(name)].append((ratio, cosine(mean[name], way), pair))
    for kind, rows in found.items():
        columns = zip(*rows, strict=True)
        print(f"| {kind} | " + " | ".join(f"{fmean(column):.2f}" for column in columns) + " |")


def cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of two tensors."""
    return float(torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0))


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="begin with the model in this directory")
    parser.add_argument("--text", type=Path, help="train on the files in this folder")
    parser.add_argument("--warm-up", type=int, default=800, help="steps of the model alone before")
    parser.add_argument("--steps", type=int, default=25, help="H")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="rows in a step of a replica")
    parser.add_argument("--rate", type=float, default=1e-4, help="learning rate")
    parser.add_argument("--times", type=float, default=1.0, help="the replicas' multiple of it")
    parser.add_argument("--documents", type=int, default=40_000, help="of about 100 tokens each")
    options = parser.parse_args()
    plan = Plan(options.steps, options.rounds, options.batch, options.rate, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        text, model = starting_point(options, Path(folder), write_default_model)
        compare(model, read_text(model, text), plan, options.times)


if __name__ == "__main__":
    main()
