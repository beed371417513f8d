"""This project's client against a grpcio server: all kinds of calls and ends (interface 7.3)."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, RequestReceived, StreamEnded, StreamReset

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc._h2_compat import goaway_frame
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import LONG_S, Probe, grpcio_server, running, until

pytestmark = pytest.mark.wire


def echo(request: Any, context: grpc.ServicerContext) -> Any:
    return pb.PipelineForwardResponse(hidden_states=request.hidden_states, success=True)


def tokens(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
    for request in requests:
        for index in range(request.max_tokens):
            yield pb.InferenceResponse(request_id=request.request_id, index=index)


async def test_unary_and_streaming_calls() -> None:
    with grpcio_server(PipelineForward=echo, StreamInference=tokens) as port:
        async with open_channel("localhost", port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            answer = await stub.PipelineForward(pb.PipelineForwardRequest(hidden_states=b"abc"))
            assert answer.hidden_states == b"abc"
            async with stub.StreamInference() as call:
                for name in ("a", "b"):
                    await call.send(pb.InferenceRequest(request_id=name, max_tokens=2))
                    assert [(await anext(call)).index for _ in range(2)] == [0, 1]
                call.end()
                assert await call.receive() is None


async def test_one_half_may_end_long_before_the_other() -> None:
    with grpcio_server(StreamInference=tokens) as port:
        async with (
            open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
            NodeServiceStub(channel).StreamInference() as call,
        ):
            await call.send(pb.InferenceRequest(max_tokens=3000), last=True)
            assert [answer.index async for answer in call] == list(range(3000))


@pytest.mark.parametrize("code", [c for c in Code if c is not Code.OK], ids=lambda c: c.name)
async def test_a_status_becomes_a_failure(code: Code) -> None:
    def fail(request: Any, context: grpc.ServicerContext) -> None:
        context.abort(getattr(grpc.StatusCode, code.name), "läyer 7%")

    with grpcio_server(PipelineForward=fail) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            with pytest.raises(CallFailed) as failure:
                await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())
    assert failure.value.code is code
    assert failure.value.message == "läyer 7%"


async def test_messages_before_a_failure_are_delivered() -> None:
    def stream(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield pb.InferenceResponse(index=0)
        yield pb.InferenceResponse(index=1)
        context.abort(grpc.StatusCode.NOT_FOUND, "layer 7")

    with grpcio_server(StreamInference=stream) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            async with NodeServiceStub(channel).StreamInference() as call:
                assert [(await anext(call)).index for _ in range(2)] == [0, 1]
                with pytest.raises(CallFailed) as failure:
                    await anext(call)
            assert failure.value.code is Code.NOT_FOUND


async def test_an_answer_before_the_request_was_sent_ends_the_sending() -> None:
    def refuse(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        yield

    with grpcio_server(StreamInference=refuse) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            with trio.fail_after(LONG_S):
                async with NodeServiceStub(channel).StreamInference() as call:
                    # This is far more than the peer's window.
                    for _ in range(20):
                        await call.send(pb.InferenceRequest(prompt="x" * 1_000_000))
                    with pytest.raises(CallFailed) as failure:
                        await call.receive()
    assert failure.value.code is Code.INVALID_ARGUMENT


async def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(CallFailed) as failure:
        async with open_channel("127.0.0.1", 1, traffic=TrafficMeter()):
            pytest.fail("nobody listens there")
    assert failure.value.code is Code.UNAVAILABLE


async def test_an_error_of_the_caller_comes_out_as_it_is() -> None:
    async with running(Probe()) as port:
        with pytest.raises(LookupError, match="mine"):
            async with open_channel("127.0.0.1", port, traffic=TrafficMeter()):
                raise LookupError("mine")


async def test_calls_above_the_channels_own_limit_wait() -> None:
    running_now, most = 0, 0
    lock = threading.Lock()

    def slow(request: Any, context: grpc.ServicerContext) -> Any:
        nonlocal running_now, most
        with lock:
            running_now += 1
            most = max(most, running_now)
        context.is_active()
        with lock:
            running_now -= 1
        return pb.PipelineForwardResponse(success=True)

    limits = RpcLimits(calls_per_connection=3)
    with grpcio_server(PipelineForward=slow) as port:
        async with open_channel(
            "127.0.0.1", port, traffic=TrafficMeter(), limits=limits
        ) as channel:
            stub = NodeServiceStub(channel)
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(stub.PipelineForward, pb.PipelineForwardRequest())
            assert channel.connection.streams == {}
    assert most <= 3


async def test_calls_above_the_peers_limit_wait() -> None:
    probe = Probe()
    async with (
        running(probe, limits=RpcLimits(calls_per_connection=2)) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
    ):
        stub = NodeServiceStub(channel)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(stub.PipelineForward, pb.PipelineForwardRequest())
    assert probe.most_running <= 2


async def test_after_a_goaway_calls_that_the_peer_has_seen_go_on() -> None:
    """The peer is built from h2, since grpcio's server cannot be controlled closely enough."""
    heads = {":status": "200", "content-type": "application/grpc"}

    async def goodbye(stream: trio.SocketStream) -> None:
        server = H2Connection(H2Configuration(client_side=False))
        server.initiate_connection()
        ended = 0
        while ended < 2:
            await stream.send_all(server.data_to_send())
            for event in server.receive_data(await stream.receive_some()):
                ended += isinstance(event, StreamEnded)
        # The GOAWAY says that only the first of two calls was processed.
        await stream.send_all(server.data_to_send() + goaway_frame(1, 0))
        await trio.testing.wait_all_tasks_blocked()
        server.send_headers(1, list(heads.items()))
        answer = pb.PipelineForwardResponse(success=True).SerializeToString()
        server.send_data(1, prefix(answer) + answer)
        server.send_headers(1, [("grpc-status", "0")], end_stream=True)
        await stream.send_all(server.data_to_send())
        await trio.sleep_forever()

    outcomes: dict[str, object] = {}

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, goodbye, 0)
        port = listeners[0].socket.getsockname()[1]
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)

            async def call(name: str) -> None:
                try:
                    outcomes[name] = await stub.PipelineForward(pb.PipelineForwardRequest())
                except CallFailed as error:
                    outcomes[name] = error.code

            with trio.fail_after(LONG_S):
                async with trio.open_nursery() as calls:
                    calls.start_soon(call, "one")
                    await trio.testing.wait_all_tasks_blocked()
                    calls.start_soon(call, "two")
            assert not channel.usable
            assert outcomes["one"] == pb.PipelineForwardResponse(success=True)
            assert outcomes["two"] is Code.UNAVAILABLE
        nursery.cancel_scope.cancel()


async def test_an_answer_just_before_the_end_of_the_connection_is_an_answer() -> None:
    async def answer_and_hang_up(stream: trio.SocketStream) -> None:
        server = H2Connection(H2Configuration(client_side=False))
        server.initiate_connection()
        ended = False
        while not ended:
            await stream.send_all(server.data_to_send())
            events = server.receive_data(await stream.receive_some())
            ended = any(isinstance(event, StreamEnded) for event in events)
        answer = pb.PipelineForwardResponse(success=True).SerializeToString()
        server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
        server.send_data(1, prefix(answer) + answer)
        server.send_headers(1, [("grpc-status", "0")], end_stream=True)
        # The answer and the close are both read before the call looks at either.
        await stream.send_all(server.data_to_send())
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, answer_and_hang_up, 0)
        port = listeners[0].socket.getsockname()[1]
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            assert (await stub.PipelineForward(pb.PipelineForwardRequest())).success
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def strange_server(
    react: Callable[[H2Connection, Event], None], host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """An HTTP/2 server that answers with ``react``; yields its port."""

    async def serve(stream: trio.SocketStream) -> None:
        server = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        server.initiate_connection()
        while True:
            await stream.send_all(server.data_to_send())
            data = await stream.receive_some()
            if not data:
                return
            for event in server.receive_data(data):
                react(server, event)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host=host))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({":status": "503"}, Code.UNAVAILABLE),
        ({":status": "404"}, Code.UNIMPLEMENTED),
        ({":status": "200", "content-type": "text/html"}, Code.UNKNOWN),
        ({":status": "200", "content-type": "application/grpc"}, Code.UNKNOWN),
        (
            {":status": "200", "content-type": "application/grpc", "grpc-status": "5"},
            Code.NOT_FOUND,
        ),
        (
            {":status": "200", "content-type": "application/grpc", "grpc-status": "0"},
            Code.INTERNAL,  # success without an answer
        ),
    ],
)
async def test_answers_of_strange_peers(fields: dict[str, str], code: Code) -> None:
    def strange(server: H2Connection, event: Event) -> None:
        if isinstance(event, RequestReceived):
            server.send_headers(event.stream_id, list(fields.items()), end_stream=True)

    async with (
        strange_server(strange) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
    ):
        for _ in range(2):
            with trio.fail_after(LONG_S), pytest.raises(CallFailed) as failure:
                await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())
            assert failure.value.code is code


async def test_an_address_of_ipv6_is_bracketed_in_the_authority() -> None:
    seen: list[str] = []

    def listen(server: H2Connection, event: Event) -> None:
        if isinstance(event, RequestReceived):
            headers: Any = dict(event.headers)
            seen.append(headers[":authority"])
            server.send_headers(event.stream_id, [(":status", "503")], end_stream=True)

    async with (
        strange_server(listen, "::1") as port,
        open_channel("::1", port, traffic=TrafficMeter()) as channel,
    ):
        with pytest.raises(CallFailed):
            await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())
    assert seen == [f"[::1]:{port}"]


async def test_an_endless_answer_that_is_not_grpc_is_reset() -> None:
    """Without the reset, such a stream would use up one of the connection's calls for ever."""
    resets = []

    def go_on(server: H2Connection, event: Event) -> None:
        if isinstance(event, RequestReceived):
            server.send_headers(event.stream_id, [(":status", "404")])
            server.send_data(event.stream_id, b"and so on")
        resets.extend([event.stream_id] if isinstance(event, StreamReset) else [])

    limits = RpcLimits(calls_per_connection=2)
    async with (
        strange_server(go_on) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter(), limits=limits) as channel,
    ):
        for _ in range(5):
            with trio.fail_after(LONG_S), pytest.raises(CallFailed) as failure:
                await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())
            assert failure.value.code is Code.UNIMPLEMENTED
        await until(lambda: resets == [1, 3, 5, 7, 9], "all are reset")
