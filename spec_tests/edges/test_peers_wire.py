"""Interface 2.1, 4.1 and 4.3: what a node reports about itself and peers over gRPC and HTTP."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio

from meshnode.config import build_config
from meshnode.domain.metering import TrafficMeter, TrainingFigures
from meshnode.edges import http_peers
from meshnode.edges.grpc_peers import SHARED_S, PeersServicer
from meshnode.edges.http_index import IndexApi
from meshnode.edges.http_node import node_access
from meshnode.edges.http_peers import PeersApi
from meshnode.http.app import node_app
from meshnode.http.routes import add_routes
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.tokens import TokenStore
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.edges.http_server import TOKEN, Answer, Client, start_server
from spec_tests.services.dht.nodes import FAST_PEERS, LONG_S, DhtNode, id_named, nodes, until

pytestmark = pytest.mark.wire


def open_to(node: DhtNode) -> Any:
    return open_channel("127.0.0.1", node.plan.grpc_port, traffic=TrafficMeter())


async def test_a_node_describes_itself(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        node = await running.start("a", layers=[2, 3])
        async with open_to(node) as channel:
            info = await NodeServiceStub(channel).GetShardInfo(pb.GetShardInfoRequest())
    assert info.node_id == id_named("a").hex()
    assert info.role == "validator"
    assert list(info.layers) == [2, 3]
    assert (info.has_embedding, info.has_head) == (False, True)
    assert (info.total_layers, info.hidden_dim, info.vocab_size) == (4, 32, 100)
    assert info.capacity.memory_total == 1 << 30


async def test_callers_at_a_time_share_an_answer_that_is_soon_made_anew(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        node = await running.start("a", layers=[2, 3])
        servicer = PeersServicer(book=node.book, drain=Drain())
        first = await servicer.GetShardInfo(pb.GetShardInfoRequest())
        assert await servicer.GetShardInfo(pb.GetShardInfoRequest()) is first
        await trio.sleep(2 * SHARED_S)
        assert await servicer.GetShardInfo(pb.GetShardInfoRequest()) is not first


async def test_the_swarm_as_a_node_sees_it(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a", layers=[0, 1])
        b = await running.start("b", a, layers=[2, 3])
        await until(lambda: a.knows(b), "a knows b")
        async with open_to(a) as channel:
            stub = NodeServiceStub(channel)
            status = await stub.GetSwarmStatus(pb.SwarmStatusRequest())
            short = await stub.GetSwarmStatus(pb.SwarmStatusRequest(only_training=True))
    # Nodes that train ask every second: what grows with the network is left out.
    assert short == pb.SwarmStatusResponse(node_id=id_named("a").hex())
    assert (status.node_id, status.status, status.role) == (
        id_named("a").hex(),
        "running",
        "driver",
    )
    (peer,) = status.peers
    assert peer.node_id == id_named("b").hex()
    assert peer.address == b.plan.contact.address
    assert list(peer.layers) == [2, 3]
    assert peer.role == "validator"
    assert peer.latency_ms > 0
    assert peer.capacity.max_batch == 4


async def test_capacity_is_reported_among_peers(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        # After a heartbeat, `a` would ask `b`, whose answer would replace the report.
        a = await running.start("a", peer_timings=replace(FAST_PEERS, beat_s=2 * LONG_S))
        b = await running.start("b", a)
        await until(lambda: a.knows(b) and b.knows(a), "both know each other")
        request = pb.UpdatePeerCapacityRequest(
            node_id=id_named("b").hex(),
            address=b.plan.contact.address,
            capacity=pb.NodeCapacity(queue_depth=17),
            timestamp=4e9,
        )
        async with open_to(a) as channel:
            stub = NodeServiceStub(channel)
            assert (await stub.UpdatePeerCapacity(request)).accepted
            peer = a.book.get(id_named("b").hex())
            assert peer is not None
            assert peer.capacity is not None
            assert peer.capacity.queue_depth == 17
            again = await stub.UpdatePeerCapacity(request)
            assert (again.accepted, again.reason) == (False, "a newer report is known")
            request.address = "127.0.0.1:1"
            assert "another address" in (await stub.UpdatePeerCapacity(request)).reason
            request.node_id = id_named("nobody").hex()
            assert (await stub.UpdatePeerCapacity(request)).reason == "not a known peer"


@pytest.mark.parametrize(
    "changes",
    [
        {"node_id": "short"},
        {"address": ""},
        {"address": "127.0.0.1"},
        {"address": "127.0.0.1:0"},
        {"address": "127.0.0.1:64536"},
        {"address": "127.0.0.1:٣"},
        {"timestamp": float("nan")},
        {"timestamp": -1.0},
        {"capacity": pb.NodeCapacity(memory_used=-1)},
        {"capacity": pb.NodeCapacity(tokens_per_second=float("inf"))},
    ],
)
async def test_malformed_reports_are_invalid(tmp_path: Path, changes: dict[str, Any]) -> None:
    fields = {"node_id": id_named("b").hex(), "address": "127.0.0.1:8000", "timestamp": 1.0}
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        async with open_to(a) as channel:
            with pytest.raises(CallFailed) as failure:
                await NodeServiceStub(channel).UpdatePeerCapacity(
                    pb.UpdatePeerCapacityRequest(**{**fields, **changes})
                )
    assert failure.value.code is Code.INVALID_ARGUMENT


DOCUMENT = IndexApi.of("0", http_peers.ROUTES).document


async def served(nursery: trio.Nursery, node: DhtNode) -> tuple[str, int]:
    """Serve the HTTP routes of a node's peer book; return the server's address."""
    config = build_config({"data_dir": str(node.plan.data_dir)})
    access = node_access(TokenStore(node.plan.data_dir, TOKEN), config.limits)
    app = node_app(access, config.limits.max_body_bytes)
    api = PeersApi(
        book=node.book,
        parameters=1_960_000,
        training=lambda: TrainingFigures(epoch=1, step=20, loss=3.5),
    )
    add_routes(app, api, http_peers.ROUTES, access)
    _, _, address = await start_server(nursery, app)
    return address


async def ask(address: tuple[str, int], path: str, **more: Any) -> Answer:
    async with Client(await trio.open_tcp_stream(*address)) as client:
        return await client.ask("GET", path, **more)


def check(name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema.validate(value, schema)


async def test_peers_and_network_over_http(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running, trio.open_nursery() as nursery:
        a = await running.start("a", layers=[0, 1])
        address = await served(nursery, a)
        alone = (await ask(address, "/api/v1/peers")).json
        check("Peers", alone)
        assert alone == {"peers": [], "total": 0}
        b = await running.start("b", a, layers=[1, 2])
        c = await running.start("c", a, layers=[2, 3])
        await until(lambda: a.knows(b, c), "a knows both")

        peers = (await ask(address, "/api/v1/peers")).json
        check("Peers", peers)
        assert peers["total"] == 2
        found = {peer["id"]: peer for peer in peers["peers"]}
        assert found[id_named("b").hex()]["address"] == b.plan.contact.address
        assert found[id_named("b").hex()]["role"] == "worker"
        assert found[id_named("c").hex()]["layers"] == [2, 3]

        network = (await ask(address, "/api/v1/network", token=None)).json
        check("Network", network)
        assert network == {
            "nodes": {"total": 3, "drivers": 1, "workers": 1, "validators": 1},
            "architecture": {"layers": 4, "hidden_dim": 32, "parameters": "1.96M"},
            "capacity": {"total_memory_gb": 3.0, "used_memory_gb": 1.5},
            "training": {"epoch": 1, "global_step": 20, "loss": 3.5},
        }
        nursery.cancel_scope.cancel()


async def test_peers_need_a_token(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running, trio.open_nursery() as nursery:
        address = await served(nursery, await running.start("a"))
        answer = await ask(address, "/api/v1/peers", token=None)
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
        nursery.cancel_scope.cancel()


async def test_cancelled_in_the_middle_of_everything(tmp_path: Path) -> None:
    """A node ends at once when it is cancelled, at any point, and leaves no connection open."""
    for steps in (1, 5, 20, 60, 150):
        async with nodes(tmp_path) as running:
            a = await running.start("a")
            b = await running.start(running.plan("b", a))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            with trio.fail_after(LONG_S):
                await running.stop(b)
            assert len(b.pool) == 0
            lookup = partial(a.dht.find_closest, id_named("x"))
            with trio.CancelScope() as scope:
                scope.cancel()
                await lookup()
            assert scope.cancelled_caught
            with trio.fail_after(LONG_S):
                await lookup()
