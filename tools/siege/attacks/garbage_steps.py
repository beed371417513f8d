"""Sends training steps with random tokens and labels that nobody has signed (decision 0137)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import trio

from meshnode.rpc.framing import PREFIX
from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.training_message import step

CONNECTIONS = 4
HEADERS = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/node.NodeService/PipelineForward"),
    (":authority", "node"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("training", "step"),
)


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled: one step after another on each connection."""
    bodies = [PREFIX.pack(0, len(each)) + each for each in map(step, range(256))]

    async def visit(stream: trio.SocketStream) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        connection.initiate_connection()
        number = random.randrange(len(bodies))
        try:
            while True:
                number += 1
                call = connection.get_next_available_stream_id()
                connection.send_headers(call, HEADERS)
                connection.send_data(call, bodies[number % len(bodies)], end_stream=True)
                await stream.send_all(connection.data_to_send())
                await _ended(stream, connection)
        except h2.exceptions.ProtocolError:
            return

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


async def _ended(stream: trio.SocketStream, connection: h2.connection.H2Connection) -> None:
    """Wait until the call is over."""
    while True:
        data = await stream.receive_some(65536)
        if not data:
            raise trio.BrokenResourceError
        events = connection.receive_data(data)
        await stream.send_all(connection.data_to_send())
        if any(isinstance(e, (h2.events.StreamEnded, h2.events.StreamReset)) for e in events):
            return


ATTACK = Attack(
    "training steps that no member has signed, one after another on 4 connections",
    attack,
    point=10,
    # Without data the node does not train by itself, which would take processors from clients.
    settings={"MESHNODE_TRAINING_ENABLED": "true", "MESHNODE_TRAINING_TEXT": "/nowhere"},
)
