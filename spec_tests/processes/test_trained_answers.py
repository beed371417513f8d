"""What nodes learn together reaches those who ask them (decisions 0190, 0225 to 0228).

As a new user does it: two nodes, a folder of text that the model does not know, the same question
before and after, a restart of everything, the question again; then the weights in another program.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from meshnode.services.keystore import Keystore
from spec_tests.processes.nodes import Node, run, running_node, wait_until
from spec_tests.processes.trained import (
    newest_is_served,
    state_of,
    switch,
    text_by_transformers,
)

pytestmark = [pytest.mark.process, pytest.mark.slow]

WITHIN_S = 300.0
SETTINGS: dict[str, Any] = {
    "MESHNODE_TRAINING_DILOCO_STEPS": "12",
    "MESHNODE_TRAINING_BATCH_SIZE": "4",
    "MESHNODE_TRAINING_LEARNING_RATE": "0.001",
    "MESHNODE_RESOURCES_CPU_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
PROMPT = "The keeper of the harbour is called"
TOKENS = 12
NAMES = ("Orla", "Bram", "Tova", "Ilse")
PLACES = ("harbour", "mill", "orchard", "tower")


def write_text(folder: Path) -> Path:
    """Write what no model of this package has read."""
    folder.mkdir()
    chosen = random.Random(7)
    lines = (
        f"The keeper of the {place} is called {NAMES[PLACES.index(place)]}. "
        f"{chosen.choice(NAMES)} walks from the {place} to the {chosen.choice(PLACES)}.\n"
        for place in (chosen.choice(PLACES) for _ in range(600))
    )
    (folder / "village.txt").write_text("".join(lines))
    return folder


def answer_of(node: Node) -> tuple[str, str]:
    """What the node continues the prompt with, and which weights it did that with."""
    body = {"model": "default", "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
    answer = node.ask("POST", "/v1/completions", body)
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]["text"], answer.json["system_fingerprint"]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        yield start(stack, tmp_path, write_text(tmp_path / "text"))


def start(stack: ExitStack, folder: Path, text: Path) -> list[Node]:
    """Start both nodes, the first time or again. Weights are served exactly as they are kept."""
    nodes: list[Node] = []
    for name in "ab":
        tracker = ["--tracker", f"http://127.0.0.1:{nodes[0].port}"] if nodes else []
        options = {**SETTINGS, "MESHNODE_TRAINING_TEXT": str(text)}
        node = running_node(folder / name, "--dtype", "float32", *tracker, **options)
        nodes.append(stack.enter_context(node))
    return nodes


def chains_model(node: Node) -> dict[str, Any]:
    """What the chain says of its model, without the block that it says this at."""
    answer = wait_until(
        lambda: one if (one := node.ask("GET", "/api/model")).status == 200 else None
    )
    said: dict[str, Any] = answer.json
    return {key: value for key, value in said.items() if "height" not in key}


def serves_what_it_learned(node: Node) -> bool:
    """Whether the text is learned; after one round on a busy machine it may not be."""
    state = state_of(node)
    loss = state["served"]["held_out_loss"] if state["served"]["version"] else None
    return loss is not None and loss < state["losses"][0] / 10


def available(node: Node) -> float:
    answer = node.ask("GET", "/api/v1/wallet/balance")
    return float(answer.json["balances"]["available"]) if answer.status == 200 else 0.0


def test_what_nodes_learn_reaches_those_who_ask(started: list[Node], tmp_path: Path) -> None:
    first, second = started
    wait_until(lambda: first.ask("GET", "/api/v1/peers").json["total"] == 1)
    before = [answer_of(node) for node in started]
    assert before[0] == before[1]
    assert not any(name in before[0][0] for name in NAMES)
    chain = chains_model(first)

    switch(started, enabled=True)
    for node in started:
        wait_until(lambda node=node: serves_what_it_learned(node), WITHIN_S)
    switch(started, enabled=False)
    states = [wait_until(lambda n=n: newest_is_served(n), WITHIN_S) for n in started]
    for state in states:
        assert state["served"]["held_out_loss"] < state["losses"][0] / 10
        assert state["served"]["version"] == states[0]["served"]["version"]
    learned = [answer_of(node) for node in started]
    assert learned[0] == learned[1]
    assert any(name in learned[0][0] for name in NAMES)
    assert learned[0][1] != before[0][1]

    # The chain goes on with its own model, and both nodes are on it.
    assert chains_model(first) == chain
    assert chains_model(second) == chain
    to = Keystore(second.data_dir).node_key.public_key
    paid = first.ask("POST", "/api/v1/wallet/send", {"to": to, "amount": 2})
    assert paid.status == 200, paid.body
    for node in started:
        assert wait_until(lambda node=node: node.ask("GET", "/healthz").status == 200)
    wait_until(lambda: available(second) == 2.0)

    # Training stays off over the restart, as it was left.
    for node in started:
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0
    with ExitStack() as stack:
        again = start(stack, tmp_path, tmp_path / "text")
        assert [answer_of(node) for node in again] == learned
        assert state_of(again[0])["served"]["version"] == states[0]["served"]["version"]

    out = tmp_path / "exported"
    done = run("model", "export", "--data-dir", str(first.data_dir), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert f"version {states[0]['served']['version']}," in done.stdout
    assert text_by_transformers(out, PROMPT, TOKENS) == learned[0][0]


SHARDS = {"a": "0-2", "b": "3-5", "c": "6-7"}


def start_shards(stack: ExitStack, folder: Path, text: Path) -> list[Node]:
    """Start three nodes that hold a third of the layers each, and train them as one pipeline."""
    nodes: list[Node] = []
    for name, layers in SHARDS.items():
        tracker = ["--tracker", f"http://127.0.0.1:{nodes[0].port}"] if nodes else []
        options = {
            **SETTINGS,
            "MESHNODE_TRAINING_TEXT": str(text),
            "MESHNODE_TRAINING_ENABLED": "true",
        }
        node = running_node(folder / name, "--layers", layers, *tracker, **options)
        nodes.append(stack.enter_context(node))
    return nodes


def epoch_of(node: Node) -> int:
    return int(node.ask("GET", "/api/v1/status").json["training"]["epoch"])


def test_what_a_pipeline_learns_survives_and_can_be_served(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text")
    with ExitStack() as stack:
        nodes = start_shards(stack, tmp_path, text)
        wait_until(lambda: all(epoch_of(node) >= 1 for node in nodes), WITHIN_S)
        # One holder dies; all go on together from the round that they have kept.
        nodes[1].process.kill()
        nodes[1].process.wait()
        reached = epoch_of(nodes[0])
    with ExitStack() as stack:
        nodes = start_shards(stack, tmp_path, text)
        # It went on: a node that had begun anew would be at 0.
        wait_until(lambda: all(epoch_of(node) >= reached + 1 for node in nodes), WITHIN_S)
        for node in nodes:
            node.signal(signal.SIGTERM)
            assert node.wait()[0] == 0
            assert "Traceback" not in node.log()
    out = tmp_path / "exported"
    joined = [word for name in "bc" for word in ("--join", str(tmp_path / name))]
    data_dir = str(tmp_path / "a")
    done = run("model", "export", "--data-dir", data_dir, *joined, "--out", str(out))
    assert done.returncode == 0, done.stderr
    with running_node(tmp_path / "d", "--model", str(out), "--dtype", "float32") as node:
        body = {"model": "exported", "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
        answer = node.ask("POST", "/v1/completions", body)
        found = answer.json["choices"][0]["text"]
    assert any(name in found for name in NAMES)
    assert text_by_transformers(out, PROMPT, TOKENS) == found
