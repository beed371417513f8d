"""A call ends when its caller disconnects or when the called node does (interface 7.3)."""

import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, RequestReceived

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.server import serve_grpc
from meshnode.rpc.streams import UNSENT_BYTES
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    LARGE,
    LONG_S,
    WIDE_OPEN,
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
WAIT_BODY = prefix(WAIT.SerializeToString()) + WAIT.SerializeToString()


async def test_a_cancelled_grpcio_call_cancels_the_handler() -> None:
    probe = Probe()
    async with running(probe) as port:
        with grpcio_peer(port) as peer:
            call = peer.forward_future("wait")
            await probe.started.wait()
            call.cancel()
            await probe.ended.wait()
            assert probe.outcome == "cancelled"
            assert (await in_thread(peer.forward, data=b"next")).success


async def test_a_reset_cancels_only_its_call() -> None:
    probe = Probe()
    async with running(probe) as port, raw_peer(port) as peer:
        first = await peer.request(body=WAIT_BODY)
        second = await peer.request(body=WAIT_BODY)
        await until(lambda: probe.running == 2, "two calls")
        peer.h2.reset_stream(first, 8)
        await peer.flush()
        await until(lambda: probe.running == 1, "one call less")
        assert probe.outcome == "cancelled"
        probe.release.set()
        assert await peer.status(second) == "0"


async def test_calls_are_counted_under_the_status_with_which_they_end() -> None:
    probe, traffic = Probe(), TrafficMeter()
    async with running(probe, traffic=traffic) as port:
        with grpcio_peer(port) as peer:
            assert (await in_thread(peer.forward)).success
            failure = await in_thread(peer.failure, "not held")
            assert failure.code() is grpc.StatusCode.NOT_FOUND
        async with raw_peer(port) as raw:
            probe.ended = trio.Event()
            stream_id = await raw.request(body=WAIT_BODY)
            await until(lambda: probe.running == 1, "a call waits")
            raw.h2.reset_stream(stream_id, 8)
            await raw.flush()
            await until(lambda: sum(traffic.served.values()) == 3, "it has ended")
    names = ("OK", "NOT_FOUND", "CANCELLED")
    assert traffic.served == {("PipelineForward", name): 1 for name in names}


async def test_a_reset_ends_a_stream_that_nobody_reads() -> None:
    probe = Probe()
    request = pb.InferenceRequest(prompt="endless").SerializeToString()
    async with running(probe) as port, raw_peer(port) as peer:
        path = "/node.NodeService/StreamInference"
        body = prefix(request) + request
        stream_id = await peer.request(body=body, end=False, **{":path": path})
        await until(lambda: bool(peer.fields(stream_id)), "the stream began")
        peer.h2.reset_stream(stream_id, 8)
        await peer.flush()
        await probe.stream_ended.wait()
        assert await peer.forward()


@pytest.mark.parametrize("abrupt", [False, True])
async def test_the_end_of_a_connection_cancels_its_calls(abrupt: bool) -> None:
    probe = Probe()
    async with running(probe) as port:
        async with raw_peer(port) as peer:
            await peer.request(body=WAIT_BODY)
            await probe.started.wait()
            if abrupt:
                # Reset the connection instead of closing it.
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                peer.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await probe.ended.wait()
        assert probe.outcome == "cancelled"


async def test_the_sockets_of_connections_are_closed() -> None:
    traffic = TrafficMeter()
    async with running(Probe(), traffic=traffic) as port:
        for _ in range(5):
            async with raw_peer(port) as peer:
                assert await peer.forward()
        await until(lambda: traffic.active_connections == 0, "all connections closed")


async def test_a_cancelled_server_ends_the_calls_of_its_clients() -> None:
    probe = Probe()
    async with trio.open_nursery() as nursery:
        serve = partial(serve_grpc, [probe.service], "127.0.0.1", 0, traffic=TrafficMeter())
        _, port = await nursery.start(serve)
        failures: list[CallFailed] = []

        async def wait() -> None:
            with trio.CancelScope(shield=True):
                async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
                    try:
                        await NodeServiceStub(channel).PipelineForward(WAIT)
                    except CallFailed as error:
                        failures.append(error)

        nursery.start_soon(wait)
        with grpcio_peer(port) as peer:
            call = peer.forward_future("wait")
            await until(lambda: probe.running == 2, "two calls")
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                error = await in_thread(call.exception)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert failures[0].code is Code.UNAVAILABLE
    assert probe.outcome == "cancelled"


async def test_a_vanished_peer_ends_our_waiting_calls() -> None:
    async def vanish(stream: trio.SocketStream) -> None:
        server = H2Connection(H2Configuration(client_side=False))
        server.initiate_connection()
        await stream.send_all(server.data_to_send())
        events: list[Event] = []
        while not any(isinstance(event, RequestReceived) for event in events):
            events = server.receive_data(await stream.receive_some(65536))
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, vanish, 0)
        port = listeners[0].socket.getsockname()[1]
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            with trio.fail_after(LONG_S):
                with pytest.raises(CallFailed) as failure:
                    await NodeServiceStub(channel).PipelineForward(WAIT)
                assert failure.value.code is Code.UNAVAILABLE
                assert not channel.usable
                with pytest.raises(CallFailed):
                    await NodeServiceStub(channel).PipelineForward(WAIT)
        nursery.cancel_scope.cancel()


async def test_leaving_a_call_resets_it_at_the_peer() -> None:
    ended = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def stream(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(lambda: token.run_sync_soon(ended.set))
        yield pb.InferenceResponse(text="one")
        for _ in requests:
            pass

    with grpcio_server(StreamInference=stream) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            async with NodeServiceStub(channel).StreamInference() as call:
                await call.send(pb.InferenceRequest())
                assert (await anext(call)).text == "one"
            with trio.fail_after(LONG_S):
                await ended.wait()


async def test_a_cancelled_call_of_ours_cancels_the_handler() -> None:
    probe = Probe()
    async with (
        running(probe) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(NodeServiceStub(channel).PipelineForward, WAIT)
        await probe.started.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await probe.ended.wait()
    assert probe.outcome == "cancelled"


async def test_a_call_that_is_being_sent_ends_with_its_channel() -> None:
    async def never_read(stream: trio.SocketStream) -> None:
        await stream.send_all(WIDE_OPEN)
        await trio.sleep_forever()

    codes = []

    async def call(stub: NodeServiceStub) -> None:
        with trio.fail_after(LONG_S), pytest.raises(CallFailed) as failure:
            await stub.PipelineForward(LARGE)
        codes.append(failure.value.code)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, never_read, 0)
        port = listeners[0].socket.getsockname()[1]
        async with (
            trio.open_nursery() as calls,
            open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
        ):
            calls.start_soon(call, NodeServiceStub(channel))
            transport = channel.connection.transport
            await until(lambda: transport.pending > UNSENT_BYTES, "the peer does not read")
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert codes == [Code.UNAVAILABLE]


class Untidy(Probe):
    """Has a handler with two tasks, one of which fails while it is being cancelled."""

    async def _behave(self, wish: str) -> None:
        if wish:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                try:
                    await trio.sleep_forever()
                finally:
                    raise RuntimeError("secret detail")


async def test_a_handler_that_fails_as_it_is_cancelled_costs_its_call_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    probe = Untidy()
    async with running(probe) as port, raw_peer(port) as peer:
        stream_id = await peer.request(body=WAIT_BODY)
        await probe.started.wait()
        peer.h2.reset_stream(stream_id, 8)
        await peer.flush()
        await probe.ended.wait()
        assert await peer.forward()
    assert "operation PipelineForward failed" in caplog.text
