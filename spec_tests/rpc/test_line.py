"""Calls over one stream that stays open: the caller's side (decision 0263)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc import line
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.line import ANSWER_BYTES, CALLS, REQUEST_BYTES
from meshnode.rpc.line_grpc import LineStub
from meshnode.rpc.line_server import line_service
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import line_pb2
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.line_node import METHOD, SMALL, Told, ask, line_call, node, opened, streams
from spec_tests.rpc.scripted_service import (
    FAILURES,
    LONG_S,
    Probe,
    grpcio_server,
    running,
    until,
)

pytestmark = pytest.mark.wire


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


@pytest.mark.parametrize("convoy", ["one", ""], ids=["convoy", "none"])
async def test_only_messages_of_a_convoy_leave_together(
    convoy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, sent = Probe(), list[int]()
    async with node(probe) as channel:
        await opened(channel)
        send = channel.connection.transport._send

        def count(data: bytes | memoryview) -> int:
            sent.append(len(data))
            return send(data)

        monkeypatch.setattr(channel.connection.transport, "_send", count)

        async def call() -> None:
            await (ask(channel, "wait", convoy=convoy) if convoy else ask(channel, "wait"))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(call)
            await until(lambda: probe.running == 8, "all are being served")
            # The first of a convoy does not know of the others, and HTTP/2 has frames of its own.
            assert len(sent) < 5 if convoy else len(sent) >= 8
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
