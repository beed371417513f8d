"""Interface 2.1, 2.3 and 4.3 with real processes, on one machine and on several hosts.

The hosts are network namespaces. Where these are not permitted, the tests on hosts are skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from google.protobuf.message import Message

from meshnode.wire import node_pb2 as pb
from spec_tests.ports import free_port
from spec_tests.processes.namespaces import Lab, lab, refusal
from spec_tests.services.dht.nodes import DhtProcess, dht_process, id_named, wait_until

pytestmark = [pytest.mark.process, pytest.mark.wire]

Answer = TypeVar("Answer", bound=Message)


@pytest.fixture
def namespaces() -> None:
    if refusal():
        pytest.skip(refusal())


def all_know_each_other(nodes: Sequence[DhtProcess]) -> bool:
    """Whether each node knows exactly the others, at their present addresses."""
    found = {id_named(node.name).hex(): f"{node.host}:{node.port}" for node in nodes}
    return all(
        node.peers() == {k: v for k, v in found.items() if k != id_named(node.name).hex()}
        for node in nodes
    )


@pytest.mark.parametrize("count", [3, 5])
def test_nodes_on_one_machine_find_each_other(tmp_path: Path, count: int) -> None:
    with ExitStack() as stack:
        running: list[DhtProcess] = []
        for index in range(count):
            trackers = [f"127.0.0.1:{running[-1].port}"] if running else []
            node = dht_process(f"n{index}", tmp_path / f"n{index}", *trackers)
            running.append(stack.enter_context(node))
        wait_until(lambda: all_know_each_other(running), "all know each other")


def test_a_killed_node_is_gone_and_comes_back_once(tmp_path: Path) -> None:
    with dht_process("a", tmp_path / "a") as a:
        through = f"127.0.0.1:{a.port}"
        with dht_process("c", tmp_path / "c", through) as c:
            with dht_process("b", tmp_path / "b", through) as b:
                wait_until(lambda: all_know_each_other([a, b, c]), "all know each other")
                b.process.kill()
                wait_until(lambda: all_know_each_other([a, c]), "b is gone")
            # The same node: at its old address, then at another one.
            for port in (b.port, free_port()):
                with dht_process("b", tmp_path / "b", through, port=port) as again:
                    # Compare addresses too: the others may still know its earlier one for a while.
                    wait_until(lambda n=again: all_know_each_other([a, n, c]), "b is back")


def test_a_restart_rejoins_through_what_it_remembers(tmp_path: Path) -> None:
    with dht_process("a", tmp_path / "a") as a:
        with dht_process("b", tmp_path / "b", f"127.0.0.1:{a.port}") as b:
            wait_until(lambda: all_know_each_other([a, b]), "both know each other")
            remembered = tmp_path / "b" / "peers.json"
            wait_until(remembered.exists, "b remembers a")
            assert json.loads(remembered.read_text())["peers"][0]["port"] == a.port
        # b was killed, and now starts without a tracker.
        with dht_process("b", tmp_path / "b") as b:
            wait_until(lambda: all_know_each_other([a, b]), "both know each other again")


def test_the_documents_client_gets_answers(tmp_path: Path) -> None:
    """A client like the document's examples gets answers: grpcio, insecure, methods by name."""
    with (
        dht_process("a", tmp_path / "a") as a,
        dht_process("b", tmp_path / "b", f"127.0.0.1:{a.port}") as b,
    ):
        wait_until(lambda: all_know_each_other([a, b]), "both know each other")
        status = a.status()
        assert status is not None
        assert [peer.address for peer in status.peers] == [f"127.0.0.1:{b.port}"]
        with documents_channel(f"127.0.0.1:{a.port + 1000}") as channel:
            me = pb.DHTNodeInfo(node_id=sha1(b"a client"), ip="127.0.0.1", port=8000)
            key, value = sha1(b"layer_0"), "127.0.0.1:8000"

            def call(name: str, request: Message, response: type[Answer]) -> Answer:
                ask = channel.unary_unary(
                    f"/node.NodeService/{name}",
                    type(request).SerializeToString,
                    response.FromString,
                )
                answer: Answer = ask(request, timeout=60.0)
                return answer

            pong = call("DHTPing", pb.DHTPingRequest(sender=me), pb.DHTPingResponse)
            assert len(pong.responder.node_id) == 20
            find = pb.DHTFindNodeRequest(sender=me, target_id=key)
            assert len(call("DHTFindNode", find, pb.DHTFindNodeResponse).nodes) == 1
            find_value = pb.DHTFindValueRequest(sender=me, key=key)
            assert not call("DHTFindValue", find_value, pb.DHTFindValueResponse).found
            store = pb.DHTStoreRequest(sender=me, key=key, value=value)
            assert call("DHTStore", store, pb.DHTStoreResponse).success
            assert call("DHTFindValue", find_value, pb.DHTFindValueResponse).value == value
            shard = call("GetShardInfo", pb.GetShardInfoRequest(), pb.GetShardInfoResponse)
            assert shard.total_layers == 4


def sha1(name: bytes) -> bytes:
    return hashlib.sha1(name).digest()


def documents_channel(target: str) -> grpc.Channel:
    """A channel with the options that the document's example has."""
    return grpc.insecure_channel(
        target,
        options=[
            ("grpc.max_send_message_length", 100 * 1024 * 1024),
            ("grpc.max_receive_message_length", 100 * 1024 * 1024),
            ("grpc.keepalive_time_ms", 30000),
            ("grpc.keepalive_timeout_ms", 10000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )


# Several hosts


def on_host(stack: ExitStack, made: Lab, index: int, folder: Path, *through: str) -> DhtProcess:
    node = dht_process(
        f"h{index}",
        folder / f"h{index}",
        *through,
        host="0.0.0.0",  # noqa: S104 - as an operator of several hosts sets it
        port=8000,
        enter=[made.enter(index)],
    )
    running = stack.enter_context(node)
    running.host = made.address(index)
    return running


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_partition_heals(tmp_path: Path) -> None:
    with ExitStack() as stack:
        made = stack.enter_context(lab(west=2, east=2))
        hosts = [on_host(stack, made, 0, tmp_path)]
        for index in range(1, 4):
            tracker = f"{made.address(index - 1)}:8000"
            hosts.append(on_host(stack, made, index, tmp_path, tracker))
        wait_until(
            lambda: all_know_each_other(hosts), "all know each other, by their hosts' addresses"
        )
        made.cut()
        wait_until(lambda: all_know_each_other(hosts[:2]), "the west is on its own")
        wait_until(lambda: all_know_each_other(hosts[2:]), "the east is on its own")
        made.mend()
        wait_until(lambda: all_know_each_other(hosts), "they are one again")


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_host_without_its_cable(tmp_path: Path) -> None:
    with ExitStack() as stack:
        made = stack.enter_context(lab(west=2, east=0))
        hosts = [on_host(stack, made, 0, tmp_path)]
        hosts.append(on_host(stack, made, 1, tmp_path, f"{made.address(0)}:8000"))
        wait_until(lambda: all_know_each_other(hosts), "both know each other")
        made.unplug(1)
        wait_until(lambda: hosts[0].peers() == {}, "the other one is gone")
        made.plug(1)
        wait_until(lambda: all_know_each_other(hosts), "both know each other again")
