"""Little traffic, the same loss: ``python -m bench.diloco`` (document, 1, 2.1 and 2.3).

Four real nodes train the default model on documents that it has not seen (the corpus of
``tools/default_model`` with another seed): once with ``diloco_steps`` at H, once at 1, which is
synchronous data parallelism. Bytes are those of the nodes' sockets (``network.bytes_sent`` in
``/metrics``), between the ends of two rounds, over the steps in between.

The loss at equal tokens is compared with synchronous data parallelism in this process: each step
the same four shards' batches as one, and one step of AdamW. Nodes at H = 1 would come to that, but
would take hours over it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bench.node_process import RunningNode, running_node
from bench.plot import Chart, Line, render
from meshnode.model.data import TokenData, shards_of
from meshnode.model.loading import DEFAULT_MODEL, load_model
from meshnode.model.training import Batch, Recipe, Trainer, evaluate
from tools.default_model.corpus import document

OUT = Path(__file__).parent / "plots"
NODES, BATCH, ROW = 4, 2, 129
RATE = 1e-4
SEED, DOCUMENTS = 424_242, 70_000
"""More text than eight rounds read: of less, each node would learn its own part by heart."""
VALIDATION_ROWS = 64
"""As the nodes have it."""
WITHIN_S = 1800.0


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


def run_nodes(text: Path, inner_steps: int, rounds: int) -> tuple[Measured, list[float]]:
    """Train for so many rounds after the first; also the held-out loss after each of them all."""
    settings = {
        "MESHNODE_TRAINING_TEXT": str(text),
        "MESHNODE_TRAINING_DILOCO_STEPS": str(inner_steps),
        "MESHNODE_TRAINING_BATCH_SIZE": str(BATCH),
        "MESHNODE_TRAINING_LEARNING_RATE": str(RATE),
        "OMP_NUM_THREADS": "1",
    }
    with ExitStack() as stack:
        nodes: list[RunningNode] = []
        for _ in range(NODES):
            tracker = ("--tracker", nodes[0].url) if nodes else ()
            nodes.append(stack.enter_context(running_node("", 1, *tracker, **settings)))
        for node in nodes:
            _enable(node)
        first = _wait(nodes, 1)
        begun, last = time.monotonic(), first
        losses = [_held_out(nodes[0])]
        for _ in range(rounds):
            last = _wait(nodes, last[0] + 1)
            losses.append(_held_out(nodes[0]))
        seconds = time.monotonic() - begun
        measured = Measured(
            inner_steps, last[0] - first[0], last[1] - first[1], last[2] - first[2], seconds
        )
    return measured, losses


def _enable(node: RunningNode) -> None:
    body = json.dumps({"training": {"enabled": True}}).encode()
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
        time.sleep(0.1)
    raise RuntimeError(f"no version {version} within {WITHIN_S:g} s")


def _held_out(node: RunningNode) -> float:
    """As GetCheckpointInfo says it, of the weights that the node keeps."""
    import grpc

    from meshnode.wire import node_pb2 as pb

    host, _, port = node.url.removeprefix("http://").partition(":")
    with grpc.insecure_channel(f"{host}:{int(port) + 1000}") as channel:
        call = channel.unary_unary(
            "/node.NodeService/GetCheckpointInfo",
            pb.GetCheckpointInfoRequest.SerializeToString,
            pb.GetCheckpointInfoResponse.FromString,
        )
        return float(call(pb.GetCheckpointInfoRequest(), timeout=60).loss)


def synchronous(text: Path, steps: int, points: int) -> list[tuple[int, float]]:
    """Held-out loss by tokens of one model, with the batches of four nodes as one."""
    torch.set_num_threads(os.cpu_count() or 1)
    model = load_model(DEFAULT_MODEL, trainable=True)
    end = min(model.eos_token_ids, default=None)
    data = TokenData.of_folder(text, model.tokenizer, ROW, end)
    names = [f"{node:02}" for node in range(NODES)]
    shards = [shards_of(name, names, data.shards) for name in names]
    parts = [data.batches(own, BATCH, seed) for seed, own in enumerate(shards)]
    held_out = data.validation_batches(8, VALIDATION_ROWS)
    trainer = Trainer(model.decoder, Recipe(learning_rate=RATE))
    curve = [(0, evaluate(model.decoder, held_out).loss)]
    tokens = 0
    for step in range(1, steps + 1):
        batches = [next(part).batch for part in parts]
        whole = Batch(
            torch.cat([one.inputs for one in batches]), torch.cat([one.targets for one in batches])
        )
        tokens += trainer.step(whole).tokens
        if step % max(1, steps // points) == 0:
            curve.append((tokens, evaluate(model.decoder, held_out).loss))
    return curve


def main() -> None:
    """Run both, print the figures, write a plot and a JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500, help="H")
    parser.add_argument("--rounds", type=int, default=1, help="of H steps, after the first")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="of 65 tokens or so")
    parser.add_argument("--short-rounds", type=int, default=10, help="of one step")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        write_text(text, options.documents)
        short, _ = run_nodes(text, 1, options.short_rounds)
        long, losses = run_nodes(text, options.steps, options.rounds)
        steps = options.steps * (options.rounds + 1)
        curve = synchronous(text, steps, 10)
    ratio = short.bytes_per_step / long.bytes_per_step
    tokens, loss = curve[-1][0], losses[-1]
    # Each round has as many tokens as the others.
    rounds = [(tokens * n / len(losses), one) for n, one in enumerate(losses, 1)]
    result = {
        "nodes": NODES,
        "documents": options.documents,
        "load_at_start": round(load, 2),
        "bytes_a_step": {"1": short.bytes_per_step, str(options.steps): long.bytes_per_step},
        "times_fewer": ratio,
        "tokens": tokens,
        "held_out_loss": {"before": curve[0][1], "diloco": loss, "synchronous": curve[-1][1]},
        "difference": loss / curve[-1][1] - 1,
        "synchronous_curve": curve,
        "diloco_curve": rounds,
        "runs": [asdict(short), asdict(long)],
    }
    print(json.dumps({key: result[key] for key in result if not key.endswith("_curve")}, indent=1))
    OUT.mkdir(exist_ok=True)
    (OUT / "diloco.json").write_text(json.dumps(result, indent=1) + "\n")
    charts = [
        Chart(
            "Held-out loss by tokens",
            "thousand tokens",
            [
                Line("synchronous", [(at / 1e3, value) for at, value in curve], dashed=True),
                Line(
                    f"four nodes, H = {options.steps}",
                    [(at / 1e3, one) for at, one in [(0, curve[0][1]), *rounds]],
                ),
            ],
        ),
        Chart(
            "Kilobytes that a node sends for a step",
            "H",
            [
                Line(
                    "counted at the socket",
                    [
                        (1, short.bytes_per_step / 1e3),
                        (options.steps, long.bytes_per_step / 1e3),
                    ],
                )
            ],
        ),
    ]
    (OUT / "diloco.svg").write_text(render(charts))


if __name__ == "__main__":
    main()
