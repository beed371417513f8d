"""A node that serves lines, and calls to it (decision 0263)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.caller import answer_metadata, caller
from meshnode.rpc.channel import Channel, open_channel
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.line_server import line_service
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.stubs import Answer
from meshnode.wire import line_pb2
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import (
    Probe,
    running,
    until,
)

SMALL = 4096
"""More than the answers of these tests have."""
METHOD = "PipelineForward"


class Told(Probe):
    """Answers with what it was told beside the message."""

    async def PipelineForward(  # noqa: N802 - the document's name
        self, input_message: pb.PipelineForwardRequest
    ) -> pb.PipelineForwardResponse:
        for key, value in caller().metadata.items():
            answer_metadata(f"told-{key}", value)
        return await super().PipelineForward(input_message)


@asynccontextmanager
async def node(
    probe: Probe, traffic: TrafficMeter | None = None, limits: RpcLimits | None = None
) -> AsyncIterator[Channel]:
    """A node that serves lines, and a channel to it."""
    served = traffic or TrafficMeter()
    lines = SimpleNamespace(service=line_service([probe.service], served))
    async with (
        running(probe, lines, traffic=served, limits=limits) as port,
        open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel,
    ):
        yield channel


async def ask(
    channel: Channel, wish: str = "", data: bytes = b"", **told: str
) -> Answer[pb.PipelineForwardResponse]:
    request = pb.PipelineForwardRequest(session_id=wish, hidden_states=data)
    stub = NodeServiceStub(channel)
    return await stub.PipelineForward.ask(request, metadata=told, most_bytes=SMALL, line=True)


async def opened(channel: Channel) -> None:
    """Make the call that opens the line, and wait until it is open."""
    await ask(channel)
    await until(lambda: channel.line.takes(0, SMALL), "the line is open")


def streams(channel: Channel) -> int:
    """How many streams the connection has had."""
    return (channel.connection.h2.highest_outbound_stream_id + 1) // 2


def line_call(number: int, wish: str = "", **fields: Any) -> line_pb2.LineCall:
    request = pb.PipelineForwardRequest(session_id=wish).SerializeToString()
    given: dict[str, Any] = {"operation": METHOD, "request": request, **fields}
    return line_pb2.LineCall(number=number, **given)
