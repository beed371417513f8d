"""Real nodes that train together, and what each reports of its weights and its training."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import safetensors.torch

from meshnode.model.checkpoint import VELOCITY, dump_anchor
from meshnode.model.trained_model import Anchor
from meshnode.wire import node_pb2 as pb
from spec_tests.processes import changes
from spec_tests.processes.calls import Call
from spec_tests.processes.nodes import Node, running_node, wait_until

WITHIN_S = 300.0
SETTINGS: dict[str, Any] = {
    "MESHNODE_TRAINING_ENABLED": "true",
    "MESHNODE_TRAINING_DILOCO_STEPS": "3",
    "MESHNODE_TRAINING_BATCH_SIZE": "4",
    "MESHNODE_TRAINING_LEARNING_RATE": "0.001",
    "MESHNODE_RESOURCES_CPU_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
BRISK = partial(changes.train_briskly)
_KEPT = re.compile(r"version (\d+) kept, ([0-9a-f]{64}),")


def write_text(folder: Path) -> None:
    """Write the text that all nodes train on, long enough for every shard."""
    folder.mkdir()
    lines = (f"{n} and {n + 1} make {2 * n + 1}.\n" for n in range(1500))
    (folder / "sums.txt").write_text("".join(lines))


def kept_by(data_dir: Path) -> tuple[int, str]:
    """Version and hash of the weights that a node has on its disk; 0 and no hash without any."""
    try:
        state = json.loads((data_dir / "training" / "round.json").read_bytes())
    except FileNotFoundError:
        return 0, ""
    return state["version"], state["model_hash"]


def alter_weights(data_dir: Path) -> str:
    """Change the weights of a stopped node as if it had computed them; return their hash."""
    folder = data_dir / "training"
    state = json.loads((folder / "round.json").read_bytes())
    version, old = state["version"], state["model_hash"]
    tensors = safetensors.torch.load_file(folder / f"anchor-{version}-{old[:16]}.safetensors")
    velocity = {n.removeprefix(VELOCITY): t for n, t in tensors.items() if n.startswith(VELOCITY)}
    weights = {n: t for n, t in tensors.items() if not n.startswith(VELOCITY)}
    next(iter(weights.values())).view(-1)[0] += 1.0
    anchor = Anchor.of(weights, velocity)
    file = folder / f"anchor-{version}-{anchor.model_hash[:16]}.safetensors"
    file.write_bytes(dump_anchor(anchor, version))
    # Its contribution was made from the weights that have just been replaced.
    state |= {"model_hash": anchor.model_hash, "contributed": None}
    (folder / "round.json").write_text(json.dumps(state))
    return anchor.model_hash


class TrainingProcesses:
    """Nodes that share a folder of text; the first is the tracker of the others."""

    def __init__(self, folder: Path, model: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.nodes: list[Node] = []
        self.seen: dict[int, dict[str, set[str]]] = {}
        """By version: each hash that was reported, with the names of the nodes that reported it."""
        self.pace: Sequence[Call] = [BRISK]
        """Changes to the timings of every node; empty for the timings of users' nodes."""
        self._model = model
        self._stack = stack
        self._channels: dict[int, grpc.Channel] = {}
        self.text = folder / "text"
        write_text(self.text)

    def start(self, name: str, *, changes: Sequence[Call] = (), **variables: str) -> Node:
        """Start one more node, or restart one by its name."""
        tracker = ["--tracker", f"http://127.0.0.1:{self.nodes[0].port}"] if self.nodes else []
        node = self._stack.enter_context(
            running_node(
                self.folder / name,
                *("--model", str(self._model), *tracker),
                changes=[*self.pace, *changes],
                **{**SETTINGS, "MESHNODE_TRAINING_TEXT": str(self.text), **variables},
            )
        )
        self.nodes.append(node)
        return node

    def gone(self, node: Node) -> None:
        """Kill a node if it still runs, and remove it from ``nodes``."""
        node.process.kill()
        node.process.wait()
        self.nodes.remove(node)

    def info(self, node: Node) -> pb.GetCheckpointInfoResponse:
        """What a node reports of its weights; every answer is recorded in ``seen``."""
        channel = self._channels.get(node.port)
        if channel is None:
            channel = grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}")
            self._channels[node.port] = self._stack.enter_context(channel)
        ask = channel.unary_unary(
            "/node.NodeService/GetCheckpointInfo",
            pb.GetCheckpointInfoRequest.SerializeToString,
            pb.GetCheckpointInfoResponse.FromString,
        )
        found: pb.GetCheckpointInfoResponse = ask(pb.GetCheckpointInfoRequest(), timeout=WITHIN_S)
        hashes = self.seen.setdefault(found.version, {})
        hashes.setdefault(found.model_hash, set()).add(node.data_dir.name)
        return found

    def wait_agreed(self, version: int, *nodes: Node) -> int:
        """Wait until these nodes (by default all) have the same weights, of at least that version.

        Returns the version.
        """

        def agreed() -> int:
            infos = {(i.version, i.model_hash) for i in map(self.info, nodes or self.nodes)}
            found, _ = min(infos)
            return found if len(infos) == 1 and found >= version else 0

        found: int = wait_until(agreed, WITHIN_S)
        return found

    def wait_rounds(self, count: int, *nodes: Node) -> int:
        """Wait for this many rounds after which all nodes agree; return the version."""
        version = self.wait_agreed(1, *nodes)
        for _ in range(count):
            version = self.wait_agreed(version + 1, *nodes)
        return version

    def enable(self) -> None:
        """Enable training on all nodes."""
        for node in self.nodes:
            answer = node.ask("PATCH", "/api/v1/config", {"training": {"enabled": True}})
            assert answer.status == 200, answer.body

    def kept(self) -> dict[int, dict[str, set[str]]]:
        """By version: each hash of kept weights, with the nodes that kept them by their logs."""
        found: dict[int, dict[str, set[str]]] = {}
        for node in self.nodes:
            for version, model_hash in _KEPT.findall(node.log()):
                hashes = found.setdefault(int(version), {})
                hashes.setdefault(model_hash, set()).add(node.data_dir.name)
        return found

    def peers(self, node: Node) -> int:
        """How many other nodes this node knows."""
        return int(node.ask("GET", "/api/v1/peers").json["total"])

    def training(self, node: Node) -> dict[str, Any]:
        """What a node reports of the training of the whole network."""
        found: dict[str, Any] = node.ask("GET", "/api/training/global", token=None).json
        return found

    def verdict(self, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = node.ask("GET", "/api/training/verify", token=None).json
        return found

    def metrics(self, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = node.ask("GET", "/api/v1/metrics", token=None).json
        return found
