"""The loss with each format of contributions: ``python -m bench.diloco_formats`` (decision 0190).

Four replicas train in this process, once for each format, with what nodes train with: ``Learner``
takes the inner steps, makes contributions with what earlier ones left unsent, combines them and
takes the outer step; ``Jury`` leaves copies out. What is missing are the connections between nodes,
and the opinions that they have of each other, which need liars to matter. All replicas must have
the same weights after each round.

Synchronous data parallelism, with the four batches of a step as one and the same learning rates,
has the same tokens in the same order; with ``--alone`` one of the four has a quarter of them. All
begin with the same weights, of a model that ``meshnode train`` has trained alone for a while, from
random weights. Each curve is computed by a process of its own, so that all cores have work; losses
do not depend on how busy they are.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
import trio

from bench.diloco import in_one_process, read_text
from bench.plot import Chart, Line, render
from bench.small_model import write_small_model
from bench.training_nodes import NODES, Plan, write_text
from meshnode.config import TrainingConfig
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.trend import rise
from meshnode.model.data import TokenData, shards_of
from meshnode.model.diloco import Rule
from meshnode.model.trained_model import TrainedModel
from meshnode.services.training.jury import Jury
from meshnode.services.training.learner import Learner
from meshnode.services.training.low_priority_thread import LowPriorityThread
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import Format, packing_of

OUT = Path(__file__).parent / "plots"
SHOWN = (5, 10, 15, 20)
"""Rounds in the table."""
FROM_ROUND = 5
"""The first round that counts for the greatest lag."""
SYNCHRONOUS, ALONE = "synchronous", "one of the four, alone"
SHARES = {SYNCHRONOUS: NODES, ALONE: 1}
"""How many of the four nodes' batches one step has, without rounds."""


class _Node:
    """One of the four nodes, without its connections."""

    def __init__(self, node_id: str, learner: Learner) -> None:
        self.node_id = node_id
        self.learner = learner
        self._jury = Jury(node_id, learner)
        self._rest: dict[str, torch.Tensor] = {}
        self.sent = 0
        """Bytes of all contributions."""

    async def contribution(
        self, config: TrainingConfig, names: list[str], number: int
    ) -> pb.GossipGradientRequest:
        """Take the inner steps of a round, and say what they have led to."""
        learner = self.learner
        shards = shards_of(self.node_id, names, learner.all_shards)
        await learner.rewind()
        before = learner.progress.sequences
        for _ in range(config.diloco_steps):
            await learner.step(shards, config, number)
        packing = packing_of(config.gradients, learner.model.parameters)
        frames, self._rest = await learner.contribution(packing, self._rest)
        self.sent += sum(map(len, frames.values()))
        return pb.GossipGradientRequest(
            node_id=self.node_id,
            round_id=number,
            model_hash=learner.model.anchor.model_hash,
            batch_size=learner.progress.sequences - before,
            layer_gradients=frames,
        )

    async def outer_step(self, messages: list[pb.GossipGradientRequest], number: int) -> str:
        """Apply what counts of a round; return the hash of the new weights."""
        found = await self._jury.verdict(messages)
        anchor = await self.learner.applied(found.counted)
        await self.learner.adopt(anchor, WeightsVersion(number, anchor.model_hash))
        return anchor.model_hash


async def in_rounds(
    directory: Path, data: TokenData, plan: Plan, kind: Format
) -> tuple[list[float], float]:
    """Return the held-out loss before the first round and after each, and a contribution's bytes.

    The bytes are the mean of all contributions.
    """
    thread, names = LowPriorityThread(), [f"{node:040x}" for node in range(NODES)]
    nodes = [
        _Node(
            name,
            # A learner begins its order with its seed and the number of its first round.
            Learner(TrainedModel(directory), data, thread, seed=at ^ 1, rule=Rule("trimmed_mean")),
        )
        for at, name in enumerate(names)
    ]
    losses = [await nodes[0].learner.validation_loss()]
    for number in range(1, plan.rounds + 1):
        config = TrainingConfig(
            enabled=True,
            batch_size=plan.batch,
            learning_rate=plan.rate_of(number - 1),
            diloco_steps=plan.inner_steps,
            gradients=kind.name.lower(),
            upload_mib=0.0,
            serve="off",
            exchange=False,
        )
        messages = [await node.contribution(config, names, number) for node in nodes]
        hashes = {await node.outer_step(messages, number) for node in nodes}
        if len(hashes) > 1:
            raise RuntimeError(f"the replicas have different weights after round {number}")
        losses.append(await nodes[0].learner.validation_loss())
        print(f"{kind.name.lower()}, round {number}: {losses[-1]:.4f}", file=sys.stderr, flush=True)
        if rise(losses):
            print("nodes would drop this round (decision 0226)", file=sys.stderr)
    thread.close()
    return losses, sum(node.sent for node in nodes) / plan.rounds / NODES


def curve_of(name: str, directory: Path, text: Path, plan: Plan) -> tuple[list[float], float]:
    """Return a curve, and the bytes of a contribution, 0 where there is none, with one thread."""
    torch.set_num_threads(1)
    data = read_text(directory, text)
    if name in SHARES:
        return in_one_process(directory, data, plan, SHARES[name]), 0.0
    return trio.run(partial(in_rounds, directory, data, plan, Format[name.upper()]))


def lag(losses: list[float], others: list[float], number: int) -> float:
    """Return by how much a loss after a round is above another one, relatively."""
    return losses[number] / others[number] - 1


def greatest_lag(losses: list[float], others: list[float]) -> float:
    """Return the greatest lag after any round from the fifth on."""
    return max(lag(losses, others, number) for number in range(FROM_ROUND, len(losses)))


def write_default_model(directory: Path, text: Path, steps: int) -> None:
    """Train the default model's architecture from random weights, alone, for so many steps."""
    command = [sys.executable, "-m", "meshnode", "train", "--fresh", "--text", str(text)]
    command += ["--out", str(directory), "--steps", str(steps), "--batch-size", "8"]
    command += ["--learning-rate", "2e-3", "--warmup", "50"]
    environment = {**os.environ, "MESHNODE_CPU_THREADS": str(torch.get_num_threads())}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def starting_point(
    options: argparse.Namespace, folder: Path, write: Callable[[Path, Path, int], None]
) -> tuple[Path, Path]:
    """Return the text and the model that the options name, or write them into the folder."""
    text: Path = options.text or folder / "text"
    if options.text is None:
        write_text(text, options.documents)
    model: Path = options.model or folder / "model"
    if options.model is None:
        write(model, text, options.warm_up)
    return text, model


def print_table(curves: dict[str, list[float]]) -> None:
    """Print losses and lags behind synchronous training."""
    others = curves[SYNCHRONOUS]
    last = len(others) - 1
    print("| after | " + " | ".join(curves) + " |")
    for number in (0, *(one for one in SHOWN if one < last), last):
        cells = [
            f"{curve[number]:.4f}"
            + (f" ({lag(curve, others, number):+.1%})" if curve is not others else "")
            for curve in curves.values()
        ]
        print(f"| {number} rounds | " + " | ".join(cells) + " |")
    if last >= FROM_ROUND:
        worst = [
            "" if curve is others else f"{greatest_lag(curve, others):+.1%}"
            for curve in curves.values()
        ]
        print(f"| greatest lag from round {FROM_ROUND} on | " + " | ".join(worst) + " |")


def draw(curves: dict[str, list[float]], inner_steps: int) -> str:
    """Return a chart of the held-out losses, as SVG."""
    lines = [
        Line(name, list(enumerate(curve)), dashed=name in (SYNCHRONOUS, ALONE))
        for name, curve in curves.items()
    ]
    lowest = math.floor(min(map(min, curves.values())) * 2) / 2
    title = f"Held-out loss by rounds of {inner_steps} steps"
    return render([Chart(title, "rounds", lines, lowest)])


def main() -> None:
    """Run everything, print the table, write a plot and a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="use the model of bench.diloco")
    parser.add_argument("--model", type=Path, help="begin with the model in this directory")
    parser.add_argument("--text", type=Path, help="train on the files in this folder")
    parser.add_argument("--warm-up", type=int, default=300, help="steps of the model alone before")
    parser.add_argument("--steps", type=int, default=25, help="H")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds of H steps")
    parser.add_argument("--batch", type=int, default=16, help="rows in a step of a node")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate in the first round")
    parser.add_argument(
        "--final", type=float, default=0.1, help="fraction of the rate in the last round"
    )
    parser.add_argument("--documents", type=int, default=40_000, help="of about 100 tokens each")
    parser.add_argument("--alone", action="store_true", help="also train one of the four alone")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--formats",
        nargs="+",
        default=["sparse", "float32"],
        choices=[f.name.lower() for f in Format],
    )
    options = parser.parse_args()
    load = os.getloadavg()[0]
    plan = Plan(options.steps, options.rounds, options.batch, options.rate, options.final)
    names = [*options.formats, SYNCHRONOUS, *([ALONE] if options.alone else [])]
    with tempfile.TemporaryDirectory() as folder:
        text, model = starting_point(
            options, Path(folder), write_small_model if options.small else write_default_model
        )
        sequences = len(read_text(model, text).train)
        processes = ProcessPoolExecutor(options.at_once, multiprocessing.get_context("spawn"))
        with processes:
            made = processes.map(partial(curve_of, directory=model, text=text, plan=plan), names)
            found = dict(zip(names, made, strict=True))
    curves = {name: curve for name, (curve, _) in found.items()}
    sizes = {name: size for name, (_, size) in found.items() if size}
    print_table(curves)
    result = {
        "plan": asdict(plan),
        "nodes": NODES,
        "model": "given" if options.model else "small" if options.small else "default",
        "warm_up": options.warm_up,
        "sequences": sequences,
        "load_at_start": round(load, 2),
        "bytes_of_a_contribution": {name: round(size) for name, size in sizes.items()},
        "curves": curves,
    }
    OUT.mkdir(exist_ok=True)
    name = "diloco-formats-small" if options.small else "diloco-formats"
    (OUT / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (OUT / f"{name}.svg").write_text(draw(curves, plan.inner_steps))


if __name__ == "__main__":
    main()
