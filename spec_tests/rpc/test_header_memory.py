"""Remembered header blocks are those that hpack and h2 would have read or written."""

from __future__ import annotations

from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, TrailersReceived
from h2.exceptions import ProtocolError
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from meshnode.rpc._h2_compat import SmallTableEncoder
from meshnode.rpc._header_memory import (
    MANY_VALUES,
    MAX_BLOCKS,
    KnownHeaders,
    RememberingDecoder,
    RememberingEncoder,
    parsed_once,
)
from meshnode.rpc._purerpc import grpc_connection
from meshnode.rpc.limits import RpcLimits

pytestmark = pytest.mark.wire

Block = list[tuple[bytes, bytes]]
NAMES = [b":path", b"te", b"x-one", b"x-two", b"grpc-timeout"]
FIELDS = st.tuples(st.sampled_from(NAMES), st.sampled_from([b"", b"a", b"/b", b"c" * 900]))
BLOCKS = st.lists(st.lists(FIELDS, max_size=5), min_size=1, max_size=12)
SIZES = st.lists(st.sampled_from([0, 100, 1000, 4096]), max_size=3)
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/node.NodeService/GetShardInfo"),
    (":authority", "node"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


@given(BLOCKS, SIZES)
def test_blocks_are_decoded_as_hpack_does(blocks: list[Block], sizes: list[int]) -> None:
    encoder, plain, remembering = Encoder(), Decoder(), RememberingDecoder()
    for number, block in enumerate(blocks * 2):
        if number % 7 == 3 and sizes:
            encoder.header_table_size = sizes[number % len(sizes)]
        data = encoder.encode(block)
        assert list(remembering.decode(data, raw=True)) == list(plain.decode(data, raw=True))


@given(BLOCKS, SIZES)
def test_blocks_are_encoded_as_hpack_does(blocks: list[Block], sizes: list[int]) -> None:
    plain, remembering = SmallTableEncoder(), RememberingEncoder()
    for number, block in enumerate(blocks * 2):
        if number % 7 == 3 and sizes:
            plain.header_table_size = sizes[number % len(sizes)]
            remembering.header_table_size = sizes[number % len(sizes)]
        assert remembering.encode(block) == plain.encode(block)


def test_a_repeated_block_is_not_read_again() -> None:
    encoder, decoder = Encoder(), RememberingDecoder()
    block = [(b":path", b"/a"), (b"x-one", b"1")]
    decoder.decode(encoder.encode(block), raw=True)
    data = encoder.encode(block)
    first = decoder.decode(data, raw=True)
    assert isinstance(first, KnownHeaders)
    assert decoder.decode(data, raw=True) is first
    decoder.decode(encoder.encode([(b"x-two", b"2")]), raw=True)
    # The table has changed, and the same bytes may mean something else.
    assert decoder.decode(encoder.encode(block), raw=True) is not first


def test_values_that_keep_changing_leave_the_table_and_what_is_remembered_alone() -> None:
    encoder, decoder = RememberingEncoder(), RememberingDecoder()
    for number in range(2 * MANY_VALUES):
        sent = [*REQUEST, ("x-ms", f"{number}.5")]
        assert [tuple(each) for each in decoder.decode(encoder.encode(sent))] == sent
    entries = list(encoder.header_table.dynamic_entries)
    known = encoder.encode(REQUEST)
    block = [*REQUEST, ("x-ms", "0.1"), ("x-ms", "0.2")]
    assert [tuple(each) for each in decoder.decode(encoder.encode(block))] == block
    assert list(encoder.header_table.dynamic_entries) == entries
    assert encoder.encode(REQUEST) is known


def test_a_few_values_stay_in_the_table() -> None:
    encoder = RememberingEncoder()
    blocks = [[(":path", f"/node.NodeService/{number}")] for number in range(MANY_VALUES - 1)]
    for _ in range(3):
        sizes = [len(encoder.encode(block)) for block in blocks]
    assert set(sizes) == {1}


def test_what_is_remembered_is_bounded() -> None:
    decoder = RememberingDecoder()
    for number in range(10 * MAX_BLOCKS):
        # Literals that do not go into the table.
        decoder.decode(b"\x00\x01x" + bytes([2, 65 + number % 26, 65 + number // 26]), raw=True)
    assert len(decoder._known) <= MAX_BLOCKS
    large = decoder.decode(b"\x00\x01x\x7f\x81\x01" + b"v" * 256, raw=True)
    assert not isinstance(large, KnownHeaders)


def test_headers_are_parsed_once_for_each_purpose() -> None:
    calls: list[str] = []

    def parse(headers: Any) -> int:
        calls.append("parse")
        return len(headers)

    known = KnownHeaders([("a", "b")])
    assert parsed_once(known, parse) == parsed_once(known, parse) == 1
    assert calls == ["parse"]
    assert parsed_once(known, list) == [("a", "b")]
    assert parsed_once(None, parse) == 0


def requests() -> tuple[H2Connection, H2Connection]:
    """A client, and the h2 connection of a server of ours; settings are exchanged."""
    client = H2Connection(H2Configuration(validate_outbound_headers=False))
    client.initiate_connection()
    grpc = grpc_connection(client_side=False, limits=RpcLimits())
    grpc.initiate_connection()
    server = grpc.h2_connection
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    server.receive_data(client.data_to_send())
    return client, server


def test_repeated_requests_arrive_like_the_first() -> None:
    client, server = requests()
    seen: list[Any] = []
    for stream_id in (1, 3, 5):
        client.send_headers(stream_id, REQUEST)
        events = server.receive_data(client.data_to_send())
        seen += [list(e.headers or ()) for e in events if isinstance(e, RequestReceived)]
    assert seen == [REQUEST, REQUEST, REQUEST]


def test_a_known_block_is_checked_again_for_another_purpose() -> None:
    client, server = requests()
    for stream_id in (1, 3, 5):
        client.send_headers(stream_id, REQUEST)
        server.receive_data(client.data_to_send())
    # The same block is no trailers: those have no pseudo-header fields (RFC 9113, 8.1).
    client.send_headers(5, REQUEST, end_stream=True)
    data = client.data_to_send()
    with pytest.raises(ProtocolError):
        server.receive_data(data)


def test_repeated_trailers_arrive() -> None:
    client, server = requests()
    seen = 0
    for stream_id in (1, 3, 5):
        client.send_headers(stream_id, REQUEST)
        client.send_headers(stream_id, [("x-end", "yes")], end_stream=True)
        events = server.receive_data(client.data_to_send())
        seen += sum(isinstance(e, TrailersReceived) for e in events)
    assert seen == 3
