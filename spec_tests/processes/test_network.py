"""Nodes join and rejoin a network, even without a tracker at the time (interface 2.3 and 4.3)."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from meshnode.wire import node_pb2 as pb
from spec_tests.ports import free_port
from spec_tests.processes import changes
from spec_tests.processes.nodes import SOON_S, Node, running_node, starting_node, wait_until

pytestmark = pytest.mark.process

PATH = "/api/v1/inference"
BODY = {"prompt": "The little fox", "max_tokens": 12, "temperature": 0.9, "seed": 5}
NODE: dict[str, Any] = {"MESHNODE_RESOURCES_CPU_THREADS": "1"}
SMALL = {**NODE, "MESHNODE_RESOURCES_MAX_MEMORY_GB": "0.25065"}
"""Enough memory for the last four layers and the head, not for all of the default model."""
PATIENT = partial(changes.wait_longer_for_trackers, seconds=120.0)
"""For a node that chooses its layers: it waits this long for a tracker on a busy machine."""


def known(node: Node) -> dict[str, str]:
    """The addresses of a node's peers, by node id."""
    peers = node.ask("GET", "/api/v1/peers").json["peers"]
    return {peer["id"]: peer["address"] for peer in peers}


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def node_id(node: Node) -> str:
    found: str = node.ask("GET", "/api/v1/status").json["node_id"]
    return found


def generates(node: Node) -> Callable[[], str | None]:
    return lambda: node.ask("POST", PATH, BODY).json.get("text")


@pytest.mark.slow
def test_trackers_and_nodes_that_come_and_go(tmp_path: Path) -> None:
    dead, late = free_port(), free_port()
    trackers = f"{url(dead)},{url(late)}"
    with ExitStack() as stack:
        first = running_node(tmp_path / "a", "--layers", "0-3", "--tracker", trackers, **NODE)
        a = stack.enter_context(first)
        answer = a.ask("POST", PATH, BODY)
        assert (answer.status, answer.json["error"]["code"]) == (503, "UNAVAILABLE")
        assert a.ask("GET", "/api/v1/health", token=None).status == 503
        # The tracker starts later, and the node finds it.
        b = stack.enter_context(running_node(tmp_path / "b", "--layers", "4-7", port=late, **NODE))
        text = wait_until(generates(a))
        assert known(a) == {node_id(b): f"127.0.0.1:{late}"}
        remembered = tmp_path / "a" / "peers.json"
        wait_until(remembered.exists)
        assert json.loads(remembered.read_text())["peers"][0]["port"] == late
        # The node restarts, and no tracker answers. It finds the other by what it remembers.
        a.signal(signal.SIGKILL)
        a.wait()
        a = stack.enter_context(
            running_node(tmp_path / "a", "--layers", "0-3", "--tracker", url(dead), **NODE)
        )
        assert wait_until(generates(a)) == text
        # The other node restarts at another port, and is known once, under its earlier id.
        before = node_id(b)
        b.signal(signal.SIGKILL)
        b.wait()
        b = stack.enter_context(
            running_node(tmp_path / "b", "--layers", "4-7", "--tracker", url(a.port), **NODE)
        )
        wait_until(lambda: known(a) == {before: f"127.0.0.1:{b.port}"})
        assert wait_until(generates(a)) == text


def weights(node: Node, unit: str) -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}") as channel:
        call = channel.unary_unary(
            "/node.NodeService/GetWeights",
            pb.WeightRequest.SerializeToString,
            pb.WeightResponse.FromString,
        )
        found: bytes = call(pb.WeightRequest(shard_range=unit), timeout=SOON_S).weights_data
        return found


def test_layers_are_chosen_and_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "joining"
    joining = ("--model", "network", "--layers", "4-7")

    def fetched() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in folder.rglob("*.safetensors")}

    with ExitStack() as stack:
        a = stack.enter_context(running_node(tmp_path / "a", "--layers", "0-3", **NODE))
        through = ("--tracker", url(a.port))
        # A node that is too small for the whole model chooses layers that the network lacks.
        chooser = running_node(
            tmp_path / "b", "--layers", "auto", *through, changes=[PATIENT], **SMALL
        )
        b = stack.enter_context(chooser)
        layers = b.ask("GET", "/api/v1/status").json["layers"]
        assert {4, 5, 6, 7} <= set(layers) < set(range(8))
        text = wait_until(generates(a))
        # A node without a model fetches it. Killed meanwhile, it continues after a restart.
        with starting_node(folder, *joining, *through, **NODE) as node:
            wait_until(lambda: len(fetched()) >= 5)
            node.signal(signal.SIGKILL)
            node.wait()
        kept = fetched()
        damaged = min(kept)
        content = damaged.read_bytes()
        damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        c = stack.enter_context(running_node(folder, *joining, *through, **NODE))
        assert damaged.read_bytes() == content
        assert all(fetched()[file] == at for file, at in kept.items() if file != damaged)
        assert weights(c, "7") == weights(b, "7")
        wait_until(lambda: node_id(c) in known(a))
        b.signal(signal.SIGKILL)
        b.wait()
        assert generates(a)() == text
        with pytest.raises(grpc.RpcError) as refused:
            weights(c, "0-3")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
