"""Servers enforce the caller's deadline, and each call that a node makes has a deadline."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import Channel, open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    Probe,
    grpcio_peer,
    grpcio_server,
    in_thread,
    raw_peer,
    running,
    until,
)

pytestmark = pytest.mark.wire

WAIT = pb.PipelineForwardRequest(session_id="wait")


@asynccontextmanager
async def silent_node(limits: RpcLimits) -> AsyncIterator[tuple[Probe, Channel]]:
    probe = Probe()
    async with (
        running(probe) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter(), limits=limits) as channel,
    ):
        yield probe, channel


async def test_the_callers_deadline_ends_the_handler() -> None:
    probe = Probe()
    async with running(probe) as port, raw_peer(port) as peer:
        body = WAIT.SerializeToString()
        # This client sends a deadline and does not enforce it, so only the server can.
        stream_id = await peer.request(
            body=b"\0" + len(body).to_bytes(4, "big") + body, grpc_timeout="2S"
        )
        assert await peer.status(stream_id) == str(int(Code.DEADLINE_EXCEEDED))
        await probe.ended.wait()
        assert probe.outcome == "cancelled"


async def test_a_grpcio_client_sees_its_deadline() -> None:
    probe = Probe()
    async with running(probe) as port:
        with grpcio_peer(port) as peer:
            # The first call connects, so that connecting does not count towards the deadline.
            assert (await in_thread(peer.forward)).success
            probe.ended = trio.Event()
            error = await in_thread(peer.failure, "wait", timeout=2.0)
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await probe.ended.wait()
            assert probe.outcome == "cancelled"


async def test_a_call_without_a_deadline_gets_the_default() -> None:
    async with silent_node(RpcLimits(default_call_s=2.0)) as (probe, channel):
        with pytest.raises(CallFailed) as failure:
            await NodeServiceStub(channel).PipelineForward(WAIT)
        assert failure.value.code is Code.DEADLINE_EXCEEDED
        await probe.ended.wait()
        assert probe.outcome == "cancelled"


async def test_a_stream_without_a_deadline_gets_the_default() -> None:
    async with silent_node(RpcLimits(default_stream_s=2.0)) as (_, channel):
        async with NodeServiceStub(channel).StreamInference() as call:
            with pytest.raises(CallFailed) as failure:
                await call.receive()
        assert failure.value.code is Code.DEADLINE_EXCEEDED


async def test_the_callers_own_scope_wins() -> None:
    async with silent_node(RpcLimits()) as (probe, channel):
        with pytest.raises(trio.TooSlowError), trio.fail_after(2.0):
            await NodeServiceStub(channel).PipelineForward(WAIT)
        # The handler is cancelled by the reset or by the sent deadline, whichever comes first.
        await probe.ended.wait()
        assert probe.outcome == "cancelled"


@pytest.mark.parametrize("seconds", [100.0, 500.0])
async def test_the_peer_gets_the_deadline(seconds: float) -> None:
    seen: list[float] = []

    def forward(
        request: pb.PipelineForwardRequest, context: grpc.ServicerContext
    ) -> pb.PipelineForwardResponse:
        seen.append(context.time_remaining())
        return pb.PipelineForwardResponse(success=True)

    with grpcio_server(PipelineForward=forward) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            with trio.fail_after(seconds):
                await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())
    assert seconds / 2 < seen[0] <= seconds * 1.1


async def test_a_request_that_never_arrives_is_not_waited_for() -> None:
    limits = RpcLimits(arrival_s=2.0)
    async with running(Probe(), limits=limits) as port, raw_peer(port) as peer:
        stream_id = await peer.request(body=b"\0\0\0\0\x05ab", end=False)
        assert await peer.status(stream_id) == str(int(Code.DEADLINE_EXCEEDED))
        await until(lambda: not peer.closed, "still connected")
        assert await peer.forward()


async def test_a_message_of_a_stream_that_never_arrives_whole_is_not_waited_for() -> None:
    """A partial message times out, as it holds shared memory; a pause between messages does not."""
    probe = Probe()
    message = pb.InferenceRequest(max_tokens=1).SerializeToString()
    path = {":path": "/node.NodeService/StreamInference"}
    whole = prefix(message) + message
    async with running(probe, limits=RpcLimits(arrival_s=0.05)) as port, raw_peer(port) as peer:
        between = await peer.request(body=whole, end=False, **path)
        partial = await peer.request(body=whole + whole[:-1], end=False, **path)
        assert await peer.status(partial) == str(int(Code.DEADLINE_EXCEEDED))
        peer.h2.send_data(between, whole, end_stream=True)
        await peer.flush()
        assert await peer.status(between) == "0"
