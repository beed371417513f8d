"""A pipeline serves what it learns (decision 0246): three nodes with a third of the layers each.

As a new user does it: a folder of text, the same question before and after, a stream in between, a
holder that dies, a restart of everything; then the weights in another program.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from meshnode.wire import node_pb2 as pb
from spec_tests.processes.nodes import Node, events_of, run, running_node, wait_until
from spec_tests.processes.pipelines import ALL, PATIENT, Gate
from spec_tests.processes.test_trained_answers import (
    NAMES,
    PROMPT,
    SETTINGS,
    SHARDS,
    TOKENS,
    WITHIN_S,
    answer_of,
    write_text,
)
from spec_tests.processes.trained import state_of, switch, text_by_transformers

pytestmark = [pytest.mark.process, pytest.mark.slow]

LAYERS = {**SHARDS, "d": SHARDS["b"]}
"""The last one comes later, and has nothing to do with training."""
HELD_AT = 3
"""The tokens that the stream has had when the weights change."""


def start(stack: ExitStack, folder: Path, gate: Gate, name: str, tracker: Node | None) -> Node:
    """Start a node with its third of the layers, the first time or again."""
    options: dict[str, Any] = {**SETTINGS, "MESHNODE_TRAINING_TEXT": str(folder / "text")}
    trackers = ["--tracker", f"http://127.0.0.1:{tracker.port}"] if tracker else []
    node = running_node(
        folder / name,
        *("--layers", LAYERS[name], "--dtype", "float32", *trackers),
        changes=[PATIENT, gate.change] if name == "a" else [],
        **options,
    )
    return stack.enter_context(node)


def start_all(stack: ExitStack, folder: Path, gate: Gate) -> list[Node]:
    driver = start(stack, folder, gate, "a", None)
    others = [start(stack, folder, gate, name, driver) for name in "bc"]
    wait_until(lambda: driver.ask("GET", "/api/v1/peers").json["total"] == len(others))
    return [driver, *others]


def shard_info(node: Node) -> pb.GetShardInfoResponse:
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}", own) as channel:
        call = channel.unary_unary(
            "/node.NodeService/GetShardInfo",
            pb.GetShardInfoRequest.SerializeToString,
            pb.GetShardInfoResponse.FromString,
        )
        found: pb.GetShardInfoResponse = call(pb.GetShardInfoRequest(), timeout=WITHIN_S)
        return found


def hashes_of(nodes: list[Node]) -> set[tuple[str, ...]]:
    return {tuple(shard_info(node).model_hashes) for node in nodes}


def settled(nodes: list[Node]) -> tuple[str, ...] | None:
    """The hash of the weights that all of them compute with, and of no others."""
    found = hashes_of(nodes)
    only = next(iter(found))
    return only if len(found) == 1 and len(only) == 1 else None


def stream(node: Node) -> Iterator[dict[str, Any]]:
    body = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
    return events_of(node.open_stream(body))


def test_a_pipeline_serves_what_it_learns(tmp_path: Path) -> None:
    write_text(tmp_path / "text")
    gate = Gate(tmp_path / "gate")
    gate.let(ALL)
    with ExitStack() as stack:
        nodes = start_all(stack, tmp_path, gate)
        driver, middle, _ = nodes
        before = answer_of(driver)
        assert not any(name in before[0] for name in NAMES)
        [origin] = settled(nodes) or ()

        # A stream is in the middle of its text when the weights change.
        gate.let(HELD_AT)
        events = stream(driver)
        gate.wait_held()
        switch(nodes, enabled=True)
        for node in nodes:
            wait_until(lambda node=node: state_of(node)["served"]["version"], WITHIN_S)
        assert all(found[1:] == (origin,) for found in hashes_of(nodes))
        gate.let(ALL)
        text = "".join(event["token"] for event in events if event["token"] != "[DONE]")
        assert text == before[0]

        # The weights that the stream needed are freed everywhere.
        wait_until(lambda: state_of(driver)["losses"], WITHIN_S)
        wait_until(lambda: any(name in answer_of(driver)[0] for name in NAMES), WITHIN_S)
        switch([driver], enabled=False)
        wait_until(lambda: settled(nodes), WITHIN_S)
        states = [state_of(node)["served"] for node in nodes]
        assert all(state == states[0] | {"waiting": state["waiting"]} for state in states)
        learned = answer_of(driver)
        assert learned[1] != before[1]

        # Another holder of the same layers comes, and fetches what is served. Then the first dies.
        fourth = start(stack, tmp_path, gate, "d", driver)
        served = shard_info(driver).model_hash
        # Who does not train obeys no driver.
        wait_until(lambda: "this node does not train" in driver.log(), WITHIN_S)
        assert shard_info(fourth).model_hash != served
        switch([fourth], enabled=True)
        wait_until(lambda: shard_info(fourth).model_hash == served, WITHIN_S)
        middle.process.kill()
        middle.process.wait()
        wait_until(lambda: answers_alike(driver, learned), WITHIN_S)
        fourth.signal(signal.SIGTERM)
        assert fourth.wait()[0] == 0

        # A holder comes back with what it served.
        middle = start(stack, tmp_path, gate, "b", driver)
        assert shard_info(middle).model_hash == shard_info(driver).model_hash
        wait_until(lambda: answers_alike(driver, learned), WITHIN_S)
        for node in (driver, middle, nodes[2]):
            node.signal(signal.SIGTERM)
            assert node.wait()[0] == 0
            assert "Traceback" not in node.log()

    with ExitStack() as stack:
        again = start_all(stack, tmp_path, gate)
        wait_until(lambda: answers_alike(again[0], learned), WITHIN_S)
        assert state_of(again[0])["served"]["version"] == states[0]["version"]

    out = tmp_path / "exported"
    joined = [word for name in "bc" for word in ("--join", str(tmp_path / name))]
    chosen = ["--version", str(states[0]["version"]), "--out", str(out)]
    done = run("model", "export", "--data-dir", str(tmp_path / "a"), *joined, *chosen)
    assert done.returncode == 0, done.stderr
    assert text_by_transformers(out, PROMPT, TOKENS) == learned[0]


def answers_alike(node: Node, learned: tuple[str, str]) -> bool:
    """Whether a node answers as before; it may not know all holders yet."""
    body = {"model": "default", "prompt": PROMPT, "max_tokens": 1, "temperature": 0}
    if node.ask("POST", "/v1/completions", body).status != 200:
        return False
    assert answer_of(node) == learned
    return True
