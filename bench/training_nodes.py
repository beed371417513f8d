"""Four nodes that train one model together, for benchmarks (interface 1, 2.1 and 2.3).

The learning rate falls along a cosine; ``PATCH /config`` sets it after each round, as an operator
would. Other requests to the nodes are few, because their answers count as traffic.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bench.node_process import RunningNode, running_node
from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.model.training import Recipe
from meshnode.wire import node_pb2 as pb
from tools.default_model.corpus import document

NODES = 4
SEED = 424_242
"""Seed of documents that the default model was not trained on."""
POLL_S = 0.3
WITHIN_S = 1800.0


@dataclass(frozen=True)
class Plan:
    """Rounds of inner steps, each with ``batch`` rows at each node."""

    inner_steps: int
    rounds: int
    batch: int
    rate: float
    """Learning rate in the first round."""
    final_fraction: float
    """Fraction of the rate that is left in the last round."""

    def rate_of(self, number: int) -> float:
        """Return the learning rate of a round, counted from 0."""
        recipe = Recipe(
            learning_rate=self.rate,
            total_steps=max(1, self.rounds - 1),
            final_fraction=self.final_fraction,
        )
        return recipe.rate(number)


@dataclass(frozen=True)
class Traffic:
    """Totals over all nodes, from the end of one round to the end of another."""

    inner_steps: int
    rounds: int
    steps: int
    bytes_sent: int
    """Counted at the sockets, from ``network.bytes_sent`` in ``/metrics``."""
    seconds: float

    @property
    def bytes_per_step(self) -> float:
        """The bytes that a node sends for one of its steps."""
        return self.bytes_sent / max(1, self.steps)


def write_text(folder: Path, documents: int) -> None:
    """Write documents of the default model's corpus, of sixty to a hundred tokens each."""
    folder.mkdir()
    texts = (document(SEED, index) for index in range(documents))
    (folder / "corpus.txt").write_text("\n\n".join(texts), "utf-8")


def train_together(model: str, text: Path, plan: Plan) -> tuple[Traffic, list[float]]:
    """Train; return the traffic after the first round, and the held-out loss after each round."""
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
            nodes.append(stack.enter_context(running_node(model, 1, *tracker, **settings)))
        weights = stack.enter_context(_Weights(nodes[0]))
        for node in nodes:
            _set(node, enabled=True)
        losses = [weights.next_loss()]
        begun, first = time.monotonic(), _totals(nodes)
        while weights.version < plan.rounds:
            for node in nodes:
                _set(node, learning_rate=plan.rate_of(weights.version))
            losses.append(weights.next_loss())
            print(f"version {weights.version}: {losses[-1]:.4f}", file=sys.stderr)
        last, seconds = _totals(nodes), time.monotonic() - begun
    rounds, steps, sent = (after - before for after, before in zip(last, first, strict=True))
    return Traffic(plan.inner_steps, rounds, steps, sent, seconds), losses


class _Weights:
    """Reads the version and loss of a node's weights with GetCheckpointInfo, in a few bytes."""

    def __init__(self, node: RunningNode) -> None:
        host, _, port = node.url.removeprefix("http://").partition(":")
        self.version = 0
        self._channel = grpc.insecure_channel(f"{host}:{int(port) + GRPC_PORT_OFFSET}")
        self._ask = self._channel.unary_unary(
            "/node.NodeService/GetCheckpointInfo",
            pb.GetCheckpointInfoRequest.SerializeToString,
            pb.GetCheckpointInfoResponse.FromString,
        )

    def __enter__(self) -> _Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def next_loss(self) -> float:
        """Wait for another version; return its held-out loss, as the node has measured it."""
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            info = self._ask(pb.GetCheckpointInfoRequest(), timeout=60)
            if info.version > self.version:
                self.version = info.version
                return float(info.loss)
            time.sleep(POLL_S)
        raise RuntimeError(f"no version after {self.version} within {WITHIN_S:g} s")


def _totals(nodes: list[RunningNode]) -> tuple[int, int, int]:
    """Wait until all nodes have the same version; return it, and the steps and bytes so far."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        trainings = [_ask(node, "/api/training/global") for node in nodes]
        versions = {one["diloco"]["outer_step_count"] for one in trainings}
        if len(versions) == 1 and all(one["total_nodes_training"] == NODES for one in trainings):
            metrics = [_ask(node, "/api/v1/metrics") for node in nodes]
            steps = sum(one["training"]["steps_total"] for one in metrics)
            return versions.pop(), steps, sum(one["network"]["bytes_sent"] for one in metrics)
        time.sleep(POLL_S)
    raise RuntimeError("the nodes do not train together")


def _ask(node: RunningNode, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(node.url + path, timeout=60) as answer:  # noqa: S310 - our own node
        found: dict[str, Any] = json.load(answer)
        return found


def _set(node: RunningNode, **training: object) -> None:
    body = json.dumps({"training": training}).encode()
    headers = {"Authorization": f"Bearer {node.token}", "Content-Type": "application/json"}
    request = urllib.request.Request(  # noqa: S310 - our own node
        node.url + "/api/v1/config", body, headers, method="PATCH"
    )
    with urllib.request.urlopen(request, timeout=60):  # noqa: S310 - our own node
        pass
