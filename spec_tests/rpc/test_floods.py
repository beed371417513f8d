"""Frames that bring little end their connection; ordinary use never does (decision 0128)."""

from __future__ import annotations

import contextlib
import shutil
from typing import Any

import pytest
import trio

from meshnode.rpc.framing import prefix
from meshnode.rpc.limits import RpcLimits
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import Probe, RawPeer, raw_peer, running, until

pytestmark = pytest.mark.wire

FEW = RpcLimits(control_burst=70, control_per_s=1.0)
GET: dict[str, Any] = {":method": "GET"}
HEAD: dict[str, Any] = {":method": "HEAD"}


async def test_the_windows_of_ordinary_calls_are_no_flood() -> None:
    """grpcio opens two windows for each call, and makes a thousand calls a second."""
    async with running(Probe(), limits=FEW) as port, raw_peer(port) as peer:
        for _ in range(60):
            assert await peer.forward()
            peer.h2.increment_flow_control_window(5)
            peer.h2.increment_flow_control_window(5)
            await peer.flush()
        assert await peer.forward()
        assert not peer.closed


async def test_calls_that_are_refused_pay_for_their_frames_too() -> None:
    async with running(Probe(), limits=FEW) as port, raw_peer(port) as peer:
        for number in range(60):
            headers: dict[str, Any] = GET if number % 2 else {":path": "/node.NodeService/No"}
            stream_id = await peer.request(**headers)
            await until(lambda: bool(peer.fields(stream_id)), "an answer")  # noqa: B023
            peer.h2.increment_flow_control_window(5)
            peer.h2.increment_flow_control_window(5)
            await peer.flush()
        assert await peer.forward()


async def flood(peer: RawPeer, frames: int) -> None:
    """Send a message in frames of one byte, until they are sent or the node hangs up."""
    stream_id = await peer.request(body=prefix(bytes(frames + 1)), end=False)
    with contextlib.suppress(trio.BrokenResourceError):
        for _ in range(frames):
            peer.h2.send_data(stream_id, b"x")
        await peer.flush()


async def test_a_message_in_frames_of_one_byte_is_a_flood() -> None:
    async with running(Probe(), limits=FEW) as port, raw_peer(port) as other:
        async with raw_peer(port) as peer:
            await flood(peer, 500)
            await until(lambda: peer.closed, "hung up on")
        # A new connection of that address has no new burst; an honest one is served as before.
        async with raw_peer(port) as peer:
            await flood(peer, 80)
            await until(lambda: peer.closed, "hung up on")
        assert await other.forward()


async def test_frames_of_a_call_that_has_ended_are_a_flood() -> None:
    """h2 makes no event of such frames."""
    async with running(Probe(), limits=FEW) as port, raw_peer(port) as peer:
        stream_id = await peer.request(content_type="text/html", end=False)
        frame = b"\0\0\1\0\0" + stream_id.to_bytes(4, "big") + b"x"
        await until(lambda: bool(peer.fields(stream_id)), "refused")
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.send(frame * 500)
        await until(lambda: peer.closed, "hung up on")


async def test_requests_that_are_sent_ahead_are_read_more_slowly() -> None:
    limits = RpcLimits(control_burst=100, control_per_s=2000.0)
    request = pb.InferenceRequest(max_tokens=1).SerializeToString()
    path: dict[str, Any] = {":path": "/node.NodeService/StreamInference"}
    async with running(Probe(), limits=limits) as port, raw_peer(port) as peer:
        stream_id = await peer.request(end=False, **path)
        for _ in range(400):
            peer.h2.send_data(stream_id, prefix(request) + request)
        peer.h2.end_stream(stream_id)
        await peer.flush()
        assert await peer.status(stream_id) == "0"


async def test_streams_above_the_advertised_number_are_refused_one_by_one() -> None:
    limits = RpcLimits(calls_per_connection=4)
    probe = Probe()
    wait = pb.PipelineForwardRequest(session_id="wait").SerializeToString()
    async with running(probe, limits=limits) as port, raw_peer(port) as peer:
        # Sent before the settings are read, as a fast client may.
        peer.h2.remote_settings.max_concurrent_streams = 100
        streams = [peer.begin(body=prefix(wait) + wait) for _ in range(7)]
        await peer.flush()
        await until(lambda: len(peer.resets()) == 3, "refused")
        assert peer.resets() == dict.fromkeys(streams[4:], 7)
        probe.release.set()
        for stream_id in streams[:4]:
            assert await peer.status(stream_id) == "0"


async def test_calls_abandoned_at_their_deadline_make_room_for_others_at_once() -> None:
    limits = RpcLimits(calls_per_connection=4)
    probe = Probe()
    wait = pb.PipelineForwardRequest(session_id="wait").SerializeToString()
    async with running(probe, limits=limits) as port, raw_peer(port) as peer:
        late = [await peer.request(body=prefix(wait) + wait) for _ in range(4)]
        await until(lambda: probe.running == 4, "as many as advertised")
        for stream_id in late:
            peer.h2.reset_stream(stream_id, 8)
        others = [peer.begin(body=b"\0" * 5) for _ in range(4)]
        await peer.flush()
        for stream_id in others:
            assert await peer.status(stream_id) == "0"
        assert not peer.resets()


async def test_a_refusal_has_a_text_that_waits_for_the_window() -> None:
    async with running(Probe()) as port, raw_peer(port) as peer:
        peer.h2.update_settings({4: 1})  # INITIAL_WINDOW_SIZE
        await peer.flush()
        await until(lambda: peer.h2.local_settings.initial_window_size == 1, "settings")
        stream_id = await peer.request(**GET)
        await until(lambda: peer.body(stream_id).endswith(b"\n"), "the whole text")
        assert peer.body(stream_id) == b"gRPC calls use POST\n"
        fields = peer.fields(stream_id)
        assert fields[":status"] == "405"
        assert fields["allow"] == "POST"
        assert fields["content-length"] == "20"
        head = await peer.request(**HEAD)
        await until(lambda: bool(peer.fields(head)), "an answer")
        assert not peer.body(head)
        assert await peer.forward()


async def test_h2spec_finds_no_fault() -> None:
    program = shutil.which("h2spec")
    if program is None:
        pytest.skip("h2spec is not on the PATH")
    async with running(Probe()) as port:
        command = [program, "-p", str(port), "-o", "5"]
        done = await trio.run_process(command, capture_stdout=True, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert "145 tests, 145 passed, 0 skipped, 0 failed" in done.stdout.decode()
