"""The listener: its limits, its traffic meter, and its shutdown (interface 4.3 and 8)."""

import socket
from functools import partial

import grpc
import pytest
import trio

from meshnode.domain.errors import StartupError
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.server import Server, serve_grpc
from meshnode.rpc.transport import Transport
from meshnode.turns import Turns
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    LONG_S,
    Probe,
    grpcio_peer,
    in_thread,
    raw_peer,
    running,
    until,
)

pytestmark = pytest.mark.wire


async def test_a_taken_port_is_one_clear_line() -> None:
    async with running(Probe()) as port:
        with pytest.raises(StartupError) as failure:
            await serve_grpc([Probe().service], "127.0.0.1", port, traffic=TrafficMeter())
    assert str(failure.value) == f"port {port} is already in use on 127.0.0.1"


async def test_a_port_taken_with_so_reuseport_is_refused_too() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StartupError):
            await serve_grpc([Probe().service], "127.0.0.1", port, traffic=TrafficMeter())


async def test_a_host_that_is_not_ours_is_one_clear_line() -> None:
    with pytest.raises(StartupError) as failure:
        await serve_grpc([Probe().service], "192.0.2.1", 0, traffic=TrafficMeter())
    assert str(failure.value).startswith("cannot listen on port 0 of 192.0.2.1: ")


async def test_only_the_configured_host_is_served() -> None:
    async with running(Probe()) as port:
        with pytest.raises(OSError):  # noqa: PT011 - the system's own words
            await trio.open_tcp_stream("127.0.0.2", port)


async def test_64_calls_run_at_a_time_on_one_connection() -> None:
    probe = Probe()
    async with running(probe) as port:
        with grpcio_peer(port) as peer:
            calls = [peer.forward_future("wait", bytes([n])) for n in range(64)]
            await until(lambda: probe.running == 64, "64 calls at a time")
            probe.release.set()
            answers = [await in_thread(call.result) for call in calls]
    assert [answer.hidden_states for answer in answers] == [bytes([n]) for n in range(64)]


async def test_answers_of_many_calls_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A send for each of them took most of the time of small calls."""
    sends: list[int] = []
    send = Transport._send

    def counted(transport: Transport, data: bytes | memoryview) -> int:
        sends.append(len(data))
        return send(transport, data)

    probe = Probe()
    wait = pb.PipelineForwardRequest(session_id="wait").SerializeToString()
    async with running(probe) as port, raw_peer(port) as peer:
        streams = [peer.begin(body=prefix(wait) + wait) for _ in range(64)]
        await peer.flush()
        await until(lambda: probe.running == 64, "64 calls at a time")
        monkeypatch.setattr(Transport, "_send", counted)
        probe.release.set()
        for stream_id in streams:
            assert await peer.status(stream_id) == "0"
    assert len(sends) < 16


async def test_64_streams_at_a_time_are_not_mixed_up() -> None:
    async with running(Probe()) as port:
        with grpcio_peer(port) as peer:

            def stream(number: int) -> list[tuple[str, int]]:
                request = pb.InferenceRequest(request_id=str(number), max_tokens=5)
                return [(a.request_id, a.index) for a in peer.stream(iter([request, request]))]

            answers: dict[int, list[tuple[str, int]]] = {}

            async def run(number: int) -> None:
                answers[number] = await in_thread(stream, number)

            async with trio.open_nursery() as nursery:
                for number in range(64):
                    nursery.start_soon(run, number)
    for number in range(64):
        assert answers[number] == [(str(number), index) for index in range(5)] * 2


async def test_more_calls_than_advertised_wait_at_the_client() -> None:
    probe = Probe()
    async with running(probe, limits=RpcLimits(calls_per_connection=4)) as port:
        with grpcio_peer(port) as peer:
            calls = [peer.forward_future("wait") for _ in range(10)]
            await until(lambda: probe.running == 4, "as many calls as advertised")
            probe.release.set()
            for call in calls:
                assert (await in_thread(call.result)).success
    assert probe.most_running == 4


async def test_calls_of_all_connections_are_bounded() -> None:
    probe = Probe()
    async with running(probe, limits=RpcLimits(calls=2)) as port:
        with grpcio_peer(port) as one, grpcio_peer(port) as other:
            waiting = [one.forward_future("wait"), other.forward_future("wait")]
            await until(lambda: probe.running == 2, "two calls")
            error = await in_thread(other.failure)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            probe.release.set()
            for call in waiting:
                assert (await in_thread(call.result)).success
            assert (await in_thread(other.forward)).success


def only_one_is_of_this_machine(limits: RpcLimits, whole: int, ip: str) -> int:
    return whole if ip == "127.0.0.9" else whole // 2


def test_an_address_has_its_share() -> None:
    limits = RpcLimits()
    for ip, share in (("127.0.0.1", 10), ("::1", 10), ("192.0.2.7", 5), ("fe80::1%eth0", 5)):
        assert limits.of_one(10, ip) == share
    assert limits.of_one(1, "192.0.2.7") == 1


async def test_one_address_leaves_calls_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RpcLimits, "of_one", only_one_is_of_this_machine)
    probe = Probe()
    async with running(probe, limits=RpcLimits(calls=4)) as port:
        with grpcio_peer(port) as one, grpcio_peer(port) as two:
            waiting = [one.forward_future("wait"), two.forward_future("wait")]
            await until(lambda: probe.running == 2, "its share")
            error = await in_thread(two.failure)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for ip in ("127.0.0.8", "127.0.0.9"):
                async with raw_peer(port, ip) as other:
                    assert await other.forward()
            probe.release.set()
            for call in waiting:
                assert (await in_thread(call.result)).success
            assert (await in_thread(two.forward)).success


async def test_one_address_leaves_connections_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RpcLimits, "of_one", only_one_is_of_this_machine)
    async with (
        running(Probe(), limits=RpcLimits(connections=4)) as port,
        raw_peer(port, "127.0.0.8") as other,
        raw_peer(port) as one,
        raw_peer(port) as two,
    ):
        # The connection from the other address is idle for longest and must stay open.
        for peer in (other, one, two):
            assert await peer.forward()
        async with raw_peer(port) as three:
            assert await three.forward()
            await until(lambda: one.closed, "made room among its own")
        assert await other.forward()


async def test_a_connection_too_many_takes_the_place_of_the_longest_idle() -> None:
    limits = RpcLimits(connections=2)
    async with (
        running(Probe(), limits=limits) as port,
        raw_peer(port) as one,
        raw_peer(port) as two,
    ):
        assert await two.forward()
        assert await one.forward()
        async with raw_peer(port) as three:
            assert await three.forward()
            await until(lambda: two.closed, "made room")
            assert await one.forward()


async def test_a_connection_too_many_is_closed_where_all_have_calls() -> None:
    probe = Probe()
    async with running(probe, limits=RpcLimits(connections=1)) as port:
        with grpcio_peer(port) as busy:
            call = busy.forward_future("wait")
            await until(lambda: probe.running == 1, "a call")
            async with raw_peer(port) as other:
                await until(lambda: other.closed, "one too many")
            probe.release.set()
            assert (await in_thread(call.result)).success


async def test_the_meter_counts_what_really_passed() -> None:
    ours, theirs = TrafficMeter(), TrafficMeter()
    data = bytes(300_000)
    async with running(Probe(), traffic=theirs) as port:
        async with open_channel("127.0.0.1", port, traffic=ours) as channel:
            stub = NodeServiceStub(channel)
            for _ in range(3):
                await stub.PipelineForward(pb.PipelineForwardRequest(hidden_states=data))
            assert ours.active_connections == theirs.active_connections == 1
            assert ours.rpc_calls == theirs.rpc_calls == 3
            for meter in (ours, theirs):
                assert 900_000 < meter.bytes_sent < 910_000
                assert 900_000 < meter.bytes_received < 910_000
        await until(lambda: theirs.active_connections == 0, "the connection is closed")
        assert ours.active_connections == 0
        assert ours.bytes_sent == theirs.bytes_received
        assert ours.bytes_received == theirs.bytes_sent


async def test_closing_lets_calls_end_and_takes_no_other() -> None:
    probe = Probe()
    shutdown = trio.Event()
    serve = partial(
        serve_grpc, [probe.service], "127.0.0.1", 0, traffic=TrafficMeter(), shutdown=shutdown
    )
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(serve)
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            with grpcio_peer(port) as peer:
                theirs = peer.forward_future("wait", b"theirs")
                answers = []

                async def wait() -> None:
                    request = pb.PipelineForwardRequest(session_id="wait", hidden_states=b"ours")
                    answers.append(await stub.PipelineForward(request))

                async with trio.open_nursery() as calls:
                    calls.start_soon(wait)
                    await until(lambda: probe.running == 2, "two calls")
                    shutdown.set()
                    await until(lambda: not channel.usable, "we were told")
                    with pytest.raises(CallFailed) as failure:
                        await stub.PipelineForward(pb.PipelineForwardRequest())
                    assert failure.value.code is Code.UNAVAILABLE
                    with pytest.raises(OSError):  # noqa: PT011 - the system's own words
                        await trio.open_tcp_stream("127.0.0.1", port)
                    probe.release.set()
                assert answers[0].hidden_states == b"ours"
                assert (await in_thread(theirs.result)).hidden_states == b"theirs"
    # serve_grpc returned without being cancelled.
    assert not nursery.cancel_scope.cancel_called


async def test_closing_does_not_wait_for_ever() -> None:
    probe = Probe()
    shutdown = trio.Event()
    serve = partial(
        serve_grpc,
        [probe.service],
        "127.0.0.1",
        0,
        traffic=TrafficMeter(),
        shutdown=shutdown,
        grace_s=0.1,
    )
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(serve)
        with grpcio_peer(port) as peer:
            call = peer.forward_future("wait")
            await probe.started.wait()
            shutdown.set()
            error = await in_thread(call.exception)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert probe.outcome == "cancelled"


async def test_a_stream_between_two_requests_ends_when_the_server_closes() -> None:
    probe = Probe()
    shutdown = trio.Event()
    serve = partial(
        serve_grpc, [probe.service], "127.0.0.1", 0, traffic=TrafficMeter(), shutdown=shutdown
    )
    async with trio.open_nursery() as nursery:
        _, port = await nursery.start(serve)
        async with (
            open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
            NodeServiceStub(channel).StreamInference() as call,
        ):
            await call.send(pb.InferenceRequest(max_tokens=1))
            assert (await anext(call)).index == 0
            shutdown.set()
            with pytest.raises(CallFailed) as failure:
                await call.receive()
            assert failure.value.code is Code.UNAVAILABLE


async def test_a_connection_that_comes_as_the_server_closes_is_not_served() -> None:
    server = Server([], RpcLimits(), TrafficMeter(), Turns())
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()[:2]
    async with listener, await trio.open_tcp_stream(*address) as stream:
        accepted = await listener.accept()
        server.close()
        with trio.fail_after(LONG_S):
            await server.serve_stream(accepted)
            assert await stream.receive_some() == b""
