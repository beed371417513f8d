"""Interface 2.1, 2.3 and 4.3: nodes find each other through any one of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.kademlia.holding import NETWORK_KEY, holder_value, layer_key
from meshnode.domain.kademlia.node_id import key_of
from meshnode.domain.kademlia.records import RecordLimits
from spec_tests.services.dht.nodes import FAST, FAST_PEERS, LONG_S, id_named, nodes, until

pytestmark = pytest.mark.wire


async def test_two_nodes_find_each_other(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a)
        with trio.fail_after(LONG_S):
            await b.dht.joined.wait()
        await until(lambda: a.knows(b) and b.knows(a), "both know each other")
        peer = a.book.get(b.info.node_id)
        assert peer is not None
        assert peer.address == f"127.0.0.1:{b.plan.port}"
        assert peer.grpc_port == b.plan.grpc_port
        assert peer.latency_ms > 0
        assert a.book.knows("127.0.0.1", b.plan.grpc_port)
        assert a.book.holders(2) == [peer]


async def test_five_nodes_in_a_chain_of_trackers(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        chain = [await running.start("0")]
        for index in range(1, 5):
            chain.append(await running.start(str(index), chain[-1]))
        for node in chain:
            others = [other for other in chain if other is not node]
            await until(lambda n=node, o=others: n.knows(*o), f"{node.plan.name} knows all")


async def test_layers_and_nodes_are_published(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a", layers=[0, 1])
        b = await running.start("b", a, layers=[2, 3])
        c = await running.start("c", b, layers=[1, 2])
        values = {node.plan.name: holder_value(node.plan.contact) for node in (a, b, c)}

        async def found(node: Any, key: Any) -> set[str]:
            return set((await node.dht.find_values(key)).values)

        expected = {
            NETWORK_KEY: {"a", "b", "c"},
            layer_key(a.info.model_hash, 0): {"a"},
            layer_key(a.info.model_hash, 1): {"a", "c"},
        }
        with trio.fail_after(LONG_S):
            for node in (a, b, c):
                for key, names in expected.items():
                    while await found(node, key) != {values[name] for name in names}:  # noqa: ASYNC110 - asks the network
                        await trio.sleep(0.05)
        holders = await c.dht.find_holders(layer_key(c.info.model_hash, 3))
        assert holders == [b.plan.contact]


async def test_a_record_outlives_its_publisher(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a)
        c = await running.start("c", a)
        await until(lambda: a.knows(b, c) and b.knows(a, c), "all know each other")
        key = key_of("something")
        assert await c.dht.publish(key, "10.0.0.1:80 x") == 2
        await running.stop(c)
        assert (await a.dht.find_values(key)).values == ("10.0.0.1:80 x",)


async def test_records_are_handed_on_and_grow_no_younger(tmp_path: Path) -> None:
    limits = RecordLimits(hand_on_s=0.2)
    async with nodes(tmp_path) as running:
        a = await running.start("a", record_limits=limits)
        b = await running.start("b", a, record_limits=limits)
        await until(lambda: a.knows(b) and b.knows(a), "both know each other")
        key = key_of("something")
        assert await b.dht.publish(key, "v", age_s=3000.0) == 1
        published = trio.current_time() - 3000.0
        await running.stop(b)
        c = await running.start("c", a, record_limits=limits)

        def held() -> list[float]:
            return [record.published_at for record in c.dht.local.records if record.key == key]

        await until(held, "the newcomer has it")
        for _ in range(3):
            # Ages are sent in whole seconds, and sending takes some time.
            assert abs(held()[0] - published) < 300
            await trio.sleep(0.2)


async def test_a_record_that_is_too_old_is_not_held(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a)
        await until(lambda: a.knows(b) and b.knows(a), "both know each other")
        key = key_of("something")
        await b.dht.publish(key, "v", age_s=3600.0)
        assert not [record for record in a.dht.local.records if record.key == key]


async def test_a_tracker_that_comes_late(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        late = running.plan("late")
        other = running.plan("other")
        b = await running.start("b", late, other)
        await trio.sleep(0.2)
        assert not b.dht.joined.is_set()
        a = await running.start(late)
        await until(lambda: a.knows(b) and b.knows(a), "joined through the late one")
        # The second tracker is a network of its own until b, which knows it, contacts it.
        c = await running.start(other)
        await until(lambda: all([a.knows(b, c), b.knows(a, c), c.knows(a, b)]), "all are one")


async def test_a_restart_rejoins_without_its_tracker(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        tracker = await running.start("tracker")
        a = await running.start("a", tracker)
        b = await running.start("b", tracker)
        await until(lambda: a.knows(tracker, b) and b.knows(tracker, a), "all know each other")
        peers_file = a.plan.data_dir / "peers.json"
        await until(
            lambda: peers_file.exists() and id_named("b").hex() in peers_file.read_text(),
            "a remembers b",
        )
        await running.stop(tracker)
        await running.stop(a)
        await until(lambda: b.knows(), "both are gone")
        again = await running.start(a.plan)
        await until(lambda: again.knows(b) and b.knows(again), "they met again")


async def test_a_peer_that_dies_is_gone_and_comes_back_elsewhere(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a)
        c = await running.start("c", a)
        await until(lambda: a.knows(b, c) and c.knows(a, b), "all know each other")
        await running.stop(b)
        await until(lambda: a.knows(c) and c.knows(a), "b is gone")
        again = await running.start("b", a)
        assert again.plan.port != b.plan.port
        await until(lambda: a.knows(again, c) and c.knows(a, again), "b is back")
        peer = c.book.get(again.info.node_id)
        assert peer is not None
        assert peer.port == again.plan.port


async def test_a_peer_that_moves_at_once_leaves_no_ghost(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a)
        await until(lambda: a.knows(b) and b.knows(a), "both know each other")
        await running.stop(b)
        moved = await running.start("b", a)

        def at_new_address() -> bool:
            assert len(a.book) <= 1
            return [peer.port for peer in a.book.peers()] == [moved.plan.port]

        await until(at_new_address, "the peer is where it is now")


async def test_a_peer_that_is_suspected_and_has_moved_is_soon_there(tmp_path: Path) -> None:
    """A suspected peer is found at its new address long before its old one is tried again."""
    async with nodes(tmp_path) as running:
        # No periodic work runs, so that nothing else calls the old address.
        never = 10 * LONG_S
        quiet = replace(
            FAST, own_lookup_s=never, republish_s=never, hand_on_s=never, trackers_s=never
        )
        seldom = replace(FAST_PEERS, beat_s=never, search_s=never)
        options = {"timings": quiet, "peer_timings": seldom}
        a = await running.start("a", **options)
        b = await running.start("b", a, **options)
        await until(lambda: a.knows(b) and b.knows(a), "both know each other")
        publications = a.dht.local.publications
        await until(lambda: not publications.due(trio.current_time()), "all is published")
        await running.stop(b)
        a.book.suspect(b.info.node_id)
        await until(a.knows, "b is gone")
        await until(lambda: a.dht.contacts() == [], "from the routing table too")
        moved = await running.start("b", a, **options)
        await until(lambda: a.knows(moved) and moved.knows(a), "b is where it is now")
        assert [peer.port for peer in a.book.peers()] == [moved.plan.port]


async def test_a_peer_of_another_model_is_not_a_holder(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a, model="b" * 64)
        await until(lambda: a.knows(b) and b.knows(a), "both know each other")
        assert a.book.holders(0) == []
        assert b.book.holders(0) == []


async def test_a_suspect_is_checked_at_once(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a)
        await until(lambda: a.knows(b), "a knows b")
        entry = a.book._roster._entries[b.info.node_id]
        for _ in range(3):
            a.book.suspect(b.info.node_id)
            assert entry.suspected
            await until(lambda: not entry.suspected, "it was checked")
            assert a.knows(b)
        await running.stop(b)
        a.book.suspect(b.info.node_id)
        await until(a.knows, "b is gone")


async def test_layers_that_change_are_seen(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        a = await running.start("a")
        b = await running.start("b", a, layers=[0, 1])
        await until(lambda: a.knows(b), "a knows b")
        assert a.book.holders(3) == []
        b.info = replace(b.info, layers=(2, 3))
        await until(lambda: a.book.holders(3), "the new layers")
        assert a.book.holders(0) == []
        assert a.book.peers()[0].role == "validator"
