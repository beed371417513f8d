"""Frames of gRPC calls, made once for attackers that send them often."""

from __future__ import annotations

from hpack import Encoder
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame

from meshnode.rpc.framing import PREFIX

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()


def begin(stream_id: int, operation: str, authority: str = "siege") -> bytes:
    """The headers of a call of the node's service. They do not end the request."""
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/node.NodeService/{operation}"),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    # An encoder of its own without a table, so that the frames fit into any connection.
    encoder = Encoder()
    encoder.header_table_size = 0
    frame = HeadersFrame(stream_id, encoder.encode(headers), flags=["END_HEADERS"])
    return frame.serialize()


def data(stream_id: int, payload: bytes) -> bytes:
    """A frame of data that does not end the request."""
    return DataFrame(stream_id, payload).serialize()


def half_of(size: int) -> bytes:
    """The prefix of a message of ``size`` bytes, without the message itself."""
    return PREFIX.pack(0, size)
