"""Frames of gRPC calls, made once for attackers that send them often."""

from __future__ import annotations

from collections.abc import Sequence

from hpack import Encoder
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame, WindowUpdateFrame

from meshnode.rpc.framing import PREFIX

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()
ROOM = WindowUpdateFrame(0, (1 << 31) - (1 << 16)).serialize()
"""After the preface: the node may send all answers without waiting for more of these."""
HEAD_BYTES = 9
HEADERS, END_STREAM = 1, 1


def begin(
    stream_id: int,
    operation: str,
    authority: str = "siege",
    metadata: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The headers of a call of the node's service. They do not end the request."""
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/node.NodeService/{operation}"),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *metadata,
    ]
    # An encoder of its own without a table, so that the frames fit into any connection.
    encoder = Encoder()
    encoder.header_table_size = 0
    frame = HeadersFrame(stream_id, encoder.encode(headers), flags=["END_HEADERS"])
    return frame.serialize()


def data(stream_id: int, payload: bytes) -> bytes:
    """A frame of data that does not end the request."""
    return DataFrame(stream_id, payload).serialize()


def call(
    stream_id: int, operation: str, message: bytes, metadata: Sequence[tuple[str, str]] = ()
) -> bytes:
    """A whole unary call."""
    last = DataFrame(stream_id, PREFIX.pack(0, len(message)) + message, flags=["END_STREAM"])
    return begin(stream_id, operation, metadata=metadata) + last.serialize()


class Ends:
    """Counts the calls that end in what a node sends."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, received: bytes) -> int:
        """How many calls end with these bytes."""
        self._received += received
        ended = 0
        while len(self._received) >= HEAD_BYTES:
            size = HEAD_BYTES + int.from_bytes(self._received[:3], "big")
            if len(self._received) < size:
                break
            kind, flags = self._received[3], self._received[4]
            ended += kind == HEADERS and bool(flags & END_STREAM)
            del self._received[:size]
        return ended


def half_of(size: int) -> bytes:
    """The prefix of a message of ``size`` bytes, without the message itself."""
    return PREFIX.pack(0, size)
