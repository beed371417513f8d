"""Interface 2.3, 4.3 and 7.3: strangers' messages are bounded or refused, and harm no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.kademlia.bucket import K
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.holding import holder_value
from meshnode.domain.kademlia.node_id import key_of
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.caller import answer_metadata
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceServicer, NodeServiceStub
from meshnode.rpc.server import serve_grpc
from meshnode.services.dht.handle import OWN_GROUP
from meshnode.wire import node_pb2 as pb
from spec_tests.ports import free_port
from spec_tests.services.dht.nodes import (
    FAST,
    LONG_S,
    DhtNode,
    Running,
    id_named,
    nodes,
    until,
)

pytestmark = pytest.mark.wire

KEY = key_of("a key")
CLIENT = pb.DHTNodeInfo(node_id=id_named("a client"), ip="127.0.0.1", port=9)


class Stranger(NodeServiceServicer):
    """A node that answers as a test specifies, and records the operations called."""

    def __init__(self, name: str, **answers: Callable[[Any], Any]) -> None:
        self.info = pb.DHTNodeInfo(node_id=id_named(name), ip="127.0.0.1")
        self.called: list[str] = []
        self.answers = answers

    async def _answer(self, operation: str, request: Any, usual: Any) -> Any:
        self.called.append(operation)
        answer = self.answers.get(operation)
        return (await answer(request) if answer is not None else None) or usual

    async def DHTPing(self, input_message: Any) -> Any:  # noqa: N802
        return await self._answer("ping", input_message, pb.DHTPingResponse(responder=self.info))

    async def DHTFindNode(self, input_message: Any) -> Any:  # noqa: N802
        return await self._answer(
            "find", input_message, pb.DHTFindNodeResponse(responder=self.info)
        )

    async def GetShardInfo(self, input_message: Any) -> Any:  # noqa: N802
        return await self._answer("shard", input_message, pb.GetShardInfoResponse())


@asynccontextmanager
async def a_stranger(stranger: Stranger) -> AsyncIterator[int]:
    """Serve the stranger, and yield its HTTP port."""
    port = free_port()
    stranger.info.port = port
    async with trio.open_nursery() as nursery:
        serve = partial(
            serve_grpc, [stranger.service], "127.0.0.1", port + 1000, traffic=TrafficMeter()
        )
        await nursery.start(serve)
        yield port
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def a_client(node: DhtNode) -> AsyncIterator[NodeServiceStub]:
    async with open_channel("127.0.0.1", node.plan.grpc_port, traffic=TrafficMeter()) as channel:
        yield NodeServiceStub(channel)


@asynccontextmanager
async def one_node(folder: Path) -> AsyncIterator[tuple[DhtNode, NodeServiceStub, Running]]:
    async with nodes(folder) as running:
        node = await running.start("node")
        async with a_client(node) as stub:
            yield node, stub, running


def records_of_others(node: DhtNode) -> int:
    return sum(record.group != OWN_GROUP for record in node.dht.local.records)


async def code_of(call: Any) -> Code:
    try:
        await call
    except CallFailed as error:
        return error.code
    return Code.OK


async def test_malformed_requests_are_invalid(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (node, stub, _):

        def info(**changes: Any) -> pb.DHTNodeInfo:
            return pb.DHTNodeInfo(**{"node_id": id_named("x"), "ip": "", "port": 8000, **changes})

        bad_senders = [
            pb.DHTNodeInfo(),
            info(node_id=b""),
            info(node_id=b"x" * 19),
            info(node_id=b"x" * 21),
            info(node_id=node.plan.node_id),
            info(port=0),
            info(port=-1),
            info(port=64536),
        ]
        for sender in bad_senders:
            assert await code_of(stub.DHTPing(pb.DHTPingRequest(sender=sender))) is (
                Code.INVALID_ARGUMENT
            )
            request = pb.DHTStoreRequest(sender=sender, key=KEY, value="v")
            assert await code_of(stub.DHTStore(request)) is Code.INVALID_ARGUMENT
        for key in (b"", b"x" * 19, b"x" * 21):
            calls = (
                stub.DHTFindNode(pb.DHTFindNodeRequest(sender=CLIENT, target_id=key)),
                stub.DHTFindValue(pb.DHTFindValueRequest(sender=CLIENT, key=key)),
                stub.DHTStore(pb.DHTStoreRequest(sender=CLIENT, key=key, value="v")),
            )
            for call in calls:
                assert await code_of(call) is Code.INVALID_ARGUMENT
        assert node.dht.contacts() == []
        assert records_of_others(node) == 0


async def test_malformed_ages_are_invalid(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (_, stub, _):
        request = pb.DHTStoreRequest(sender=CLIENT, key=KEY, value="v")
        for age in ("-1", "1.5", "x", "1" * 10, "+1"):
            call = stub.DHTStore(request, metadata={"dht-record-age": age})
            assert await code_of(call) is Code.INVALID_ARGUMENT


async def test_a_client_of_this_machine_stores_and_finds(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (node, stub, _):
        for index in range(20):
            request = pb.DHTStoreRequest(sender=CLIENT, key=KEY, value=f"v{index}")
            assert (await stub.DHTStore(request)).success
            found = await stub.DHTFindValue(pb.DHTFindValueRequest(sender=CLIENT, key=KEY))
            assert (found.found, found.value) == (True, f"v{index}")
        assert records_of_others(node) == 1


async def test_oversized_messages_are_not_read(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (_, stub, _):
        request = pb.DHTStoreRequest(sender=CLIENT, key=KEY, value="v" * 100_000)
        assert await code_of(stub.DHTStore(request)) is Code.RESOURCE_EXHAUSTED
        assert await code_of(stub.DHTPing(pb.DHTPingRequest(sender=CLIENT))) is Code.OK


async def test_values_of_verified_senders_are_bounded(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (node, stub, _), a_stranger(Stranger("s")) as port:
        sender = pb.DHTNodeInfo(node_id=id_named("s"), port=port)

        async def store(key: bytes, value: str) -> Code:
            request = pb.DHTStoreRequest(sender=sender, key=key, value=value)
            return await code_of(stub.DHTStore(request))

        assert await store(KEY, "v") is Code.OK
        for value in ("", "v" * 513, "two\nlines", "\x00"):
            assert await store(KEY, value) is Code.INVALID_ARGUMENT
        codes = [await store(KEY, f"v{index}") for index in range(20)]
        assert codes[-1] is Code.RESOURCE_EXHAUSTED
        assert records_of_others(node) == 16


async def test_a_flood_of_stores_is_refused(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (node, stub, _):
        codes: list[Code] = []

        async def store(index: int) -> None:
            request = pb.DHTStoreRequest(sender=CLIENT, key=key_of(str(index)), value="v")
            codes.append(await code_of(stub.DHTStore(request)))

        # Send more records than one address group may store here.
        for begin in range(0, 2200, 100):
            async with trio.open_nursery() as nursery:
                for index in range(begin, begin + 100):
                    nursery.start_soon(store, index)
        assert set(codes) == {Code.OK, Code.RESOURCE_EXHAUSTED}
        assert records_of_others(node) <= 2048


async def test_a_flood_of_senders_makes_few_pings(tmp_path: Path) -> None:
    async with one_node(tmp_path) as (node, stub, _), a_stranger(Stranger("s")) as port:
        async with trio.open_nursery() as nursery:
            for index in range(500):
                sender = pb.DHTNodeInfo(node_id=id_named(f"flood {index}"), port=port)
                nursery.start_soon(stub.DHTPing, pb.DHTPingRequest(sender=sender))
        # The node at that port has another id than all of these, so none becomes a contact.
        await until(
            lambda: len(node.dht.local.verifications) <= 1024, "what is remembered is bounded"
        )
        assert node.dht.contacts() == []


async def test_one_sender_is_pinged_back_once(tmp_path: Path) -> None:
    silent = Stranger("another name")
    async with one_node(tmp_path) as (node, stub, _), a_stranger(silent) as port:
        sender = pb.DHTNodeInfo(node_id=id_named("claimed"), ip="10.9.9.9", port=port)
        await stub.DHTPing(pb.DHTPingRequest(sender=sender))
        await until(lambda: silent.called, "pinged back, at the address of the socket")
        for _ in range(30):
            await stub.DHTPing(pb.DHTPingRequest(sender=sender))
        assert silent.called == ["ping"]
        assert node.dht.contacts() == []


async def test_an_address_named_by_an_unknown_node_is_only_pinged(tmp_path: Path) -> None:
    victim = Stranger("victim")
    async with a_stranger(victim) as victim_port:

        async def tell(_: Any) -> Any:
            told = [
                # A false id with the victim's address.
                pb.DHTNodeInfo(node_id=id_named("false"), ip="127.0.0.1", port=victim_port),
                pb.DHTNodeInfo(node_id=id_named("x"), ip="169.254.169.254", port=80),
                pb.DHTNodeInfo(node_id=id_named("y"), ip="localhost", port=80),
                pb.DHTNodeInfo(node_id=b"short", ip="127.0.0.1", port=80),
            ]
            return pb.DHTFindNodeResponse(responder=liar.info, nodes=told)

        liar = Stranger("liar", find=tell)
        async with a_stranger(liar) as liar_port, nodes(tmp_path) as running:
            plan = running.plan("node")
            plan.trackers = (("127.0.0.1", liar_port + 1000),)
            node = await running.start(plan)
            await until(lambda: node.dht.joined.is_set(), "joined through the liar")
            await node.dht.find_closest(key_of("anything"))
            assert victim.called
            assert set(victim.called) == {"ping"}
            assert node.dht.contacts() == [Contact(id_named("liar"), "127.0.0.1", liar_port)]


async def test_addresses_in_records_are_not_called(tmp_path: Path) -> None:
    """False records of a layer's holders neither cause calls nor hide an honest holder."""
    victim = Stranger("victim")
    async with one_node(tmp_path) as (node, _, running), a_stranger(victim) as port:
        honest = await running.start("honest", node)
        await until(lambda: node.knows(honest), "it knows the honest holder")
        values = [f"127.0.0.1:{port} {id_named(f'false {index}').hex()}" for index in range(16)]
        for index, value in enumerate([*values, holder_value(honest.plan.contact)]):
            node.dht.local.records.store(KEY, value, f"group {index}", trio.current_time(), 0.0)
        assert await node.dht.find_holders(KEY) == [honest.plan.contact]
        assert victim.called == []


async def test_an_unknown_id_of_a_record_is_looked_up(tmp_path: Path) -> None:
    """A holder that only others know is found at the address where it answers."""
    async with nodes(tmp_path) as running:
        node = await running.start("node")
        other = await running.start("other", node)
        honest = await running.start("honest", node)
        await until(lambda: other.knows(node, honest) and node.knows(other, honest), "all know all")
        for _ in range(2):
            node.dht.note_failure(honest.plan.contact)
        assert honest.plan.contact not in node.dht.contacts()
        value = holder_value(honest.plan.contact)
        node.dht.local.records.store(KEY, value, "a group", trio.current_time(), 0.0)
        assert await node.dht.find_holders(KEY) == [honest.plan.contact]


async def test_three_are_asked_at_once_and_slow_ones_hold_up_nobody_else(tmp_path: Path) -> None:
    inside, most = 0, 0
    three = trio.Event()

    async def find(request: Any) -> Any:
        nonlocal inside, most
        if request.target_id != KEY:
            # A lookup of the node's own, to publish itself.
            return None
        inside += 1
        most = max(most, inside)
        if inside == 3:
            three.set()
        # Hold all answers until three strangers have been asked.
        await three.wait()
        inside -= 1
        return None

    async with AsyncExitStack() as stack:
        strangers = [Stranger(f"s{index}", find=find) for index in range(6)]
        ports = [await stack.enter_async_context(a_stranger(each)) for each in strangers]
        running = await stack.enter_async_context(nodes(tmp_path))
        node = await running.start("node")
        for index, port in enumerate(ports):
            contact = Contact(id_named(f"s{index}"), "127.0.0.1", port)
            assert await node.dht.messenger.ping(contact)
        with trio.fail_after(LONG_S):
            result = await node.dht.find_closest(KEY)
        assert most == 3
        assert len(result.closest) == 6


async def test_an_answer_with_thousands_of_contacts(tmp_path: Path) -> None:
    async def tell(_: Any) -> Any:
        told = [
            pb.DHTNodeInfo(node_id=id_named(str(index)), ip="127.0.0.1", port=1 + index)
            for index in range(500)
        ]
        return pb.DHTFindNodeResponse(responder=liar.info, nodes=told)

    async def flood(_: Any) -> Any:
        told = [
            pb.DHTNodeInfo(node_id=id_named(str(index)), ip="127.0.0.1", port=1 + index)
            for index in range(10_000)
        ]
        return pb.DHTFindNodeResponse(responder=liar.info, nodes=told)

    liar = Stranger("liar", find=tell)
    async with a_stranger(liar) as port, nodes(tmp_path) as running:
        plan = running.plan("node")
        plan.trackers = (("127.0.0.1", port + 1000),)
        node = await running.start(plan)
        await until(lambda: node.dht.joined.is_set(), "joined through the liar")
        result = await node.dht.find_closest(key_of("anything"))
        assert result.refused["TooManyContacts"] == 1
        assert result.messages <= 2 * K + 2
        # An answer larger than any honest one is not even read.
        liar.answers["find"] = flood
        result = await node.dht.find_closest(key_of("anything"))
        assert result.closest == ()


@pytest.mark.parametrize("how", ["another id", "never", "no id"])
async def test_a_tracker_that_does_not_answer_as_it_should(tmp_path: Path, how: str) -> None:
    async def answer(_: Any) -> Any:
        if how == "never":
            await trio.sleep_forever()
        if how == "no id":
            return pb.DHTPingResponse()
        stranger.info.node_id = id_named(f"another {len(stranger.called)}")
        return pb.DHTPingResponse(responder=stranger.info)

    stranger = Stranger("s", ping=answer)
    async with a_stranger(stranger) as port, nodes(tmp_path) as running:
        plan = running.plan("node")
        plan.trackers = (("127.0.0.1", port + 1000),)
        if how == "never":
            plan.timings = replace(FAST, call_s=1.5)
        node = await running.start(plan)
        await until(lambda: len(stranger.called) >= 3, "it is tried again")
        other = await running.start("other", node)
        await until(
            lambda: node.knows(other) and other.knows(node), "others are found all the same"
        )


async def test_a_peer_that_lies_about_itself_is_not_listed(tmp_path: Path) -> None:
    """A node that answers GetShardInfo with another id or invalid fields is not made a peer."""
    answers = iter(
        [
            pb.GetShardInfoResponse(node_id=id_named("another").hex()),
            pb.GetShardInfoResponse(node_id="short"),
            pb.GetShardInfoResponse(node_id=id_named("s").hex(), total_layers=-1),
            pb.GetShardInfoResponse(node_id=id_named("s").hex(), total_layers=2, layers=[1, 0]),
            pb.GetShardInfoResponse(node_id=id_named("s").hex(), model_name="x" * 1000),
            pb.GetShardInfoResponse(
                node_id=id_named("s").hex(),
                capacity=pb.NodeCapacity(tokens_per_second=float("nan")),
            ),
        ]
    )

    async def shard(_: Any) -> Any:
        answer_metadata("observed-address", "203.0.113.1")
        return next(answers, pb.GetShardInfoResponse())

    stranger = Stranger("s", shard=shard)
    async with one_node(tmp_path) as (node, stub, _), a_stranger(stranger) as port:
        sender = pb.DHTNodeInfo(node_id=id_named("s"), port=port)

        async def keep_calling() -> None:
            while stranger.called.count("shard") < 7:
                await stub.DHTPing(pb.DHTPingRequest(sender=sender))
                report = pb.UpdatePeerCapacityRequest(
                    node_id=id_named("s").hex(), address=f"127.0.0.1:{port}", timestamp=1.0
                )
                assert not (await stub.UpdatePeerCapacity(report)).accepted
                await trio.sleep(0.05)

        with trio.fail_after(LONG_S):
            await keep_calling()
        assert len(node.book) == 0


async def test_observed_addresses_of_liars_are_not_published(tmp_path: Path) -> None:
    async def ping(_: Any) -> Any:
        answer_metadata("observed-address", "8.8.8.8")
        return pb.DHTPingResponse(responder=stranger.info)

    stranger = Stranger("s", ping=ping)
    async with one_node(tmp_path) as (node, _, _), a_stranger(stranger) as port:
        contact = Contact(id_named("s"), "127.0.0.1", port)
        assert await node.dht.messenger.ping(contact)
        assert node.dht.own_address.best() == "127.0.0.1"
