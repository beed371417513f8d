"""Calls that wait for their callers give way on a full server (decision 0129)."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import trio

from meshnode.rpc.errors import Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.health import HealthServicer
from meshnode.rpc.limits import RpcLimits
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    Probe,
    RawPeer,
    grpcio_peer,
    in_thread,
    raw_peer,
    running,
    until,
)

pytestmark = pytest.mark.wire
MIB = 1 << 20
STREAM: dict[str, Any] = {":path": "/node.NodeService/StreamInference"}
EXHAUSTED, LATE = str(int(Code.RESOURCE_EXHAUSTED)), str(int(Code.DEADLINE_EXCEEDED))


async def test_idle_streams_keep_nobody_out_and_the_oldest_gives_way() -> None:
    async with (
        running(Probe(), limits=RpcLimits(calls=3)) as port,
        raw_peer(port) as idle,
        raw_peer(port) as other,
    ):
        streams = [await idle.request(end=False, **STREAM) for _ in range(3)]
        assert await other.forward()
        assert await idle.status(streams[0]) == EXHAUSTED
        # That call has ended, so there is room for one more.
        streams.append(await idle.request(end=False, **STREAM))
        assert await other.forward()
        assert await idle.status(streams[1]) == EXHAUSTED
        assert not idle.fields(streams[2])
        assert not idle.closed


async def test_calls_that_work_do_not_give_way() -> None:
    probe = Probe()
    async with running(probe, limits=RpcLimits(calls=2)) as port, raw_peer(port) as idle:
        with grpcio_peer(port) as busy:
            work = busy.forward_future("wait")
            await until(lambda: probe.running == 1, "it works")
            stream = await idle.request(end=False, **STREAM)
            assert await idle.forward()
            assert await idle.status(stream) == EXHAUSTED
            more = busy.forward_future("wait")
            await until(lambda: probe.running == 2, "both work")
            error = await in_thread(busy.failure)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            probe.release.set()
            assert (await in_thread(work.result)).success
            assert (await in_thread(more.result)).success


async def test_connections_whose_calls_are_all_idle_keep_nobody_out() -> None:
    async with (
        running(Probe(), limits=RpcLimits(connections=2)) as port,
        raw_peer(port) as one,
        raw_peer(port) as two,
    ):
        for peer in (one, two):
            await peer.request(end=False, **STREAM)
            await peer.flush()
            assert await peer.forward()
        async with raw_peer(port) as three:
            assert await three.forward()
            await until(lambda: one.closed, "made room")
            assert not two.closed


async def test_a_stream_without_a_message_ends_after_a_while() -> None:
    async with running(Probe(), limits=RpcLimits(idle_s=0.05)) as port, raw_peer(port) as peer:
        stream = await peer.request(end=False, **STREAM)
        assert await peer.status(stream) == LATE
        assert await peer.forward()


async def half_send(peer: RawPeer, sent: int) -> int:
    """Begin a message of 1 MiB and stop after ``sent`` bytes; return the stream's id."""
    await until(lambda: peer.h2.remote_settings.initial_window_size > MIB, "the node's settings")
    body = pb.PipelineForwardRequest(hidden_states=bytes(MIB)).SerializeToString()
    stream_id = await peer.request(body=prefix(body), end=False)
    peer.h2.send_data(stream_id, body[:sent])
    await peer.flush()
    return stream_id


async def test_half_sent_messages_leave_memory_for_others() -> None:
    limits = RpcLimits(bytes_in_flight=320_000)
    async with (
        running(Probe(), limits=limits) as port,
        raw_peer(port) as half,
        raw_peer(port) as other,
    ):
        streams = [await half_send(half, 100_000) for _ in range(3)]
        # Having just sent something, they are not idle for a moment: nobody else has room then.
        while not await other.forward(bytes(60_000)):
            assert len(streams) == 3
        assert await half.status(streams[0]) == EXHAUSTED
        assert not half.fields(streams[2])
        assert not half.closed


async def test_an_address_has_its_share_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RpcLimits, "bytes_of_one", lambda limits, ip: limits.bytes_in_flight // 2)
    probe = Probe()
    limits = RpcLimits(bytes_in_flight=100_000)
    wait = pb.PipelineForwardRequest(session_id="wait", hidden_states=bytes(40_000))
    body = wait.SerializeToString()
    async with (
        running(probe, limits=limits) as port,
        raw_peer(port, "127.0.0.8") as one,
        raw_peer(port, "127.0.0.9") as other,
    ):
        # It works, so its bytes are not taken away.
        await one.request(body=prefix(body) + body)
        await until(lambda: probe.running == 1, "it works")
        assert not await one.forward(bytes(20_000))
        assert await other.forward(bytes(20_000))


async def test_an_answer_that_is_not_read_leaves_memory_for_others() -> None:
    limits = RpcLimits(bytes_in_flight=260_000)
    data = pb.PipelineForwardRequest(hidden_states=bytes(100_000)).SerializeToString()
    async with (
        running(Probe(), limits=limits) as port,
        raw_peer(port) as deaf,
        raw_peer(port) as other,
    ):
        await until(lambda: deaf.h2.remote_settings.initial_window_size > MIB, "settings")
        # The windows of this peer stay at 64 KiB: it takes none of the bytes that arrive.
        deaf.h2.acknowledge_received_data = lambda *_: None  # type: ignore[method-assign]
        stream = await deaf.request(body=prefix(data) + data)
        await until(lambda: bool(deaf.fields(stream)), "the answer begins")
        while not await other.forward(bytes(60_000)):
            assert not deaf.closed
        assert await deaf.status(stream) == EXHAUSTED


async def test_who_watches_the_health_gives_way() -> None:
    health = HealthServicer(services=[], serving=lambda: True, wait_stopping=trio.sleep_forever)
    watch: dict[str, Any] = {":path": "/grpc.health.v1.Health/Watch"}
    async with (
        running(Probe(), health, limits=RpcLimits(calls=2)) as port,
        raw_peer(port) as watching,
        raw_peer(port) as other,
    ):
        streams = [await watching.request(body=b"\0" * 5, **watch) for _ in range(2)]
        for stream in streams:
            await until(lambda: bool(watching.fields(stream)), "watching")  # noqa: B023
        assert await other.forward()
        assert await watching.status(streams[0]) == EXHAUSTED
        assert "grpc-status" not in watching.fields(streams[1])
