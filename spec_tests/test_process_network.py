"""2.3, 4.3 and design: nodes come to a network, and come back to it, whoever is there just then."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from meshnode.wire import node_pb2 as pb
from spec_tests.support_ports import free_port
from spec_tests.support_process import SOON_S, Node, running_node, starting_node, wait_until

pytestmark = pytest.mark.process

PATH = "/api/v1/inference"
BODY = {"prompt": "The little fox", "max_tokens": 12, "temperature": 0.9, "seed": 5}
NODE = {"MESHNODE_RESOURCES_CPU_THREADS": "1"}
SMALL = {**NODE, "MESHNODE_RESOURCES_MAX_MEMORY_GB": "0.0065"}
"""Room for the last four layers and the head, not for all of the default model."""
PATIENT = """
from meshnode.rpc import pool
from meshnode.services import weights
pool.CONNECT_S = weights.ASK_S = 120.0
"""
"""For one that chooses its layers: a tracker is not passed over because it is slow."""


def known(node: Node) -> dict[str, str]:
    """The peers of a node: their addresses by id."""
    peers = node.ask("GET", "/api/v1/peers").json["peers"]
    return {peer["id"]: peer["address"] for peer in peers}


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def node_id(node: Node) -> str:
    return node.ask("GET", "/api/v1/status").json["node_id"]


def generates(node: Node) -> Callable[[], str | None]:
    return lambda: node.ask("POST", PATH, BODY).json.get("text")


def test_trackers_and_nodes_that_come_and_go(tmp_path: Path) -> None:
    dead, late = free_port(), free_port()
    trackers = f"{url(dead)},{url(late)}"
    with ExitStack() as stack:
        first = running_node(tmp_path / "a", "--layers", "0-3", "--tracker", trackers, **NODE)
        a = stack.enter_context(first)
        answer = a.ask("POST", PATH, BODY)
        assert (answer.status, answer.json["error"]["code"]) == (503, "UNAVAILABLE")
        assert a.ask("GET", "/api/v1/health", token=None).status == 503
        # A tracker comes, and the node finds it.
        b = stack.enter_context(running_node(tmp_path / "b", "--layers", "4-7", port=late, **NODE))
        text = wait_until(generates(a))
        assert known(a) == {node_id(b): f"127.0.0.1:{late}"}
        remembered = tmp_path / "a" / "peers.json"
        wait_until(remembered.exists)
        assert json.loads(remembered.read_text())["peers"][0]["port"] == late
        # The node comes back, and no tracker answers: it remembers.
        a.signal(signal.SIGKILL)
        a.wait()
        a = stack.enter_context(
            running_node(tmp_path / "a", "--layers", "0-3", "--tracker", url(dead), **NODE)
        )
        assert wait_until(generates(a)) == text
        # The other one comes back elsewhere: once, and under its id.
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
        return call(pb.WeightRequest(shard_range=unit), timeout=SOON_S).weights_data


def test_layers_are_chosen_and_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "joining"
    joining = ("--model", "network", "--layers", "4-7")

    def fetched() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in folder.rglob("*.safetensors")}

    with ExitStack() as stack:
        a = stack.enter_context(running_node(tmp_path / "a", "--layers", "0-3", **NODE))
        through = ("--tracker", url(a.port))
        # One that is too small for the whole model takes what the network lacks.
        chooser = running_node(
            tmp_path / "b", "--layers", "auto", *through, prelude=PATIENT, **SMALL
        )
        b = stack.enter_context(chooser)
        layers = b.ask("GET", "/api/v1/status").json["layers"]
        assert {4, 5, 6, 7} <= set(layers) < set(range(8))
        text = wait_until(generates(a))
        # One without a model fetches it; killed in the middle, it goes on where it was.
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
