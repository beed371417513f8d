"""Calls over one stream that stays open: the side that serves them (decision 0263)."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import trio
from h2.exceptions import FlowControlError, StreamClosedError

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.line import CALLS, REQUEST_BYTES
from meshnode.rpc.line_grpc import LineStub
from meshnode.rpc.line_server import line_service
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import line_pb2
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.line_node import Told, line_call, node
from spec_tests.rpc.scripted_service import (
    LONG_S,
    Probe,
    raw_peer,
    running,
    until,
)

pytestmark = pytest.mark.wire


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
            for call, number in ((one, 1), (other, 1), (one, 2), (other, 2), (one, 3)):
                await call.send(line_call(number, "wait"))
            # Which of two lines is read first is not known.
            await until(lambda: probe.running == most, "as many as allowed are served")
            await other.send(line_call(3, "wait"))
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
