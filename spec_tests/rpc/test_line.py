"""Calls over one stream that stays open (decision 0263)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import trio
from h2.exceptions import FlowControlError, StreamClosedError

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc import line
from meshnode.rpc.caller import answer_metadata, caller
from meshnode.rpc.channel import Channel, open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.line import ANSWER_BYTES, CALLS, REQUEST_BYTES
from meshnode.rpc.line_grpc import LineStub
from meshnode.rpc.line_server import line_service
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.stubs import Answer
from meshnode.wire import line_pb2
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    FAILURES,
    LONG_S,
    Probe,
    grpcio_server,
    raw_peer,
    running,
    until,
)

pytestmark = pytest.mark.wire
SMALL = 4096
METHOD = "PipelineForward"


class Told(Probe):
    """Answers with what it was told beside the message."""

    async def PipelineForward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineForwardRequest
    ) -> pb.PipelineForwardResponse:
        for key, value in caller().metadata.items():
            answer_metadata(f"told-{key}", value)
        return await super().PipelineForward(input_message)


@asynccontextmanager
async def node(
    probe: Probe, traffic: TrafficMeter | None = None, limits: RpcLimits | None = None
) -> AsyncIterator[Channel]:
    """A node that serves lines, and a channel to it."""
    served = traffic or TrafficMeter()
    lines = SimpleNamespace(service=line_service([probe.service], served))
    async with (
        running(probe, lines, traffic=served, limits=limits) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
    ):
        yield channel


async def ask(
    channel: Channel, wish: str = "", data: bytes = b"", **told: str
) -> Answer[pb.PipelineForwardResponse]:
    request = pb.PipelineForwardRequest(session_id=wish, hidden_states=data)
    stub = NodeServiceStub(channel)
    return await stub.PipelineForward.ask(request, metadata=told, most_bytes=SMALL, line=True)


async def opened(channel: Channel) -> None:
    """Make the call that opens the line, and wait until it is open."""
    await ask(channel)
    await until(lambda: channel.line.takes(0, SMALL), "the line is open")


def streams(channel: Channel) -> int:
    """How many streams the connection has had."""
    return (channel.connection.h2.highest_outbound_stream_id + 1) // 2


async def test_calls_share_a_stream_once_it_is_open() -> None:
    traffic = TrafficMeter()
    async with node(Told(), traffic) as channel:
        await opened(channel)
        assert streams(channel) == 2
        for number in range(20):
            answer = await ask(channel, data=bytes([number]), key=f"value {number}")
            assert answer.message.hidden_states == bytes([number])
            assert answer.metadata == {"told-key": f"value {number}"}
        assert streams(channel) == 2
        assert traffic.served[METHOD, "OK"] == 21
        assert channel.calls == 0


@pytest.mark.parametrize("wish", [*FAILURES, "crash", "crash in a nursery"])
async def test_a_refusal_is_that_of_a_call_by_itself(wish: str) -> None:
    async with node(Told()) as channel:
        with pytest.raises(CallFailed) as alone:
            await ask(channel, wish)
        await until(lambda: channel.line.takes(0, SMALL), "the line is open")
        with pytest.raises(CallFailed) as over_line:
            await ask(channel, wish)
        assert streams(channel) == 2
        assert (over_line.value.code, over_line.value.message) == (
            alone.value.code,
            alone.value.message,
        )
        assert "secret" not in over_line.value.message


async def test_a_deadline_ends_the_handler_and_not_the_line() -> None:
    probe = Probe()
    async with node(probe) as channel:
        await opened(channel)
        probe.ended = trio.Event()
        object.__setattr__(channel.limits, "default_call_s", 0.1)
        with pytest.raises(CallFailed) as failed:
            await ask(channel, "wait")
        assert failed.value.code is Code.DEADLINE_EXCEEDED
        await probe.ended.wait()
        assert probe.outcome == "cancelled"
        assert (await ask(channel, data=b"on")).message.hidden_states == b"on"
        assert streams(channel) == 2


async def test_a_call_that_is_left_is_abandoned_at_the_peer() -> None:
    probe = Probe()
    async with node(probe) as channel:
        await opened(channel)
        probe.started, probe.ended = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, channel, "wait")
            await probe.started.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(LONG_S):
            await probe.ended.wait()
        assert probe.outcome == "cancelled"
        await ask(channel)
        assert streams(channel) == 2


async def test_calls_are_answered_as_they_end() -> None:
    probe = Probe()
    async with node(probe) as channel:
        await opened(channel)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, channel, "wait")
            await until(lambda: probe.running == 3, "three calls wait")
            await ask(channel)
            probe.release.set()
        assert probe.most_running == 4
        assert streams(channel) == 2


async def test_more_calls_than_a_line_takes_go_alone() -> None:
    probe = Probe()
    async with node(probe) as channel:
        await opened(channel)
        async with trio.open_nursery() as nursery:
            for _ in range(CALLS + 3):
                nursery.start_soon(ask, channel, "wait")
            await until(lambda: probe.running == CALLS + 3, "all are being served")
            assert streams(channel) == 5
            probe.release.set()


async def test_large_messages_go_alone() -> None:
    async with node(Probe()) as channel:
        await opened(channel)
        stub = NodeServiceStub(channel)
        request = pb.PipelineForwardRequest(hidden_states=bytes(REQUEST_BYTES - 100))
        await stub.PipelineForward(request, most_bytes=ANSWER_BYTES, line=True)
        assert streams(channel) == 2
        request = pb.PipelineForwardRequest(hidden_states=bytes(REQUEST_BYTES))
        await stub.PipelineForward(request, most_bytes=ANSWER_BYTES, line=True)
        await stub.PipelineForward(request, most_bytes=ANSWER_BYTES + 1, line=True)
        assert streams(channel) == 4


async def test_an_answer_beyond_what_was_allowed_is_refused() -> None:
    async with node(Probe()) as channel:
        await opened(channel)
        with pytest.raises(CallFailed) as failed:
            await ask(channel, data=bytes(SMALL))
        assert failed.value.code is Code.RESOURCE_EXHAUSTED


async def test_a_peer_without_lines_is_asked_once() -> None:
    def echo(request: pb.PipelineForwardRequest, context: object) -> pb.PipelineForwardResponse:
        return pb.PipelineForwardResponse(hidden_states=request.hidden_states, success=True)

    with grpcio_server(PipelineForward=echo) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            await ask(channel)
            await until(lambda: channel.calls == 0, "the peer has refused the line")
            for _ in range(3):
                await ask(channel)
            assert streams(channel) == 5


async def test_a_quiet_line_ends_and_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "IDLE_S", 0.2)
    probe = Probe()
    async with node(probe) as channel:
        await opened(channel)
        async with trio.open_nursery() as nursery:
            # Longer than the pause; what is on the line keeps it open.
            nursery.start_soon(ask, channel, "wait")
            await trio.sleep(0.5)
            assert len(channel.connection.streams) == 1
            probe.release.set()
        await until(lambda: not channel.connection.streams, "the line has ended")
        await opened(channel)
        assert streams(channel) == 4


async def test_what_is_on_the_line_fails_with_the_connection() -> None:
    probe, stop = Probe(), trio.Event()
    lines = SimpleNamespace(service=line_service([probe.service], TrafficMeter()))
    async with (
        running(probe, lines, shutdown=stop, grace_s=0.0) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
    ):
        await opened(channel)
        failures: list[Code] = []

        async def fail() -> None:
            with pytest.raises(CallFailed) as failed:
                await ask(channel, "wait")
            failures.append(failed.value.code)

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(fail)
            await until(lambda: probe.running == 2, "two calls wait")
            stop.set()
        assert failures == [Code.UNAVAILABLE] * 2


async def test_a_node_that_stops_ends_what_is_on_the_line() -> None:
    probe, stop = Probe(), trio.Event()
    lines = SimpleNamespace(service=line_service([probe.service], TrafficMeter()))
    async with (
        running(probe, lines, shutdown=stop, grace_s=LONG_S) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
    ):
        await opened(channel)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, channel, "wait")
            await until(lambda: probe.running == 1, "a call waits")
            stop.set()
            await until(lambda: not channel.usable, "the peer is going away")
            assert not channel.line.takes(0, SMALL)
            probe.release.set()
        with trio.fail_after(LONG_S):
            await channel.wait_ended()


async def test_a_line_that_failed_is_not_tried_at_once() -> None:
    async with (
        node(Probe(), limits=RpcLimits(calls=1)) as channel,
        LineStub(channel).Calls() as busy,
    ):
        assert await busy.receive() == line_pb2.LineAnswer()
        await busy.send(line_call(1, "wait"))
        assert not channel.line.takes(0, SMALL)
        await until(lambda: streams(channel) == 2, "it tries to open a line")
        await until(lambda: len(channel.connection.streams) == 1, "the node is full")
        for _ in range(3):
            assert not channel.line.takes(0, SMALL)
            await trio.sleep(0.01)
        assert streams(channel) == 2


async def test_a_line_with_calls_is_not_idle() -> None:
    """Idle calls give way on a full server, and one that serves others is not idle."""
    probe = Probe()
    async with node(probe, limits=RpcLimits(calls=1)) as channel:
        stub = LineStub(channel)
        async with stub.Calls() as call:
            assert await call.receive() == line_pb2.LineAnswer()
            await call.send(line_call(1, "wait"))
            await until(lambda: probe.running == 1, "a call waits")
            with pytest.raises(CallFailed) as refused:
                await NodeServiceStub(channel).PipelineForward(pb.PipelineForwardRequest())
            assert refused.value.code is Code.RESOURCE_EXHAUSTED
            probe.release.set()
            answer = await call.receive()
            assert answer is not None
            assert (answer.number, answer.code) == (1, 0)


def line_call(number: int, wish: str = "", **fields: Any) -> line_pb2.LineCall:
    request = pb.PipelineForwardRequest(session_id=wish).SerializeToString()
    given: dict[str, Any] = {"operation": METHOD, "request": request, **fields}
    return line_pb2.LineCall(number=number, **given)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"operation": "Missing"}, Code.UNIMPLEMENTED),
        ({"operation": "StreamInference"}, Code.UNIMPLEMENTED),
        ({"operation": "DHTPing"}, Code.UNIMPLEMENTED),
        ({"request": b"\xff\xff"}, Code.INVALID_ARGUMENT),
        ({"request": bytes(REQUEST_BYTES + 1)}, Code.RESOURCE_EXHAUSTED),
        ({"timeout_s": -1.0}, Code.OK),
        ({"timeout_s": float("nan")}, Code.OK),
        ({"metadata": {"Odd Key\n": "x", "te": "y", "fine": "z"}}, Code.OK),
    ],
)
async def test_odd_calls_end_with_a_status_of_their_own(fields: dict[str, Any], code: Code) -> None:
    async with node(Told()) as channel, LineStub(channel).Calls() as call:
        assert await call.receive() == line_pb2.LineAnswer()
        await call.send(line_call(7, **fields))
        answer = await call.receive()
        assert answer is not None
        assert (answer.number, answer.code) == (7, code)
        assert dict(answer.metadata) == ({"told-fine": "z"} if "metadata" in fields else {})
        await call.send(line_call(7))
        answer = await call.receive()
        assert answer is not None
        assert (answer.number, answer.code) == (7, Code.OK)


async def test_numbers_that_are_in_use_or_unknown_change_nothing() -> None:
    probe = Probe()
    async with node(probe) as channel, LineStub(channel).Calls() as call:
        assert await call.receive() == line_pb2.LineAnswer()
        await call.send(line_call(1, "wait"))
        await call.send(line_call(1, "crash"))
        await call.send(line_pb2.LineCall(number=99))
        for number in range(2, CALLS + 2):
            await call.send(line_call(number, "wait"))
        refused = await call.receive()
        assert refused is not None
        assert (refused.number, refused.code) == (CALLS + 1, Code.RESOURCE_EXHAUSTED)
        assert probe.most_running == CALLS
        probe.release.set()
        call.end()
        answers = [answer async for answer in call]
        assert sorted(answer.number for answer in answers) == list(range(1, CALLS + 1))
        assert {answer.code for answer in answers} == {0}


async def test_an_address_has_no_more_calls_on_lines_than_without() -> None:
    probe, most = Probe(), 5
    async with node(probe, limits=RpcLimits(calls=most)) as channel:
        stub = LineStub(channel)
        async with stub.Calls() as one, stub.Calls() as other:
            for call in (one, other):
                assert await call.receive() == line_pb2.LineAnswer()
            for number in range(1, 4):
                await one.send(line_call(number, "wait"))
                await other.send(line_call(number, "wait"))
            await until(lambda: probe.running == most, "as many as allowed are served")
            refused = await other.receive()
            assert refused is not None
            assert (refused.number, refused.code) == (3, Code.RESOURCE_EXHAUSTED)
            probe.release.set()
            for call, count in ((one, 3), (other, 2)):
                answers = [await call.receive() for _ in range(count)]
                assert {answer.code for answer in answers if answer is not None} == {0}


async def test_a_peer_that_takes_no_answers_is_not_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = Probe()
    limits = RpcLimits(stall_s=0.5, stream_window=64 * 1024)
    lines = SimpleNamespace(service=line_service([probe.service], TrafficMeter()))
    async with running(probe, lines, limits=limits) as port, raw_peer(port) as peer:
        # Its windows stay closed once they are full.
        monkeypatch.setattr(peer.h2, "acknowledge_received_data", lambda size, stream: None)
        path = {":path": "/meshnode.Line/Calls"}
        stream_id = await peer.request(body=b"", end=False, **path)
        request = pb.PipelineForwardRequest(hidden_states=bytes(10_000)).SerializeToString()
        sent = 0
        # The line ends, or its window stays closed, while the peer still sends.
        with suppress(StreamClosedError, FlowControlError):
            for number in range(1, 2000):
                message = line_call(number, request=request).SerializeToString()
                peer.h2.send_data(stream_id, prefix(message) + message)
                await peer.flush()
                await trio.sleep(0.01)
                sent = number
        # It reads no more than its window and what has room; then the line ends.
        assert sent < 1000
        assert probe.most_running <= CALLS
        assert await peer.status(stream_id) == str(int(Code.DEADLINE_EXCEEDED))


async def test_a_line_that_cannot_be_read_ends() -> None:
    async with node(Probe()) as channel:
        raw = channel.call(
            "meshnode.Line",
            "Calls",
            request_type=pb.DHTStoreRequest,
            response_type=line_pb2.LineAnswer,
            default_s=LONG_S,
        )
        async with raw:
            assert await raw.receive() == line_pb2.LineAnswer()
            # A key where the name of an operation should be, and no text.
            await raw.send(pb.DHTStoreRequest(key=b"\xff"))
            with pytest.raises(CallFailed) as failed:
                await raw.receive()
        assert failed.value.code is Code.INVALID_ARGUMENT


async def test_a_grpcio_client_can_use_it() -> None:
    probe = Probe()
    lines = SimpleNamespace(service=line_service([probe.service], TrafficMeter()))
    async with running(probe, lines) as port:

        def call() -> list[line_pb2.LineAnswer]:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                stream = channel.stream_stream(
                    "/meshnode.Line/Calls",
                    line_pb2.LineCall.SerializeToString,
                    line_pb2.LineAnswer.FromString,
                )
                return list(stream(iter([line_call(1), line_call(2)]), timeout=LONG_S))

        answers = await trio.to_thread.run_sync(call)
        assert answers[0].number == 0
        assert {answer.number for answer in answers} == {0, 1, 2}
