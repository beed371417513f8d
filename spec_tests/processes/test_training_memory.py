"""What nodes take while they train is at most what they count (decision 0138)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from meshnode.config import build_config
from meshnode.domain.units import MEBIBYTE
from meshnode.memory import PROCESS_BYTES
from meshnode.model.config import DecoderConfig
from meshnode.services.shards.graphs import graph_bytes
from meshnode.services.shards.kept_graphs import TrainingLimits
from meshnode.services.training.footprint import LIBRARIES, TrainingShape
from spec_tests.model.small_models import make_model
from spec_tests.processes.nodes import Node, wait_until
from spec_tests.processes.training import WITHIN_S, TrainingProcesses

pytestmark = pytest.mark.process
SHAPE: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_layers": 3,
    "num_heads": 6,
    "num_kv_heads": 6,
    "head_dim": 64,
    "initializer_range": 0.02,
    "tied_head": True,
}
"""8.7 million parameters: 35 MB of weights, which dominate."""
BATCH = 4


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "model", **SHAPE)


def private_bytes(node: Node) -> int:
    """Anonymous memory of a node's process."""
    lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


@contextmanager
def watched(node: Node) -> Iterator[list[int]]:
    """Measure the memory of a node again and again."""
    found, ended = [private_bytes(node)], threading.Event()

    def watch() -> None:
        while not ended.is_set():
            found.append(private_bytes(node))
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


VARIABLES: dict[str, Any] = {
    # A process that is forked from another one has memory of that.
    "fresh": True,
    "MESHNODE_TRAINING_ENABLED": "false",
    "MESHNODE_TRAINING_BATCH_SIZE": str(BATCH),
    "MESHNODE_TRAINING_SERVE": "off",
    # The served weights are in another format than those in training.
    "MESHNODE_DTYPE": "int8",
}


def shape_of(directory: Path, held: range) -> TrainingShape:
    return TrainingShape(
        config=DecoderConfig.read(directory / "config.json"),
        held=held,
        sequence=128,
        graph_bytes=TrainingLimits().graph_bytes,
    )


@pytest.mark.slow
@pytest.mark.parametrize("gradients", ["sparse", "float32"])
def test_the_peak_of_rounds_is_within_what_is_counted(
    directory: Path, tmp_path: Path, gradients: str
) -> None:
    settings = {"training.enabled": True, "training.batch_size": BATCH}
    config = build_config({**settings, "training.gradients": gradients})
    shape = shape_of(directory, range(SHAPE["num_layers"]))
    with ExitStack() as stack:
        processes = TrainingProcesses(tmp_path, directory, stack)
        variables = {**VARIABLES, "MESHNODE_TRAINING_GRADIENTS": gradients}
        nodes = [processes.start(name, **variables) for name in "ab"]
        with watched(nodes[0]) as sizes:
            processes.enable()
            processes.wait_rounds(2)
        taken, counted = max(sizes) - sizes[0], shape.needed(config.training)
        print(f"{gradients}: {taken / MEBIBYTE:.0f} of {counted / MEBIBYTE:.0f} MiB")
        assert taken <= counted
        # All that a node takes: the weights that it serves take less than half of this.
        assert max(sizes) <= counted + PROCESS_BYTES + shape.copy / 2
        # Otherwise the count would be of something else.
        assert taken > counted / 4


@pytest.mark.slow
def test_the_peak_of_a_holder_is_within_what_is_counted(directory: Path, tmp_path: Path) -> None:
    held = range(1, SHAPE["num_layers"])
    shape = shape_of(directory, held)
    with ExitStack() as stack:
        processes = TrainingProcesses(tmp_path, directory, stack)
        driver = processes.start("a", MESHNODE_LAYERS="0", **VARIABLES)
        holder = processes.start("b", MESHNODE_LAYERS=f"1-{held[-1]}", **VARIABLES)
        wait_until(lambda: processes.peers(driver) == processes.peers(holder) == 1, WITHIN_S)
        with watched(holder) as sizes:
            processes.enable()
            # Three versions are kept on the way.
            wait_until(lambda: processes.training(driver)["global_steps"] >= 10, WITHIN_S)
        # Nobody but the driver keeps graphs here, one at a time.
        graph = graph_bytes(shape.config, held, BATCH, shape.sequence)
        counted = LIBRARIES + shape.layers - shape.graph_bytes + graph
        limit = counted + PROCESS_BYTES + shape.copy / 2
        print(f"{max(sizes) / MEBIBYTE:.0f} of {limit / MEBIBYTE:.0f} MiB")
        print(f"{sizes[0] / MEBIBYTE:.0f} MiB before")
        assert max(sizes) <= limit
        assert max(sizes) - sizes[0] > counted / 4
