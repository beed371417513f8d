"""Interface 8: 100 MiB both ways, RESOURCE_EXHAUSTED above, and memory that is bounded."""

from typing import Any

import grpc
import pytest
import trio
from h2.events import DataReceived, SettingsAcknowledged

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import MAX_MESSAGE_BYTES, RpcLimits
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    Probe,
    RawPeer,
    grpcio_peer,
    grpcio_server,
    in_thread,
    raw_peer,
    running,
    until,
)

pytestmark = pytest.mark.wire

MIB = 1024 * 1024
ACKNOWLEDGE = "acknowledge_received_data"


def filled(size: int) -> pb.PipelineForwardRequest:
    """A request of exactly ``size`` bytes on the wire."""
    request = pb.PipelineForwardRequest(hidden_states=bytes(size - 10))
    return pb.PipelineForwardRequest(hidden_states=bytes(2 * size - 10 - request.ByteSize()))


def forward(peer: Any, request: Any, timeout: Any = 30) -> Any:
    call = peer.unary("PipelineForward", request, pb.PipelineForwardResponse)
    return call(request, timeout=timeout)


def keep_window(peer: RawPeer) -> None:
    """Stop the peer from enlarging any flow control window of the connection."""
    quiet: Any = lambda size, stream_id: None  # noqa: E731
    setattr(peer.h2, ACKNOWLEDGE, quiet)


async def test_the_largest_message_goes_both_ways() -> None:
    request = filled(MAX_MESSAGE_BYTES - 2)  # the answer has one more field, of two bytes
    assert request.ByteSize() == MAX_MESSAGE_BYTES - 2
    async with running(Probe()) as port:
        with grpcio_peer(port) as peer:
            answer = await in_thread(forward, peer, request)
    assert answer.ByteSize() == MAX_MESSAGE_BYTES
    assert len(answer.hidden_states) == len(request.hidden_states)


async def test_our_client_takes_and_sends_the_largest_message() -> None:
    request = filled(MAX_MESSAGE_BYTES - 2)

    def echo(request: Any, context: grpc.ServicerContext) -> Any:
        return pb.PipelineForwardResponse(hidden_states=request.hidden_states, success=True)

    with grpcio_server(PipelineForward=echo) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            with trio.fail_after(120):
                answer = await NodeServiceStub(channel).PipelineForward(request)
    assert answer.ByteSize() == MAX_MESSAGE_BYTES


async def test_a_message_over_the_limit_costs_its_call_only() -> None:
    probe = Probe()
    async with running(probe) as port:
        with grpcio_peer(port) as peer:
            waiting = peer.forward_future("wait", b"before")
            await probe.started.wait()
            error = await in_thread(peer.failure, data=bytes(MAX_MESSAGE_BYTES))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            # The connection stays open, with the call that was waiting on it.
            assert (await in_thread(peer.forward, data=b"after")).hidden_states == b"after"
            probe.release.set()
            assert (await in_thread(waiting.result)).hidden_states == b"before"


async def test_an_answer_over_the_limit_is_resource_exhausted() -> None:
    async with running(Probe(), limits=RpcLimits(message_bytes=MIB)) as port:
        with grpcio_peer(port) as peer:
            # The request fits, but the answer has one more field and does not.
            error = await in_thread(_failure_of, peer, filled(MIB))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await in_thread(peer.forward)).success


def _failure_of(peer: Any, request: Any) -> Any:
    with pytest.raises(grpc.RpcError) as failure:
        forward(peer, request)
    return failure.value


async def test_bytes_of_a_refused_message_are_dropped_and_the_window_kept() -> None:
    limits = RpcLimits(message_bytes=MIB)
    async with running(Probe(), limits=limits) as port, raw_peer(port) as peer:
        stream_id = await peer.request(body=b"\0" + (2 * MIB).to_bytes(4, "big"), end=False)
        assert await peer.status(stream_id) == str(int(Code.RESOURCE_EXHAUSTED))
        # Together these exceed any window, so the connection's must still grow after the refusal.
        for _ in range(10):
            assert await peer.forward(bytes(60_000))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
async def test_our_client_refuses_an_answer_over_its_limit(encoding: str) -> None:
    def big(request: Any, context: grpc.ServicerContext) -> Any:
        return pb.PipelineForwardResponse(hidden_states=bytes(2 * MIB))

    def small(request: Any, context: grpc.ServicerContext) -> Any:
        return pb.DHTPingResponse()

    limits = RpcLimits(message_bytes=MIB)
    with grpcio_server(PipelineForward=big, DHTPing=small) as port:
        async with open_channel(
            "127.0.0.1", port, traffic=TrafficMeter(), limits=limits
        ) as channel:
            stub = NodeServiceStub(channel)
            with pytest.raises(CallFailed) as failure:
                await stub.PipelineForward(pb.PipelineForwardRequest())
            assert failure.value.code is Code.RESOURCE_EXHAUSTED
            await stub.DHTPing(pb.DHTPingRequest())


async def test_a_request_over_the_limit_is_not_sent() -> None:
    async with (
        running(Probe()) as port,
        open_channel(
            "127.0.0.1", port, traffic=TrafficMeter(), limits=RpcLimits(message_bytes=MIB)
        ) as channel,
    ):
        stub = NodeServiceStub(channel)
        with pytest.raises(CallFailed) as failure:
            await stub.PipelineForward(filled(MIB + 1))
        assert failure.value.code is Code.RESOURCE_EXHAUSTED
        await stub.PipelineForward(pb.PipelineForwardRequest())


async def test_bytes_in_flight_are_bounded_over_all_calls() -> None:
    probe = Probe()
    # Room for two requests and their answers.
    limits = RpcLimits(bytes_in_flight=4 * MIB + 1000)
    async with running(probe, limits=limits) as port:
        with grpcio_peer(port) as one, grpcio_peer(port) as other:
            held = [one.forward_future("wait", bytes(MIB)) for _ in range(2)]
            await until(lambda: probe.running == 2, "two calls that hold a MiB each")
            error = await in_thread(other.failure, data=bytes(3 * MIB))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await in_thread(other.forward, data=b"small")).success
            probe.release.set()
            for call in held:
                assert (await in_thread(call.result)).success
            assert (await in_thread(other.forward, data=bytes(MIB))).success


async def test_a_reader_that_does_not_read_holds_up_only_itself() -> None:
    probe = Probe()
    request = pb.InferenceRequest(prompt="endless").SerializeToString()
    async with running(probe) as port, raw_peer(port) as peer:
        # The peer's window stays at the initial 64 KiB of HTTP/2.
        keep_window(peer)
        path = "/node.NodeService/StreamInference"
        body = prefix(request) + request
        stream_id = await peer.request(body=body, end=False, **{":path": path})
        await until(lambda: _received(peer, stream_id) > 60_000, "the window is used up")
        with grpcio_peer(port) as other:
            assert (await in_thread(other.forward)).success
        assert _received(peer, stream_id) <= 65_535
        assert not probe.stream_ended.is_set()
    await probe.stream_ended.wait()
    assert probe.outcome == "cancelled"


def _received(peer: Any, stream_id: Any) -> int:
    return sum(len(event.data) for event in peer.events if hasattr(event, "data"))


@pytest.mark.parametrize("window", [1, 3, 7, 1000])
async def test_the_smallest_windows_work(window: int) -> None:
    async with running(Probe()) as port, raw_peer(port) as peer:
        peer.h2.update_settings({4: window})  # INITIAL_WINDOW_SIZE
        await peer.flush()
        assert await peer.forward(bytes(40))
        assert await peer.forward(bytes(4000 if window > 100 else 100))


async def test_an_answer_that_nobody_takes_is_given_up() -> None:
    """A stopped peer keeps its socket open, and answers waiting for it use the shared limit."""
    size = 600_000
    limits = RpcLimits(stall_s=0.2)
    request = pb.PipelineForwardRequest(hidden_states=bytes(size)).SerializeToString()
    async with running(Probe(), limits=limits) as port, raw_peer(port) as peer:
        peer.h2.update_settings({4: 0})  # INITIAL_WINDOW_SIZE
        await until(lambda: peer.h2.remote_settings.initial_window_size > size, "its settings")
        stream_id = await peer.request(body=prefix(request) + request)
        assert await peer.status(stream_id) == str(int(Code.DEADLINE_EXCEEDED))


async def test_a_slow_handler_leaves_one_window_of_requests_behind_it() -> None:
    """While the handler is busy, no more of the stream's requests are read than one window."""
    probe = Probe()
    message = pb.InferenceRequest(prompt="x" * 1000).SerializeToString()
    stuck = pb.InferenceRequest(prompt="endless").SerializeToString()
    window = 32 * 1024
    traffic = TrafficMeter()
    limits = RpcLimits(stream_window=window)
    async with running(probe, limits=limits, traffic=traffic) as port, raw_peer(port) as peer:
        keep_window(peer)
        path = "/node.NodeService/StreamInference"
        body = prefix(stuck) + stuck
        stream_id = await peer.request(body=body, end=False, **{":path": path})
        await until(lambda: _received(peer, stream_id) > 60_000, "the handler is stuck")
        sent = 0
        while peer.h2.local_flow_control_window(stream_id) > len(message) + 5:
            peer.h2.send_data(stream_id, prefix(message) + message)
            sent += len(message) + 5
            await peer.flush()
            await trio.lowlevel.checkpoint()
            assert sent <= window
        await until(lambda: traffic.bytes_received >= sent, "all arrived")
        await trio.testing.wait_all_tasks_blocked()
        assert peer.h2.local_flow_control_window(stream_id) <= len(message) + 5


async def test_a_window_that_the_peer_takes_back_is_waited_for() -> None:
    """A smaller initial window can make the windows of streams negative (RFC 9113, 6.9.2)."""
    data = bytes(200_000)
    request = pb.PipelineForwardRequest(hidden_states=data)
    expected = pb.PipelineForwardResponse(hidden_states=data, success=True)
    body = prefix(request.SerializeToString()) + request.SerializeToString()
    async with running(Probe()) as port, raw_peer(port) as peer:
        await until(lambda: peer.h2.remote_settings.initial_window_size > len(body), "its settings")
        keep_window(peer)
        stream_id = await peer.request(body=body)
        await until(lambda: _received(peer, stream_id) == 65_535, "the window is used up")
        peer.h2.update_settings({4: 10})  # INITIAL_WINDOW_SIZE
        await peer.flush()
        acknowledged = lambda: any(isinstance(event, SettingsAcknowledged) for event in peer.events)  # noqa: E731
        await until(acknowledged, "the window is negative")
        await trio.testing.wait_all_tasks_blocked()
        assert _received(peer, stream_id) == 65_535
        peer.h2.increment_flow_control_window(2 * len(body))
        peer.h2.increment_flow_control_window(2 * len(body), stream_id)
        await peer.flush()
        assert await peer.status(stream_id) == "0"
        message = b"".join(event.data for event in peer.events if isinstance(event, DataReceived))
        assert message[5:] == expected.SerializeToString()
