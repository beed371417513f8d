"""Interface 8: connections to peers are kept, shared, and replaced when they break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from meshnode.domain.kademlia.address import source_for
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc import pool as pool_module
from meshnode.rpc.channel import Channel, open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.pool import MAX_LINKS, ChannelPool, serve_pool
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import LONG_S, Probe, running, until

pytestmark = pytest.mark.wire

HELLO = pb.PipelineForwardRequest()


@asynccontextmanager
async def a_pool(
    max_links: int = MAX_LINKS, **options: Any
) -> AsyncIterator[tuple[ChannelPool, TrafficMeter]]:
    traffic = TrafficMeter()
    serve = partial(serve_pool, traffic, max_links=max_links, **options)
    async with trio.open_nursery() as nursery:
        yield await nursery.start(serve), traffic
        nursery.cancel_scope.cancel()
    assert traffic.active_connections == 0


async def test_calls_to_one_address_share_a_connection() -> None:
    async with a_pool() as (pool, _), running(Probe()) as port:

        async def call() -> None:
            stub = await pool.stub("127.0.0.1", port)
            assert (await stub.PipelineForward(HELLO)).success

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(call)
        assert len(pool) == 1


async def test_a_link_and_its_connection_show_address_and_state() -> None:
    async with a_pool() as (pool, _), running(Probe()) as port:
        await pool.stub("127.0.0.1", port)
        (link,) = pool._all
        assert repr(link) == f"<link 127.0.0.1:{port} open>"
        assert link.channel
        connection = repr(link.channel.connection)
        assert connection == f"<ClientConnection 127.0.0.1:{port} known calls=0>"


async def test_a_host_is_called_from_the_address_that_is_said_for_it() -> None:
    source = partial(source_for, "127.0.2.1")
    async with a_pool(source=source) as (pool, _), running(Probe()) as port:
        stub = await pool.stub("127.0.0.1", port)
        assert (await stub.PipelineForward(HELLO)).success
        (link,) = pool._all
        assert link.channel
        here = link.channel.connection.transport._sock.getsockname()
        assert here[0] == "127.0.2.1"


async def test_nobody_there_is_unavailable_for_all_who_wait() -> None:
    failures: list[Any] = []

    async def call() -> None:
        with pytest.raises(CallFailed) as failure:
            await pool.stub("127.0.0.1", 1)
        failures.append(failure.value.code)

    async with a_pool() as (pool, _):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)
        assert failures == [Code.UNAVAILABLE] * 3
        assert len(pool) == 0


async def _say_nothing(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def test_a_peer_that_never_speaks_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "CONNECT_S", 0.05)
    async with a_pool() as (pool, _), trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, _say_nothing, 0)
        port = listeners[0].socket.getsockname()[1]
        with trio.fail_after(LONG_S), pytest.raises(CallFailed) as failure:
            await pool.stub("127.0.0.1", port)
        assert failure.value.code is Code.UNAVAILABLE
        nursery.cancel_scope.cancel()


async def test_a_caller_that_gives_up_leaves_the_connection_to_others() -> None:
    async with a_pool() as (pool, _), running(Probe()) as port:
        with trio.CancelScope() as scope:
            scope.cancel()
            await pool.stub("127.0.0.1", port)
        assert scope.cancelled_caught
        stub = await pool.stub("127.0.0.1", port)
        assert (await stub.PipelineForward(HELLO)).success
        assert len(pool) == 1


async def test_a_connection_that_broke_is_made_again() -> None:
    async with a_pool() as (pool, _):
        async with running(Probe()) as port:
            stub = await pool.stub("127.0.0.1", port)
            assert (await stub.PipelineForward(HELLO)).success
        await until(lambda: len(pool) == 0, "the link is forgotten")
        with pytest.raises(CallFailed):
            await pool.stub("127.0.0.1", port)
        async with running(Probe()) as port:
            stub = await pool.stub("127.0.0.1", port)
            assert (await stub.PipelineForward(HELLO)).success


async def test_a_server_that_closes_lets_calls_end_and_takes_no_others() -> None:
    probe, shutdown = Probe(), trio.Event()
    answers = []
    async with a_pool() as (pool, _), running(probe, shutdown=shutdown, grace_s=20) as port:
        stub = await pool.stub("127.0.0.1", port)

        async def call() -> None:
            answers.append(await stub.PipelineForward(pb.PipelineForwardRequest(session_id="wait")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await probe.started.wait()
            shutdown.set()
            with trio.fail_after(LONG_S):
                while await _can_call(pool, port):
                    pass
            probe.release.set()
        assert answers[0].success
        await until(lambda: len(pool) == 0, "the link is forgotten")


async def _can_call(pool: ChannelPool, port: int) -> bool:
    try:
        await (await pool.stub("127.0.0.1", port)).PipelineForward(HELLO)
    except CallFailed:
        return False
    return True


async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_S", 1.0)
    async with a_pool() as (pool, traffic), running(Probe()) as port:
        stub = await pool.stub("127.0.0.1", port)
        assert (await stub.PipelineForward(HELLO)).success
        await until(lambda: len(pool) == 0, "the idle link is closed")
        assert traffic.active_connections == 0


async def test_a_distrusted_connection_is_not_used_again() -> None:
    probe = Probe()
    async with a_pool() as (pool, _), running(probe) as port:
        stub = await pool.stub("127.0.0.1", port)
        async with trio.open_nursery() as nursery:
            waiting = pb.PipelineForwardRequest(session_id="wait")
            nursery.start_soon(stub.PipelineForward, waiting)
            await probe.started.wait()
            pool.distrust("127.0.0.1", port)
            again = await pool.stub("127.0.0.1", port)
            assert (await again.PipelineForward(HELLO)).success
            assert len(pool) == 2
            probe.release.set()


async def test_one_that_has_just_connected_does_not_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time spent connecting is not idle time; a connection that was really idle is replaced."""
    monkeypatch.setattr(pool_module, "CONNECT_S", LONG_S)
    begun, may_connect = trio.Event(), trio.Event()

    @asynccontextmanager
    async def slow_for_one(host: str, port: int, **options: Any) -> AsyncIterator[Channel]:
        if port == one:
            begun.set()
            await may_connect.wait()
        async with open_channel(host, port, **options) as channel:
            yield channel

    monkeypatch.setattr(pool_module, "open_channel", slow_for_one)
    async with (
        a_pool(2) as (pool, _),
        running(Probe()) as one,
        running(Probe()) as two,
        running(Probe()) as three,
        trio.open_nursery() as nursery,
    ):

        async def call_one_when_there_are_three() -> None:
            stub = await pool.stub("127.0.0.1", one)
            await pool.stub("127.0.0.1", three)
            assert len(pool) == 2
            assert (await stub.PipelineForward(HELLO)).success

        nursery.start_soon(call_one_when_there_are_three)
        await begun.wait()
        await pool.stub("127.0.0.1", two)
        may_connect.set()


async def test_the_longest_idle_makes_room() -> None:
    probe = Probe()
    async with a_pool(2) as (pool, _), running(probe) as one, running(Probe()) as two:
        async with running(Probe()) as three, trio.open_nursery() as nursery:
            waiting = pb.PipelineForwardRequest(session_id="wait")
            nursery.start_soon((await pool.stub("127.0.0.1", one)).PipelineForward, waiting)
            await probe.started.wait()
            await pool.stub("127.0.0.1", two)
            busy = await pool.stub("127.0.0.1", three)
            assert len(pool) == 2
            async with trio.open_nursery() as inner:
                inner.start_soon(partial(_hold, busy))
                await trio.testing.wait_all_tasks_blocked()
                probe.release.set()
        await until(lambda: len(pool) < 2, "the third server is gone")


async def _hold(stub: object) -> None:
    assert (await stub.PipelineForward(HELLO)).success  # type: ignore[attr-defined]


async def test_a_pool_full_of_calls_refuses() -> None:
    probe = Probe()
    async with a_pool(1) as (pool, _), running(probe) as port, trio.open_nursery() as nursery:
        waiting = pb.PipelineForwardRequest(session_id="wait")
        nursery.start_soon((await pool.stub("127.0.0.1", port)).PipelineForward, waiting)
        await probe.started.wait()
        with pytest.raises(CallFailed) as failure:
            await pool.stub("127.0.0.1", port + 1)
        assert failure.value.code is Code.RESOURCE_EXHAUSTED
        probe.release.set()


async def test_a_pool_that_ends_ends_the_calls() -> None:
    probe = Probe()
    codes = []

    async def call(stub: object) -> None:
        with pytest.raises(CallFailed) as failure:
            await stub.PipelineForward(pb.PipelineForwardRequest(session_id="wait"))  # type: ignore[attr-defined]
        codes.append(failure.value.code)

    async with running(probe) as port, trio.open_nursery() as nursery, a_pool() as (pool, _):
        nursery.start_soon(call, await pool.stub("127.0.0.1", port))
        await probe.started.wait()
    assert codes == [Code.UNAVAILABLE]


async def test_a_pool_that_ends_keeps_nobody_waiting() -> None:
    async with trio.open_nursery() as nursery:
        pool: ChannelPool = await nursery.start(serve_pool, TrafficMeter())
        nursery.cancel_scope.cancel()
        for _ in range(2):
            # The first call comes while the pool is ending, the second after its end.
            with (
                trio.CancelScope(shield=True),
                trio.fail_after(LONG_S),
                pytest.raises(CallFailed) as failure,
            ):
                await pool.stub("127.0.0.1", 1)
            assert failure.value.code is Code.UNAVAILABLE
            assert len(pool) == 0


async def test_distrust_does_not_touch_a_connection_that_is_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failed call used an earlier connection, so the one being made is kept."""
    may_connect = trio.Event()

    @asynccontextmanager
    async def slow(host: str, port: int, **options: Any) -> AsyncIterator[Channel]:
        await may_connect.wait()
        async with open_channel(host, port, **options) as channel:
            yield channel

    monkeypatch.setattr(pool_module, "open_channel", slow)
    monkeypatch.setattr(pool_module, "CONNECT_S", LONG_S)

    async def call() -> None:
        stub = await pool.stub("127.0.0.1", port)
        assert (await stub.PipelineForward(HELLO)).success

    async with a_pool() as (pool, _), running(Probe()) as port:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            pool.distrust("127.0.0.1", port)
            may_connect.set()
        assert len(pool) == 1
