"""Little traffic, the same loss: ``python -m bench.diloco`` (document, 1, 2.1 and 2.3).

Four real nodes train a small model (``bench.small_model``) on documents of the corpus of
``tools/default_model``, with ``diloco_steps`` at H; the learning rate falls along a cosine, set
anew for each round with ``PATCH /config``. Bytes are those of the nodes' sockets
(``network.bytes_sent`` in ``/metrics``), between the ends of two rounds, over the steps in between;
they stand beside those of the same nodes with H at 1, which is synchronous data parallelism.

The loss at equal tokens is compared with synchronous data parallelism in this process: each step
the same four shards' batches as one, and one step of AdamW at the same rate. Nodes at H = 1 would
come to that, but would take hours over it. That the comparison can fail is seen at the third curve:
one of the four, which never hears of the others.

``--model`` takes another model's directory, as it is: the default one's too, given the hours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench.node_process import RunningNode, running_node
from bench.plot import Chart, Line, render
from bench.small_model import write_small_model
from meshnode.assembly.network import ROW_TOKENS
from meshnode.model.data import TokenData, shards_of
from meshnode.model.loading import load_model
from meshnode.model.training import Batch, Recipe, Trainer, evaluate
from tools.default_model.corpus import document

OUT = Path(__file__).parent / "plots"
NODES = 4
SEED = 424_242
VALIDATION_ROWS = 64
"""As the nodes have it."""
WITHIN_S = 1800.0


@dataclass(frozen=True)
class Plan:
    """What all sides do: ``rounds`` of ``inner_steps``, of ``batch`` rows a node."""

    inner_steps: int
    rounds: int
    batch: int
    rate: float
    """In the first round."""
    final_fraction: float
    """Of the rate, in the last round."""

    def rate_of(self, round_number: int) -> float:
        """In a round, counted from 0; the same for all its steps."""
        steps = max(1, self.rounds - 1)
        recipe = Recipe(
            learning_rate=self.rate, total_steps=steps, final_fraction=self.final_fraction
        )
        return recipe.rate(round_number)


@dataclass
class Measured:
    """Of one run. Steps and bytes are those of all nodes, from one round's end to another's."""

    inner_steps: int
    rounds: int
    steps: int
    bytes_sent: int
    seconds: float

    @property
    def bytes_per_step(self) -> float:
        """Sent by a node for one of its steps."""
        return self.bytes_sent / max(1, self.steps)


def write_text(folder: Path, documents: int) -> None:
    """Documents that the default model was not trained on."""
    folder.mkdir()
    texts = (document(SEED, index) for index in range(documents))
    (folder / "corpus.txt").write_text("\n\n".join(texts), "utf-8")


def ask(node: RunningNode, path: str) -> dict[str, Any]:
    """The JSON that a node answers with."""
    with urllib.request.urlopen(node.url + path, timeout=60) as answer:  # noqa: S310 - our own node
        found: dict[str, Any] = json.load(answer)
        return found


def totals(nodes: list[RunningNode]) -> tuple[int, int, int]:
    """The version that all have, or 0; steps; bytes sent."""
    trainings = [ask(node, "/api/training/global") for node in nodes]
    metrics = [ask(node, "/api/v1/metrics") for node in nodes]
    versions = {one["diloco"]["outer_step_count"] for one in trainings}
    steps = sum(one["training"]["steps_total"] for one in metrics)
    together = all(one["total_nodes_training"] == len(nodes) for one in trainings)
    version = versions.pop() if len(versions) == 1 and together else 0
    return version, steps, sum(one["network"]["bytes_sent"] for one in metrics)


def run_nodes(model: Path, text: Path, plan: Plan) -> tuple[Measured, list[float]]:
    """Train all rounds; what the first does is not counted. Also the held-out loss after each."""
    settings = {
        "MESHNODE_TRAINING_TEXT": str(text),
        "MESHNODE_TRAINING_DILOCO_STEPS": str(plan.inner_steps),
        "MESHNODE_TRAINING_BATCH_SIZE": str(plan.batch),
        "MESHNODE_TRAINING_LEARNING_RATE": str(plan.rate),
        "OMP_NUM_THREADS": "1",
    }
    with ExitStack() as stack:
        nodes: list[RunningNode] = []
        for _ in range(NODES):
            tracker = ("--tracker", nodes[0].url) if nodes else ()
            nodes.append(stack.enter_context(running_node(str(model), 1, *tracker, **settings)))
        for node in nodes:
            _set(node, enabled=True)
        first = _wait(nodes, 1)
        begun, last = time.monotonic(), first
        losses = [_held_out(nodes[0], first[0])]
        for number in range(1, plan.rounds):
            for node in nodes:
                _set(node, learning_rate=plan.rate_of(number))
            last = _wait(nodes, last[0] + 1)
            losses.append(_held_out(nodes[0], last[0]))
            print(f"round {last[0]}: {losses[-1]:.4f}", file=sys.stderr)
        seconds = time.monotonic() - begun
        measured = Measured(
            plan.inner_steps, last[0] - first[0], last[1] - first[1], last[2] - first[2], seconds
        )
    return measured, losses


def _set(node: RunningNode, **training: object) -> None:
    body = json.dumps({"training": training}).encode()
    headers = {"Authorization": f"Bearer {node.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(  # noqa: S310 - our own node
        node.url + "/api/v1/config", body, headers, method="PATCH"
    )
    with urllib.request.urlopen(request, timeout=60):  # noqa: S310 - our own node
        pass


def _wait(nodes: list[RunningNode], version: int) -> tuple[int, int, int]:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        found = totals(nodes)
        if found[0] >= version:
            return found
        time.sleep(0.3)
    raise RuntimeError(f"no version {version} within {WITHIN_S:g} s")


def _held_out(node: RunningNode, version: int) -> float:
    """As GetCheckpointInfo says it of this version, on the disk now; NaN if it is gone again."""
    import grpc

    from meshnode.wire import node_pb2 as pb

    host, _, port = node.url.removeprefix("http://").partition(":")
    deadline = time.monotonic() + WITHIN_S
    with grpc.insecure_channel(f"{host}:{int(port) + 1000}") as channel:
        call = channel.unary_unary(
            "/node.NodeService/GetCheckpointInfo",
            pb.GetCheckpointInfoRequest.SerializeToString,
            pb.GetCheckpointInfoResponse.FromString,
        )
        while time.monotonic() < deadline:
            info = call(pb.GetCheckpointInfoRequest(), timeout=60)
            if info.version >= version:
                return float(info.loss) if info.version == version else math.nan
            time.sleep(0.1)
    raise RuntimeError(f"version {version} was not seen")


def in_one_process(model_dir: Path, text: Path, plan: Plan, replicas: int) -> list[float]:
    """Held-out loss before, and after each round, of one model.

    Its steps have the batches of the first so many ``replicas`` as one.
    """
    torch.set_num_threads(os.cpu_count() or 1)
    model = load_model(model_dir, trainable=True)
    end = min(model.eos_token_ids, default=None)
    length = min(ROW_TOKENS, model.card.context_length + 1)
    data = TokenData.of_folder(text, model.tokenizer, length, end)
    names = [f"{node:02}" for node in range(NODES)]
    shards = [shards_of(name, names, data.shards) for name in names[:replicas]]
    parts = [data.batches(own, plan.batch, seed) for seed, own in enumerate(shards)]
    held_out = data.validation_batches(8, VALIDATION_ROWS)
    trainer = Trainer(model.decoder, Recipe(learning_rate=plan.rate))
    losses = [evaluate(model.decoder, held_out).loss]
    for number in range(plan.rounds):
        trainer.recipe = Recipe(learning_rate=plan.rate_of(number))
        for _ in range(plan.inner_steps):
            batches = [next(part).batch for part in parts]
            inputs = torch.cat([one.inputs for one in batches])
            trainer.step(Batch(inputs, torch.cat([one.targets for one in batches])))
        losses.append(evaluate(model.decoder, held_out).loss)
        print(f"round {number + 1} of {replicas}: {losses[-1]:.4f}", file=sys.stderr)
    return losses


def main() -> None:
    """Run all, print the figures, write a plot and a JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="directory (default: the small one, made now)")
    parser.add_argument("--warm-up", type=int, default=2000, help="steps of the small one alone")
    parser.add_argument("--steps", type=int, default=500, help="H")
    parser.add_argument("--rounds", type=int, default=20, help="of H steps")
    parser.add_argument("--batch", type=int, default=16, help="rows in a node's step")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate at first")
    parser.add_argument("--final", type=float, default=0.1, help="share of the rate at the end")
    parser.add_argument("--documents", type=int, default=70_000, help="of a hundred tokens or so")
    parser.add_argument("--short-rounds", type=int, default=11, help="of one step")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    plan = Plan(options.steps, options.rounds, options.batch, options.rate, options.final)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        write_text(text, options.documents)
        model: Path = options.model or Path(folder) / "small"
        if options.model is None:
            write_small_model(model, text, options.warm_up)
        short, _ = run_nodes(model, text, replace(plan, inner_steps=1, rounds=options.short_rounds))
        long, diloco = run_nodes(model, text, plan)
        synchronous = in_one_process(model, text, plan, NODES)
        alone = in_one_process(model, text, plan, 1)
    result = {
        "plan": asdict(plan),
        "nodes": NODES,
        "documents": options.documents,
        "load_at_start": round(load, 2),
        "bytes_a_step": {"1": short.bytes_per_step, str(plan.inner_steps): long.bytes_per_step},
        "times_fewer": short.bytes_per_step / long.bytes_per_step,
        "held_out_loss": {
            "before": synchronous[0],
            "diloco": diloco[-1],
            "synchronous": synchronous[-1],
            "one alone": alone[-1],
        },
        "difference": diloco[-1] / synchronous[-1] - 1,
        "curves": {
            "diloco": [synchronous[0], *diloco],
            "synchronous": synchronous,
            "one alone": alone,
        },
        "runs": [asdict(short), asdict(long)],
    }
    print(json.dumps({key: result[key] for key in result if key != "curves"}, indent=1))
    OUT.mkdir(exist_ok=True)
    (OUT / "diloco.json").write_text(json.dumps(result, indent=1) + "\n")
    names = {
        "diloco": f"four nodes, H = {plan.inner_steps}",
        "synchronous": "synchronous",
        "one alone": "one of the four, alone",
    }
    lines = [
        Line(names[key], list(enumerate(curve)), dashed=key != "diloco")
        for key, curve in result["curves"].items()
    ]
    lowest = math.floor(min(map(min, result["curves"].values())) * 2) / 2
    traffic = [(1, short.bytes_per_step / 1e3), (plan.inner_steps, long.bytes_per_step / 1e3)]
    charts = [
        Chart(f"Held-out loss by rounds of {plan.inner_steps} steps", "rounds", lines, lowest),
        Chart("Kilobytes that a node sends for a step", "H", [Line("at the sockets", traffic)]),
    ]
    (OUT / "diloco.svg").write_text(render(charts))


if __name__ == "__main__":
    main()
