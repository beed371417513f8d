"""The patches between purerpc and h2 (decision 0019), on which the wire tests depend too."""

import struct
import subprocess
import sys
from typing import Any

import h2.events
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import FrameTooLargeError
from hyperframe.frame import DataFrame, GoAwayFrame

from meshnode.rpc import _h2_compat
from meshnode.rpc._purerpc import grpc_connection
from meshnode.rpc.limits import RpcLimits

pytestmark = pytest.mark.wire


@pytest.mark.parametrize(
    "module", ["meshnode.rpc.server", "meshnode.rpc.channel", "meshnode.rpc.node_grpc"]
)
def test_any_module_can_be_the_first_import(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {module}"], capture_output=True, check=False
    )
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_ping_answer_has_one_name_for_us() -> None:
    older: Any = vars(h2.events)["PingAcknowledged"]
    assert issubclass(h2.events.PingAckReceived, older)


def connected() -> tuple[H2Connection, H2Connection]:
    client = H2Connection(H2Configuration(client_side=True))
    server = H2Connection(H2Configuration(client_side=False))
    for side in (client, server):
        side.initiate_connection()
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    return client, server


def test_a_goaway_is_an_event_and_no_more() -> None:
    client, server = connected()
    _h2_compat.keep_streams_after_goaway(client)
    fields = {":method": "POST", ":scheme": "http", ":path": "/", ":authority": "test"}
    client.send_headers(1, list(fields.items()))
    (event,) = client.receive_data(_h2_compat.goaway_frame(1, 0))
    assert isinstance(event, h2.events.ConnectionTerminated)
    assert event.last_stream_id == 1
    # Data written before the GOAWAY is still sent, and the stream continues both ways.
    client.send_data(1, b"more", end_stream=True)
    events = server.receive_data(client.data_to_send())
    assert any(isinstance(event, h2.events.StreamEnded) for event in events)
    server.send_headers(1, [(":status", "200")], end_stream=True)
    events = client.receive_data(server.data_to_send())
    assert any(isinstance(event, h2.events.ResponseReceived) for event in events)


def test_our_goaway_is_what_h2_reads() -> None:
    frame, length = GoAwayFrame.parse_frame_header(memoryview(_h2_compat.goaway_frame(7, 11))[:9])
    assert isinstance(frame, GoAwayFrame)
    frame.parse_body(memoryview(_h2_compat.goaway_frame(7, 11))[9:])
    assert (length, frame.last_stream_id, frame.error_code) == (8, 7, 11)


@pytest.mark.parametrize(
    ("begin", "overlong"),
    [(b"", False), (b"\0\x40", False), (b"\0\x40\0", False), (b"\0\x40\1", True), (b"GET", True)],
)
def test_an_overlong_frame_is_known_by_its_length(begin: bytes, overlong: bool) -> None:
    client, _ = connected()
    client.receive_data(begin)
    assert client.max_inbound_frame_size == 0x4000
    assert _h2_compat.awaits_overlong_frame(client) is overlong


@pytest.mark.parametrize("at_once", [True, False])
def test_a_header_block_needs_no_more_than_the_smallest_frame(at_once: bool) -> None:
    """h2spec's 4.2, case 3. Frames of data may be larger, as the settings say."""
    size = _h2_compat.MAX_HEADER_BLOCK + 1
    frame = size.to_bytes(3, "big") + b"\1\5\0\0\0\1" + bytes(size)
    _, ours = served_connection()
    assert ours.max_inbound_frame_size > 10 * size
    if at_once:
        with pytest.raises(FrameTooLargeError):
            ours.receive_data(frame)
    else:
        ours.receive_data(frame[:100])
        assert _h2_compat.awaits_overlong_frame(ours)
    _, ours = served_connection()
    ours.receive_data(frame[:3] + b"\0" + frame[4:100])
    assert not _h2_compat.awaits_overlong_frame(ours)
    assert _h2_compat.missing_bytes(ours) == 9 + size - 100


def test_frames_without_an_event_are_counted() -> None:
    _, ours = served_connection()
    counted: list[None] = []
    _h2_compat.count_frames(ours, lambda: counted.append(None))
    ours.receive_data(b"\0\0\0\x77\0\0\0\0\0" * 3 + b"\0\0\5\2\0\0\0\0\1\0\0\0\0\x10")
    assert len(counted) == 4


def test_a_frame_of_data_is_not_written_out_in_full() -> None:
    frame = DataFrame(1, bytes(1_000_000))
    assert len(repr(frame)) < 100


def settings_frame(values: dict[int, int]) -> bytes:
    """A SETTINGS frame with any number of settings."""
    body = b"".join(struct.pack(">HI", *pair) for pair in values.items())
    return len(body).to_bytes(3, "big") + b"\4\0\0\0\0\0" + body


def served_connection() -> tuple[H2Connection, H2Connection]:
    """The client's and the node's side of one connection."""
    client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    ours = grpc_connection(client_side=False, limits=RpcLimits())
    client.initiate_connection()
    ours.initiate_connection()
    client.receive_data(ours.data_to_send())
    ours.h2_connection.receive_data(client.data_to_send())
    client.receive_data(ours.data_to_send())
    return client, ours.h2_connection


def test_settings_that_nobody_knows_are_not_kept() -> None:
    _, ours = served_connection()
    before = len(ours.remote_settings)
    ours.receive_data(settings_frame(dict.fromkeys(range(100, 65_000), 1) | {4: 77}))
    assert ours.remote_settings.initial_window_size == 77
    assert len(ours.remote_settings) == before


def test_a_peer_does_not_choose_how_much_of_our_headers_is_remembered() -> None:
    client, ours = served_connection()
    for size in (2**32 - 1, 0, 100, 8192, 2**32 - 1, 2**32 - 1):
        ours.receive_data(settings_frame({1: size}))  # HEADER_TABLE_SIZE
        assert ours.encoder.header_table_size == min(size, 4096)
    # The peer is notified of the size and can still decode the headers that it gets.
    client.receive_data(ours.data_to_send())
    for stream_id in range(1, 400, 2):
        fields = {":method": "POST", ":scheme": "http", ":path": "/", ":authority": "test"}
        client.send_headers(stream_id, list(fields.items()), end_stream=True)
        ours.receive_data(client.data_to_send())
        headers = [(":status", "200"), ("x-new", f"{stream_id}-" * 20), ("x-old", "the same")]
        ours.send_headers(stream_id, headers, end_stream=True)
        events = client.receive_data(ours.data_to_send())
        (answer,) = [event for event in events if isinstance(event, h2.events.ResponseReceived)]
        received: list[Any] = [tuple(pair) for pair in answer.headers]
        assert received == headers
