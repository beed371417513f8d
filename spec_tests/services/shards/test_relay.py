"""Interface 4.3, SwarmForward: a route of real nodes: equal bits, failures and times."""

import struct
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.model.loading import load_model
from meshnode.rpc import pool as pool_module
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.shards.relay import MAX_CALL_S, SHARE_OF_TIME, time_for_next_hop
from meshnode.wire import node_pb2 as pb
from spec_tests.ports import free_port
from spec_tests.rpc.scripted_service import until
from spec_tests.services.shards.holders import (
    LONG_S,
    HolderNode,
    driven,
    executor_of,
    holder_node,
    until_free,
)

pytestmark = pytest.mark.wire

TOKENS = [7, 8, 9, 10, 11]
HANGS_S = 5.0


@asynccontextmanager
async def route(
    directory: Path, *parts: Sequence[int], acquainted: bool = True
) -> AsyncIterator[list[HolderNode]]:
    """Yield a node for each part; all know each other if ``acquainted``."""
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(holder_node(directory, list(part))) for part in parts
        ]
        for node in nodes:
            if acquainted:
                node.known.addresses |= {("127.0.0.1", other.port) for other in nodes}
        yield nodes
        for node in nodes:
            node.holder.close_all()


def message(nodes: Sequence[HolderNode], tokens: Sequence[int], **fields: Any) -> Any:
    fields = {
        "session_id": "s",
        "use_cache": True,
        "hidden_states": struct.pack(f"<{len(tokens)}q", *tokens),
        "hidden_shape": [1, len(tokens)],
        "route": [node.hop for node in nodes],
        **fields,
    }
    return pb.SwarmForwardRequest(**fields)


async def swarm(nodes: Sequence[HolderNode], tokens: Sequence[int], **fields: Any) -> Any:
    stub = await nodes[0].stub()
    return await stub.SwarmForward(message(nodes, tokens, **fields))


async def test_a_chain_gives_the_bits_of_one_node(directory: Path) -> None:
    model = load_model(directory, threads=1)
    async with executor_of(model) as executor, driven([executor], [range(4)]) as one:
        expected = [await one.forward(TOKENS)]
        expected += [await one.forward([token]) for token in (3, 4, 5)]
    for parts in (([0, 1, 2, 3],), ([0], [1, 2], [3]), ([0], [1], [2], [3])):
        async with route(directory, *parts) as nodes:
            pieces = [TOKENS, [3], [4], [5]]
            for piece, logits in zip(pieces, expected, strict=True):
                answer = await swarm(nodes, piece)
                assert answer.success, answer.error_message
                assert list(answer.logits_shape) == [1, 1, 320]
                assert answer.logits == logits.numpy().astype("<f4").tobytes()
                assert [hop.node_id for hop in answer.hops] == [n.node_id for n in nodes]
                assert [hop.first_layer for hop in answer.hops] == [part[0] for part in parts]
                for place, hop in enumerate(answer.hops):
                    assert hop.compute_ms > 0
                    assert hop.queue_ms >= 0
                    assert (hop.network_ms > 0) == (place < len(nodes) - 1)


async def test_closing_goes_along_the_route(directory: Path) -> None:
    async with route(directory, [0], [1, 2], [3]) as nodes:
        await swarm(nodes, TOKENS)
        assert [len(node.holder) for node in nodes] == [1, 1, 1]
        closing = {"hidden_states": b"", "hidden_shape": [], "use_cache": False}
        assert (await swarm(nodes, TOKENS, **closing)).success
        assert [node.executor.kv_bytes_in_use for node in nodes] == [0, 0, 0]


async def test_the_first_caller_may_close_what_was_opened_for_it(directory: Path) -> None:
    """A driver can close a relayed session directly, as when the relaying node is gone."""
    async with route(directory, [0], [1, 2, 3]) as nodes:
        await swarm(nodes, TOKENS)
        stub = await nodes[1].stub()
        await stub.PipelineForward(pb.PipelineForwardRequest(session_id="s", target_shard=1))
        assert [len(node.holder) for node in nodes] == [1, 0]


async def test_a_relay_through_a_common_node_does_not_reach_the_session_of_another_node(
    directory: Path,
) -> None:
    """Two callers with one session id and one first hop get two sessions at the second hop too."""
    async with route(directory, [0], [1, 2, 3]) as nodes:
        await swarm(nodes, TOKENS)
        stub = await nodes[0].stub()
        other = await stub.SwarmForward(
            message(nodes, [1, 2]), metadata={"session-origin": "10.0.0.9"}
        )
        assert other.success
        assert [len(node.holder) for node in nodes] == [2, 2]
        again = await swarm(nodes, [3], position_ids=struct.pack("<q", 5))
        assert again.success, again.error_message


async def test_a_session_that_a_later_hop_lacks_is_reported_with_its_place(directory: Path) -> None:
    async with route(directory, [0], [1, 2], [3]) as nodes:
        await swarm(nodes, TOKENS)
        nodes[2].holder.close_all()
        answer = await swarm(nodes, [3], position_ids=struct.pack("<q", 5))
        assert not answer.success
        assert answer.error_message.startswith("session unknown")
        assert len(answer.hops) == 2
        # The first hop kept its session, so the message can be sent again.
        ((_, record),) = nodes[0].holder._records.items()
        assert record.session.length == 6


async def test_a_hop_that_is_gone_is_reported_with_its_place(directory: Path) -> None:
    async with route(directory, [0], [1, 2]) as nodes, trio.open_nursery() as nursery:
        port = free_port()
        nodes[1].known.addresses.add(("127.0.0.1", port))
        gone = pb.SwarmHop(address=f"127.0.0.1:{port}", first_layer=3, last_layer=3)
        hops = [*(node.hop for node in nodes), gone]
        answer = await swarm(nodes, TOKENS, route=hops)
        assert not answer.success
        assert answer.error_message.startswith("UNAVAILABLE")
        assert len(answer.hops) == 2
        nursery.cancel_scope.cancel()


async def test_a_hop_that_hangs_is_reported_before_the_caller_gives_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The frozen hop accepts no connection; by default, connecting is given up sooner.
    monkeypatch.setattr(pool_module, "CONNECT_S", LONG_S)
    async with route(directory, [0], [1, 2]) as nodes:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nodes[1].known.addresses.add(("127.0.0.1", port))
        frozen = pb.SwarmHop(address=f"127.0.0.1:{port}", first_layer=3, last_layer=3)
        stub = await nodes[0].stub()
        # Each hop keeps a tenth of its time, which the two working hops need on a slow machine.
        with trio.fail_after(HANGS_S):
            answer = await stub.SwarmForward(
                message(nodes, TOKENS, route=[*(node.hop for node in nodes), frozen])
            )
        assert answer.error_message.startswith("DEADLINE_EXCEEDED")
        assert len(answer.hops) == 2
        await listeners[0].aclose()


async def test_a_hop_that_lacks_the_layer_is_reported_with_its_place(directory: Path) -> None:
    async with route(directory, [0], [1, 2], [3]) as nodes:
        wrong = pb.SwarmHop(address=nodes[1].hop.address, first_layer=3, last_layer=3)
        hops = [nodes[0].hop, nodes[1].hop, wrong]
        answer = await swarm(nodes, TOKENS, route=hops)
        assert answer.error_message.startswith("NOT_FOUND")
        assert len(answer.hops) == 2
        impostor = pb.SwarmHop(
            node_id="ab" * 20, address=nodes[1].hop.address, first_layer=1, last_layer=2
        )
        hops = [nodes[0].hop, impostor, nodes[2].hop]
        answer = await swarm(nodes, TOKENS, session_id="t", route=hops)
        assert answer.error_message.startswith("NOT_FOUND")
        assert len(answer.hops) == 1


async def test_an_address_that_is_not_a_peers_is_never_called(directory: Path) -> None:
    called = trio.Event()

    async def stranger(stream: trio.SocketStream) -> None:
        called.set()

    async with (
        route(directory, [0], [1, 2, 3], acquainted=False) as nodes,
        trio.open_nursery() as nursery,
    ):
        listeners = await nursery.start(trio.serve_tcp, stranger, 0)
        port = listeners[0].socket.getsockname()[1]
        for address in (f"127.0.0.1:{port}", nodes[1].hop.address):
            hop = pb.SwarmHop(address=address, first_layer=1, last_layer=3)
            with pytest.raises(CallFailed) as caught:
                await swarm(nodes, TOKENS, route=[nodes[0].hop, hop])
            assert caught.value.code is Code.PERMISSION_DENIED
        # The refused messages were not computed.
        assert nodes[0].executor.steps == 0
        nursery.cancel_scope.cancel()
    assert not called.is_set()


@pytest.mark.parametrize(
    "hops",
    [
        [],
        [(0, 0), (2, 3)],
        [(0, 0), (0, 3)],
        [(0, 0)],
        [(0, -1), (0, 3)],
        [(0, 0), (1, 3), (4, 4)],
        [(0, 0)] * 300,
        [(0, 2**31 - 2), (2**31 - 1, 2**31 - 1)],
    ],
)
async def test_routes_that_lead_nowhere_are_refused(
    directory: Path, hops: list[tuple[int, int]]
) -> None:
    async with route(directory, [0], [1, 2, 3]) as nodes:
        asked = [
            pb.SwarmHop(address=nodes[1].hop.address, first_layer=a, last_layer=b) for a, b in hops
        ]
        with pytest.raises(CallFailed) as caught:
            await swarm(nodes, TOKENS, route=asked)
        assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("address", ["", "host", ":1", "127.0.0.1:", "127.0.0.1:x", "a:123456"])
async def test_malformed_addresses_are_refused(directory: Path, address: str) -> None:
    async with route(directory, [0]) as nodes:
        hop = pb.SwarmHop(address=address, first_layer=1, last_layer=3)
        with pytest.raises(CallFailed) as caught:
            await swarm(nodes, TOKENS, route=[nodes[0].hop, hop])
        assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_cancelled_route_frees_every_hop(directory: Path, place: int) -> None:
    async with route(directory, [0], [1, 2], [3]) as nodes:
        node = nodes[place]
        begun, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            go_on.wait()

        async with trio.open_nursery() as nursery:
            # Keep this hop's thread busy until the cancellation has arrived.
            nursery.start_soon(node.executor.compute, hold)
            try:
                await until(begun.is_set, "the hop is held")
                async with trio.open_nursery() as calling:
                    calling.start_soon(swarm, nodes, [5] * 200)
                    await until(lambda: len(node.holder) == 1, "the hop computes")
                    assert node.executor.kv_bytes_in_use > 0
                    calling.cancel_scope.cancel()
                await until(lambda: len(node.holder) == 0, "its session has ended")
            finally:
                go_on.set()
        with trio.fail_after(LONG_S):
            await until_free(node.executor)
        # Later hops got no message; earlier hops had finished it and keep their sessions.
        assert [len(one.holder) for one in nodes] == [1] * place + [0] * (3 - place)
        closing = {"hidden_states": b"", "hidden_shape": [], "use_cache": False}
        assert (await swarm(nodes, TOKENS, **closing)).success
        assert [one.executor.kv_bytes_in_use for one in nodes] == [0, 0, 0]


async def test_the_next_hop_gets_no_time_once_the_deadline_has_passed() -> None:
    """A deadline that passes while this hop computes cancels the next call without an error."""
    assert time_for_next_hop() == MAX_CALL_S * SHARE_OF_TIME
    with trio.move_on_after(10.0):
        await trio.lowlevel.checkpoint()
        assert 0.0 < time_for_next_hop() <= 10.0 * SHARE_OF_TIME
    with trio.CancelScope(deadline=trio.current_time() - 1.0):
        with trio.move_on_after(time_for_next_hop()) as call:
            await trio.sleep_forever()
        assert call.cancel_called
