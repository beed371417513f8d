"""A hostile peer can end no connection but its own; the node keeps serving others."""

import contextlib
import gzip
import struct
from typing import Any

import grpc
import pytest
import trio
from h2.exceptions import ProtocolError
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    LONG_S,
    Probe,
    RawPeer,
    grpcio_peer,
    in_thread,
    raw_peer,
    running,
    until,
)

pytestmark = pytest.mark.wire

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"

GARBAGE = {
    "nothing": b"",
    "zeros": bytes(5000),
    "http1": b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "half a preface": PREFACE[:10],
    "wrong preface": b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    "preface and noise": PREFACE + bytes(range(256)) * 20,
    "truncated frame": PREFACE + SETTINGS + b"\0\1\0\0\0\0\0\0\1abc",
    "huge frame": PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\1" + bytes(100),
    "data on stream 0": PREFACE + SETTINGS + b"\0\0\1\0\0\0\0\0\0x",
    "headers on an even stream": PREFACE + SETTINGS + b"\0\0\1\1\5\0\0\0\2\x82",
    "bad header block": PREFACE + SETTINGS + b"\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff",
    "empty header name": PREFACE + SETTINGS + b"\0\0\3\1\5\0\0\0\1\0\0\0",
    "continuation of nothing": PREFACE + SETTINGS + b"\0\0\0\t\4\0\0\0\1",
    "window update of 0": PREFACE + SETTINGS + b"\0\0\4\x08\0\0\0\0\0\0\0\0\0",
    "bad settings": PREFACE + b"\0\0\6\4\0\0\0\0\0" + struct.pack(">HI", 4, 2**32 - 1),
    "goaway": PREFACE + SETTINGS + b"\0\0\x08\7\0\0\0\0\0" + bytes(8),
    "push promise": PREFACE + SETTINGS + b"\0\0\5\5\4\0\0\0\1\0\0\0\2\x82",
}


async def read_to_the_end(stream: trio.SocketStream) -> None:
    """Read until the node closes or resets the connection."""
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass
    await stream.aclose()


async def talk(port: int, data: bytes) -> None:
    """Send bytes, read answers for at most 0.1 s, and close the connection."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    with trio.move_on_after(0.1):
        await stream.send_all(data)
        await read_to_the_end(stream)
    await trio.aclose_forcefully(stream)


async def test_garbage_ends_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    traffic = TrafficMeter()
    async with running(Probe(), traffic=traffic) as port, raw_peer(port) as peer:
        async with trio.open_nursery() as nursery:
            for data in GARBAGE.values():
                nursery.start_soon(talk, port, data)
        assert await peer.forward()
        await until(lambda: traffic.active_connections == 1, "the others are gone")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "name", ["zeros", "http1", "wrong preface", "huge frame", "bad header block"]
)
async def test_a_peer_that_breaks_the_protocol_is_hung_up_on(name: str) -> None:
    async with (
        running(Probe()) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(GARBAGE[name])
        with trio.fail_after(LONG_S):
            await read_to_the_end(stream)


@pytest.mark.parametrize("name", ["nothing", "half a preface"])
async def test_a_peer_that_sends_no_preface_is_disconnected(name: str) -> None:
    async with (
        running(Probe(), limits=RpcLimits(handshake_s=1.0)) as port,
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        if GARBAGE[name]:
            await stream.send_all(GARBAGE[name])
        with trio.fail_after(LONG_S):
            await read_to_the_end(stream)


@settings(max_examples=8)
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5))
def test_any_frames_end_at_most_their_connection(payloads: list[bytes]) -> None:
    async def main() -> None:
        data = PREFACE + SETTINGS
        for index, payload in enumerate(payloads):
            head = len(payload).to_bytes(3, "big") + bytes([payload[0] % 11, payload[-1]])
            data += head + (index % 3).to_bytes(4, "big") + payload
        async with running(Probe()) as port:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(data)
                await stream.send_eof()
                await read_to_the_end(stream)
            async with raw_peer(port) as peer:
                assert await peer.forward()

    trio.run(main)


PUT: dict[str, Any] = {":method": "PUT"}
GET: dict[str, Any] = {":method": "GET"}


async def refusal(peer: RawPeer, body: bytes = b"\0\0\0\0\0", **headers: Any) -> dict[str, str]:
    """The answer to a malformed request."""
    stream_id = await peer.request(body=body, **headers)
    await until(lambda: bool(peer.fields(stream_id)), "an answer")
    if peer.fields(stream_id)[":status"] == "200":
        await peer.status(stream_id)
    return peer.fields(stream_id)


async def test_requests_that_are_not_grpc_get_an_http_status() -> None:
    async with running(Probe()) as port, raw_peer(port) as peer:
        assert (await refusal(peer, content_type="text/html"))[":status"] == "415"
        assert (await refusal(peer, content_type=""))[":status"] == "415"
        assert (await refusal(peer, content_type="application/grpc-web"))[":status"] == "415"
        assert (await refusal(peer, **PUT))[":status"] == "405"
        # A request without a body ends with its headers.
        get = await peer.request(**GET)
        await until(lambda: bool(peer.fields(get)), "an answer")
        assert peer.fields(get)[":status"] == "405"
        assert await peer.forward()


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"\0\0\0\0\3abc", {}, Code.INVALID_ARGUMENT),
        (b"\1\0\0\0\0", {}, Code.INTERNAL),
        (b"\7\0\0\0\0", {}, Code.INTERNAL),
        (b"\1\0\0\0\0", {"grpc_encoding": "gzip"}, Code.UNIMPLEMENTED),
        (b"\0\0\0\0\7abc", {}, Code.INTERNAL),
        (b"\0\0\0", {}, Code.INTERNAL),
        (b"", {}, Code.INTERNAL),
        (b"\0\0\0\0\0\0\0\0\0\0", {}, Code.INTERNAL),
        (b"\0\xff\xff\xff\xff", {}, Code.RESOURCE_EXHAUSTED),
        (b"\0\0\0\0\0", {"grpc_timeout": "soon"}, Code.INVALID_ARGUMENT),
        (b"\0\0\0\0\0", {":path": "/node.NodeService"}, Code.UNIMPLEMENTED),
        (b"\0\0\0\0\0", {":path": "/a/b/c"}, Code.UNIMPLEMENTED),
    ],
)
async def test_wrong_requests_get_a_grpc_status(
    body: bytes, headers: dict[str, str], code: Code
) -> None:
    async with running(Probe()) as port, raw_peer(port) as peer:
        assert (await refusal(peer, body, **headers))["grpc-status"] == str(int(code))
        assert await peer.forward()


async def test_a_request_without_any_message_is_refused() -> None:
    async with running(Probe()) as port, raw_peer(port) as peer:
        stream_id = await peer.request()
        assert await peer.status(stream_id) == str(int(Code.INTERNAL))
        assert await peer.forward()


async def test_metadata_of_any_kind_is_let_through() -> None:
    request = pb.PipelineForwardRequest().SerializeToString()
    odd: dict[str, Any] = {
        "trace-bin": "not!base64",
        "x-latin": "l\u00e4yer",
        "accept-encoding": "gzip",
    }
    async with running(Probe()) as port, raw_peer(port) as peer:
        stream_id = await peer.request(body=prefix(request) + request, **odd)
        assert await peer.status(stream_id) == "0"


async def test_compression_by_grpcio_is_unimplemented() -> None:
    async with running(Probe()) as port:
        with grpcio_peer(port) as peer:
            request = pb.PipelineForwardRequest(hidden_states=bytes(10_000))
            assert len(gzip.compress(request.SerializeToString())) < 1000
            call = peer.unary("PipelineForward", request, pb.PipelineForwardResponse)

            def run() -> grpc.StatusCode:
                with pytest.raises(grpc.RpcError) as failure:
                    call(request, compression=grpc.Compression.Gzip, timeout=LONG_S)
                return failure.value.code()

            assert await in_thread(run) is grpc.StatusCode.UNIMPLEMENTED
            assert (await in_thread(peer.forward)).success


async def test_abandoning_calls_too_fast_ends_the_connection() -> None:
    probe = Probe()
    wait = pb.PipelineForwardRequest(session_id="wait").SerializeToString()
    limits = RpcLimits(resets_burst=50, resets_per_s=1.0)
    async with running(probe, limits=limits) as port, raw_peer(port) as other:
        async with raw_peer(port) as peer:
            for _ in range(200):
                if peer.closed:
                    break
                try:
                    stream_id = await peer.request(body=prefix(wait) + wait)
                    peer.h2.reset_stream(stream_id, 8)
                    await peer.flush()
                except (trio.BrokenResourceError, ProtocolError):
                    break
                await trio.lowlevel.checkpoint()
            await until(lambda: peer.closed, "hung up on")
        assert await other.forward()
        await until(lambda: probe.running == 0, "its calls are cancelled")
        assert probe.most_running <= limits.calls_per_connection + 1


async def test_calls_that_are_reset_as_they_begin_are_counted() -> None:
    wait = pb.PipelineForwardRequest(session_id="wait").SerializeToString()
    async with running(Probe()) as port, raw_peer(port) as other:
        async with raw_peer(port) as peer:
            with contextlib.suppress(trio.BrokenResourceError, ProtocolError):
                # All are sent at once, so that the node sees each call together with its reset.
                for _ in range(1000):
                    stream_id = peer.begin(body=prefix(wait) + wait)
                    peer.h2.reset_stream(stream_id, 8)
                await peer.flush()
            await until(lambda: peer.closed, "hung up on")
        assert await other.forward()


CONTROL = {
    "settings": SETTINGS,
    "ping": b"\0\0\x08\6\0\0\0\0\0" + bytes(8),
    "priority": b"\0\0\5\2\0\0\0\0\1\0\0\0\0\x10",
    "window": b"\0\0\4\x08\0\0\0\0\0\0\0\0\1",
}


@pytest.mark.parametrize("name", CONTROL)
async def test_a_flood_of_frames_without_messages_ends_its_connection(name: str) -> None:
    async def read_all(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some(65536):
                pass

    async with running(Probe()) as port, raw_peer(port) as other:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(PREFACE + SETTINGS)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_all, stream)
                with trio.fail_after(LONG_S), contextlib.suppress(trio.BrokenResourceError):
                    while True:
                        await stream.send_all(CONTROL[name] * 1000)
                nursery.cancel_scope.cancel()
        assert await other.forward()


async def test_a_large_message_moves_as_many_windows_as_it_needs() -> None:
    limits = RpcLimits(control_burst=20, control_per_s=1.0)
    async with running(Probe(), limits=limits) as port:
        with grpcio_peer(port) as peer:
            for _ in range(3):
                data = bytes(8_000_000)
                answer = await in_thread(peer.forward, "", data)
                assert answer.hidden_states == data


@pytest.mark.parametrize("frame", [b"\0\0\x08\6\0\0\0\0\0" + bytes(8), SETTINGS])
async def test_a_flood_of_control_frames_waits_for_its_answers_to_be_read(frame: bytes) -> None:
    async with running(Probe(), limits=RpcLimits(stall_s=0.5)) as port, raw_peer(port) as other:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(PREFACE + SETTINGS)
            sent = 0
            with trio.move_on_after(10):
                try:
                    # The client never reads, so the node stops reading and gives up after its stall
                    # time.
                    while True:
                        await stream.send_all(frame * 10_000)
                        sent += 1
                except trio.BrokenResourceError:
                    pass
                else:
                    pytest.fail("never hung up on")
            assert await other.forward()
        assert sent < 1000


async def test_a_ping_flood_that_reads_is_answered() -> None:
    async with running(Probe()) as port, raw_peer(port) as peer:
        for number in range(2000):
            peer.h2.ping(number.to_bytes(8, "big"))
        await peer.flush()
        names = {"PingAckReceived", "PingAcknowledged"}

        def count() -> int:
            return sum(type(event).__name__ in names for event in peer.events)

        await until(lambda: count() == 2000, "all answered")
        assert await peer.forward()


@pytest.mark.parametrize("name", ["zeros", "http1", "preface and noise"])
async def test_our_client_survives_a_peer_that_sends_garbage(name: str) -> None:
    async def babble(stream: trio.SocketStream) -> None:
        await stream.send_all(GARBAGE[name])
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, babble, 0)
        port = listeners[0].socket.getsockname()[1]
        with trio.fail_after(LONG_S), pytest.raises(CallFailed) as failure:
            async with open_channel("127.0.0.1", port, traffic=TrafficMeter()):
                pytest.fail("it is no gRPC server")
        assert failure.value.code is Code.UNAVAILABLE
        nursery.cancel_scope.cancel()


async def test_a_header_block_is_no_longer_than_a_frame_may_be() -> None:
    """The node must end the connection before h2, which collects 64 continuations, rejects them."""
    begin = b"\0\0\1\1\0\0\0\0\1\0"
    more = b"\x04\0\0\x09\0\0\0\0\1" + bytes(1 << 18)
    async with running(Probe()) as port, raw_peer(port) as other:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(PREFACE + SETTINGS + begin)
            with trio.fail_after(LONG_S):
                with contextlib.suppress(trio.BrokenResourceError):
                    for _ in range(40):
                        await stream.send_all(more)
                await read_to_the_end(stream)
        assert await other.forward()
