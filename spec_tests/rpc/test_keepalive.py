"""Interface 8: client and server ping every 30 s with a timeout of 10 s, with or without calls."""

from typing import Any

import grpc
import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    LARGE,
    LONG_S,
    WIDE_OPEN,
    Probe,
    grpcio_peer,
    grpcio_server,
    in_thread,
    running,
    until,
)

pytestmark = pytest.mark.wire

WAIT = pb.PipelineForwardRequest(session_id="wait")
QUICK = RpcLimits(keepalive_s=0.05, keepalive_timeout_s=20.0)
STRICT = RpcLimits(keepalive_s=0.05, keepalive_timeout_s=0.5, default_call_s=LONG_S)
"""Limits for tests whose peer never answers; a real one could be too slow for them."""


def test_the_default_times_are_the_documents() -> None:
    assert RpcLimits().keepalive_s == 30.0
    assert RpcLimits().keepalive_timeout_s == 10.0


@pytest.mark.parametrize("every_ms", [30_000, 1000])
async def test_a_grpcio_client_may_ping_as_often_as_it_likes(every_ms: int) -> None:
    probe = Probe()
    traffic = TrafficMeter()
    options = [
        ("grpc.keepalive_time_ms", every_ms),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    async with running(probe, traffic=traffic) as port:
        with grpcio_peer(port, *options) as peer:
            call = peer.forward_future("wait")
            await probe.started.wait()
            if every_ms == 1000:
                # grpcio pings at most once a second. A server that limits pings would hang up after
                # two strikes, so wait for three pings of 17 bytes each.
                before = traffic.bytes_received
                await until(lambda: traffic.bytes_received >= before + 3 * 17, "three pings")
            probe.release.set()
            assert (await in_thread(call.result)).success
            assert (await in_thread(peer.forward)).success
            assert traffic.active_connections == 1, "never hung up on for its pings"


async def test_our_pings_keep_a_channel_that_waits() -> None:
    probe = Probe()
    traffic = TrafficMeter()
    async with (
        running(probe, traffic=traffic) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter(), limits=QUICK) as channel,
    ):
        before = traffic.bytes_received
        await until(lambda: traffic.bytes_received > before + 5 * 17, "pings without calls")
        assert channel.usable
        await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())


async def test_a_peer_that_does_not_answer_pings_is_given_up() -> None:
    async def deaf(stream: trio.SocketStream) -> None:
        server = H2Connection(H2Configuration(client_side=False))
        server.initiate_connection()
        await stream.send_all(server.data_to_send())
        # Read everything and send nothing: no answers, and no GOAWAY either.
        while await stream.receive_some():
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, deaf, 0)
        port = listeners[0].socket.getsockname()[1]
        async with open_channel(
            "127.0.0.1", port, traffic=TrafficMeter(), limits=STRICT
        ) as channel:
            with pytest.raises(CallFailed) as failure:
                await NodeServiceStub(channel).PipelineForward(WAIT)
            assert failure.value.code is Code.UNAVAILABLE
            assert not channel.usable
        nursery.cancel_scope.cancel()


async def test_a_grpcio_server_answers_our_pings() -> None:
    def forward(request: Any, context: grpc.ServicerContext) -> pb.PipelineForwardResponse:
        return pb.PipelineForwardResponse(success=True)

    options = [
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10),
    ]
    traffic = TrafficMeter()
    with grpcio_server(*options, PipelineForward=forward) as port:
        async with open_channel("127.0.0.1", port, traffic=traffic, limits=QUICK) as channel:
            before = traffic.bytes_received
            await until(lambda: traffic.bytes_received > before + 3 * 17, "answers to pings")
            answer = await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())
            assert answer.success


async def test_a_peer_that_vanishes_in_the_middle_of_a_message_is_given_up() -> None:
    async def never_read(stream: trio.SocketStream) -> None:
        await stream.send_all(WIDE_OPEN)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, never_read, 0)
        port = listeners[0].socket.getsockname()[1]
        async with open_channel(
            "127.0.0.1", port, traffic=TrafficMeter(), limits=STRICT
        ) as channel:
            with trio.fail_after(LONG_S), pytest.raises(CallFailed) as failure:
                await NodeServiceStub(channel).PipelineForward(LARGE)
            assert failure.value.code is Code.UNAVAILABLE
            # The sending task still has data left when the connection is given up. Let it run.
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
