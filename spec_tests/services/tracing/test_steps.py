"""Spans of steps over other nodes, on both sides, and of calls over gRPC (decision 0200)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch
import trio
import trio.testing

from meshnode.domain.errors import Unavailable
from meshnode.rpc.caller import Caller, Exchange, enter
from meshnode.rpc.stubs import Operation, Service
from meshnode.services.pipeline.failover import RemoteLayers
from meshnode.services.pipeline.records import HopTrace
from meshnode.services.shards.messages import ForwardAnswer, ForwardCall
from meshnode.services.tracing import trace_calls
from meshnode.wire import node_pb2 as pb
from spec_tests.services.pipeline.simulated import (
    HIDDEN,
    PROMPT,
    SimulatedHolder,
    SimulatedNetwork,
)
from spec_tests.services.tracing.recording import (
    PARENT,
    TRACE_ID,
    Recorded,
    attributes,
    generation,
    id_of,
    trace_of,
)

CALL = ForwardCall(
    caller_ip="192.0.2.1", session_id="s", request_id="r", layers=range(2, 4), data=b"", shape=()
)
ANSWER = ForwardAnswer(b"", (), is_final=False, queue_ms=2.0, compute_ms=3.0)


class OneOperation(Service):
    """A service with one operation, as the generated code would add it."""

    def __init__(self, name: str, handler: Any, *, gives_stream: bool = False) -> None:
        super().__init__("node.NodeService")
        self.operations[name] = Operation(
            name=name,
            handler=handler,
            request_type=pb.SwarmForwardRequest,
            response_type=pb.SwarmForwardResponse,
            takes_stream=gives_stream,
            gives_stream=gives_stream,
        )

    def call(self, name: str, metadata: dict[str, str], ip: str = "192.0.2.1") -> Any:
        """Serve a call in the running task."""
        enter(Exchange(Caller(ip, 5, metadata), {}))
        return self.operations[name].handler(None)


def known(credential: str, ip: str) -> bool:
    return (credential, ip) == ("signed", "192.0.2.1")


def swarm(recorded: Recorded, answer: pb.SwarmForwardResponse | Exception) -> OneOperation:
    """A holder's operation, which computes and calls the next hop."""
    carried: list[dict[str, str]] = []

    async def forward(message: Any) -> pb.SwarmForwardResponse:
        await trio.lowlevel.checkpoint()
        recorded.tracing.observe(CALL, ANSWER)
        carried.append(dict(recorded.tracing.carried()))
        if isinstance(answer, Exception):
            raise answer
        return answer

    service = OneOperation("SwarmForward", forward)
    recorded.tracing.by_peer = known
    trace_calls([service], recorded.tracing)
    service.carried = carried  # type: ignore[attr-defined]
    return service


async def test_a_peers_step_becomes_part_of_its_trace() -> None:
    recorded = Recorded()
    service = swarm(recorded, pb.SwarmForwardResponse(success=True))
    metadata = {"traceparent": PARENT, "tracestate": "vendor=1", "peer-session": "signed"}
    await service.call("SwarmForward", metadata)
    server = recorded.one("node.NodeService/SwarmForward")
    assert trace_of(server) == TRACE_ID
    assert attributes(server) == {
        "rpc.system.name": "grpc",
        "rpc.method": "node.NodeService/SwarmForward",
        "rpc.response.status_code": "OK",
        "meshnode.layers": "2-3",
    }
    assert {span.name for span in recorded.spans} == {server.name, "queue", "compute"}
    # The next hop continues from this span.
    onward = f"00-{TRACE_ID:032x}-{id_of(server):016x}-01"
    assert service.carried == [  # type: ignore[attr-defined]
        {"traceparent": onward, "tracestate": "vendor=1"}
    ]


@pytest.mark.parametrize(
    ("metadata", "ip"),
    [
        ({"traceparent": PARENT}, "192.0.2.1"),
        ({"traceparent": PARENT, "peer-session": "forged"}, "192.0.2.1"),
        ({"traceparent": PARENT, "peer-session": "signed"}, "192.0.2.2"),
        ({"traceparent": PARENT.replace("00-", "ff-", 1), "peer-session": "signed"}, "192.0.2.1"),
        ({"peer-session": "signed"}, "192.0.2.1"),
    ],
    ids=["stranger", "forged", "elsewhere", "malformed", "no context"],
)
async def test_nobody_else_makes_a_holder_record(metadata: dict[str, str], ip: str) -> None:
    recorded = Recorded()
    service = swarm(recorded, pb.SwarmForwardResponse(success=True))
    await service.call("SwarmForward", metadata, ip)
    assert not recorded.spans
    assert service.carried == [{}]  # type: ignore[attr-defined]


async def test_a_step_that_is_not_sampled_is_not_passed_on() -> None:
    recorded = Recorded()
    service = swarm(recorded, pb.SwarmForwardResponse(success=True))
    unsampled = PARENT[:-2] + "00"
    await service.call("SwarmForward", {"traceparent": unsampled, "peer-session": "signed"})
    assert not recorded.spans
    assert service.carried == [{}]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (pb.SwarmForwardResponse(success=False), "INTERNAL"),
        (Unavailable("the node is draining"), "UNAVAILABLE"),
    ],
)
async def test_a_failed_step_is_an_error(answer: Any, status: str) -> None:
    recorded = Recorded()
    service = swarm(recorded, answer)
    call = service.call("SwarmForward", {"traceparent": PARENT, "peer-session": "signed"})
    if isinstance(answer, Exception):
        with pytest.raises(Unavailable):
            await call
    else:
        await call
    found = attributes(recorded.one("node.NodeService/SwarmForward"))
    assert found["error.type"] == found["rpc.response.status_code"] == status


@pytest.mark.parametrize(("left", "status"), [(False, "OK"), (True, "CANCELLED")])
async def test_a_stream_has_a_span_to_its_end(left: bool, status: str) -> None:
    recorded = Recorded()

    async def stream(messages: Any) -> AsyncIterator[int]:
        found = generation()
        recorded.tracing.began(found)
        try:
            for number in range(3):
                yield number
        finally:
            recorded.tracing.ended(found)

    service = OneOperation("StreamInference", stream, gives_stream=True)
    trace_calls([service], recorded.tracing)
    answers = service.call("StreamInference", {"traceparent": PARENT})
    assert await anext(answers) == 0
    if left:
        await answers.aclose()
    else:
        assert [number async for number in answers] == [1, 2]
    server = recorded.one("node.NodeService/StreamInference")
    assert attributes(server)["rpc.response.status_code"] == status
    assert attributes(recorded.one("text_completion small"))["gen_ai.request.stream"] is True


async def test_a_failover_is_seen_in_the_drivers_trace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bad, good = SimulatedHolder("bad", hangs_after=0), SimulatedHolder("good", latency_ms=9.0)
    network, recorded = SimulatedNetwork(bad, good), Recorded()
    found = generation(max_tokens=8)
    recorded.tracing.began(found)
    hops = HopTrace(found.id, recorded.tracing)
    hops.spans = found.trace
    async with network.tasks():
        remote = RemoteLayers(network.context, PROMPT, PROMPT + 1, hops)
        await remote.send(torch.ones(1, PROMPT, HIDDEN))
        await remote.receive()
        remote.close()
    recorded.tracing.ended(found)
    first, second = recorded.named("forward")
    assert attributes(first)["error.type"] == "HopFailed"
    assert "error.type" not in attributes(second)
    events = [event.name for event in recorded.one("text_completion small").events]
    assert events == ["meshnode.path", "meshnode.failover", "meshnode.path"]


async def test_what_is_not_traced_costs_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """Without a trace, the calls carry nothing."""
    network = SimulatedNetwork(SimulatedHolder("holder"))
    await network.generate(4)
