"""Real nodes that train together: what each says of its weights, and deaths in a chosen state."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import grpc
import safetensors.torch

from meshnode.model.checkpoint import VELOCITY, dump_anchor
from meshnode.model.replica import Anchor
from meshnode.wire import node_pb2 as pb
from spec_tests.support_process import Node, running_node, wait_until

WITHIN_S = 300.0
SETTINGS = {
    "MESHNODE_TRAINING_ENABLED": "true",
    "MESHNODE_TRAINING_DILOCO_STEPS": "3",
    "MESHNODE_TRAINING_BATCH_SIZE": "4",
    "MESHNODE_TRAINING_LEARNING_RATE": "0.001",
    "MESHNODE_RESOURCES_CPU_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
BRISK = """
from meshnode.services.training import gossip, rounds
gossip.POLL_S, rounds.TICK_S = 0.3, 0.1
"""
"""A prelude: nodes look at each other more often. What they wait for may last as long as ever."""
_KEPT = re.compile(r"version (\d+) kept, ([0-9a-f]{64}),")
DIES = {
    "inner": "_contribute",
    "exchange": "publish",
    "outer": "_outer_step",
    "settling": "_settle",
    "fetching": "_fetch",
}
"""In which method of ``Rounds`` a node is in that state."""


def death(state: str) -> str:
    """A prelude: the process kills itself the first time that it is in ``state``."""
    return f"""
import os, signal
from meshnode.services.training.rounds import Rounds
undisturbed = Rounds.{DIES[state]}
def {DIES[state]}(self, *arguments):
    if self.replica.state.value == {state!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    return undisturbed(self, *arguments)
Rounds.{DIES[state]} = {DIES[state]}
"""


def fetches_once(there: Path) -> str:
    """A prelude: whatever the process wants to fetch, it waits until this file is there."""
    return f"""
import pathlib, trio
from meshnode.services.training.rounds import Rounds
undisturbed = Rounds._fetch
async def _fetch(self, wanted):
    while not pathlib.Path({str(there)!r}).exists():
        await trio.sleep(0.05)
    await undisturbed(self, wanted)
Rounds._fetch = _fetch
"""


def write_text(folder: Path) -> None:
    """What all train on: enough for every shard."""
    folder.mkdir()
    lines = (f"{n} and {n + 1} make {2 * n + 1}.\n" for n in range(1500))
    (folder / "sums.txt").write_text("".join(lines))


def kept_by(data_dir: Path) -> tuple[int, str]:
    """Version and hash of the weights that a node has on its disk, and tells of."""
    try:
        state = json.loads((data_dir / "training" / "round.json").read_bytes())
    except FileNotFoundError:
        return 0, ""
    return state["version"], state["model_hash"]


def alter_weights(data_dir: Path) -> str:
    """Make the weights of a node that has stopped others, as if it had made them. Their hash."""
    folder = data_dir / "training"
    state = json.loads((folder / "round.json").read_bytes())
    version, old = state["version"], state["model_hash"]
    tensors = safetensors.torch.load_file(folder / f"anchor-{version}-{old[:16]}.safetensors")
    velocity = {n.removeprefix(VELOCITY): t for n, t in tensors.items() if n.startswith(VELOCITY)}
    weights = {name: tensors[name] for name in velocity}
    next(iter(weights.values())).view(-1)[0] += 1.0
    anchor = Anchor.of(weights, velocity)
    file = folder / f"anchor-{version}-{anchor.model_hash[:16]}.safetensors"
    file.write_bytes(dump_anchor(anchor, version))
    # What it contributed was made from the weights that are no more.
    state |= {"model_hash": anchor.model_hash, "contributed": None}
    (folder / "round.json").write_text(json.dumps(state))
    return anchor.model_hash


class TrainingProcesses:
    """Nodes that share a folder of text; the first is the tracker of the others."""

    def __init__(self, folder: Path, model: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.nodes: list[Node] = []
        self.seen: dict[int, dict[str, set[str]]] = {}
        """By version: each hash that was reported, and who did."""
        self.pace = BRISK
        """Empty for that of a node as it comes."""
        self._model = model
        self._stack = stack
        self._channels: dict[int, grpc.Channel] = {}
        self.text = folder / "text"
        write_text(self.text)

    def start(self, name: str, *, prelude: str = "", **changes: str) -> Node:
        """One more, or one that comes back under its name."""
        tracker = ["--tracker", f"http://127.0.0.1:{self.nodes[0].port}"] if self.nodes else []
        node = self._stack.enter_context(
            running_node(
                self.folder / name,
                *("--model", str(self._model), *tracker),
                prelude=self.pace + prelude,
                **{**SETTINGS, "MESHNODE_TRAINING_TEXT": str(self.text), **changes},
            )
        )
        self.nodes.append(node)
        return node

    def gone(self, node: Node) -> None:
        """It has ended, or does so now."""
        node.process.kill()
        node.process.wait()
        self.nodes.remove(node)

    def info(self, node: Node) -> pb.GetCheckpointInfoResponse:
        """What it says of its weights; every answer is remembered."""
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
        """Wait until these (all, if none is named) have the same weights, of that version at least.

        Gives the version.
        """

        def agreed() -> int:
            infos = {(i.version, i.model_hash) for i in map(self.info, nodes or self.nodes)}
            found, _ = min(infos)
            return found if len(infos) == 1 and found >= version else 0

        return wait_until(agreed, WITHIN_S)

    def wait_rounds(self, count: int, *nodes: Node) -> int:
        """Wait for as many more rounds, whose ends all agree on."""
        version = self.wait_agreed(1, *nodes)
        for _ in range(count):
            version = self.wait_agreed(version + 1, *nodes)
        return version

    def enable(self) -> None:
        """Switch training on, everywhere."""
        for node in self.nodes:
            answer = node.ask("PATCH", "/api/v1/config", {"training": {"enabled": True}})
            assert answer.status == 200, answer.body

    def kept(self) -> dict[int, dict[str, set[str]]]:
        """By version: each hash of weights that a node kept, and who did, as all logs have it."""
        found: dict[int, dict[str, set[str]]] = {}
        for node in self.nodes:
            for version, model_hash in _KEPT.findall(node.log()):
                hashes = found.setdefault(int(version), {})
                hashes.setdefault(model_hash, set()).add(node.data_dir.name)
        return found

    def peers(self, node: Node) -> int:
        """How many nodes it knows."""
        return int(node.ask("GET", "/api/v1/peers").json["total"])

    def training(self, node: Node) -> dict:
        """What it says of the training of all."""
        return node.ask("GET", "/api/training/global", token=None).json

    def verdict(self, node: Node) -> dict:
        return node.ask("GET", "/api/training/verify", token=None).json

    def metrics(self, node: Node) -> dict:
        return node.ask("GET", "/api/v1/metrics", token=None).json
