"""A gRPC call with a large message, on a connection of its own."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import h2.config
import h2.connection
import h2.events
import trio

RECEIVE = 65536
PREFIX = struct.Struct(">BI")
"""Flags and length of a message."""


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """A message of ``count`` equal pieces, which is never in memory as a whole."""

    operation: str
    piece: bytes
    count: int


async def call(stream: trio.SocketStream, message: LargeMessage) -> None:
    """Make the call, send as much as the node takes, and return when it has ended the call."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    stream_id = connection.get_next_available_stream_id()
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/node.NodeService/{message.operation}"),
        (":authority", "node"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    connection.send_headers(stream_id, headers)
    await stream.send_all(connection.data_to_send())
    # The node's settings come first: before them its windows are small.
    if not await _read(stream, connection):
        return
    block = message.piece * (RECEIVE // len(message.piece))
    left = len(message.piece) * message.count
    data = PREFIX.pack(0, left)
    while data:
        while connection.local_flow_control_window(stream_id) < len(data):
            if not await _read(stream, connection):
                return
        connection.send_data(stream_id, data)
        await stream.send_all(connection.data_to_send())
        data = block[:left]
        left -= len(data)
    connection.end_stream(stream_id)
    await stream.send_all(connection.data_to_send())
    while await _read(stream, connection):
        pass


async def _read(stream: trio.SocketStream, connection: h2.connection.H2Connection) -> bool:
    """Take in what the node sends. False when the call or the connection is over."""
    data = await stream.receive_some(RECEIVE)
    if not data:
        return False
    over = (h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)
    events = connection.receive_data(data)
    await stream.send_all(connection.data_to_send())
    return not any(isinstance(event, over) for event in events)
