"""The spans of requests and generations on one node (decision 0200)."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from meshnode.domain.errors import LayersUnavailable
from meshnode.domain.shares import Standing
from meshnode.http.access_log import RequestRecord
from meshnode.rpc.caller import Caller
from meshnode.services.observing import PathHop
from meshnode.services.pipeline.records import HopTime, HopTrace
from meshnode.services.tracing.generations import SHOWN_STEPS
from spec_tests.services.tracing.recording import (
    CHAT,
    PARENT,
    TRACE_ID,
    Recorded,
    attributes,
    generation,
    id_of,
    run,
    trace_of,
)

HEADERS = [(b"traceparent", PARENT.encode()), (b"authorization", b"Bearer secret")]


def begun(recorded: Recorded, route: str = CHAT, *, known: bool = True) -> RequestRecord:
    """A request that has been authorised, in the running task."""
    record = RequestRecord("7a0e", "POST", trio.current_time())
    recorded.tracing.request_began(record, HEADERS)
    record.route, record.known = route, known
    return record


def answered(recorded: Recorded, record: RequestRecord, status: int = 200) -> None:
    record.status, record.complete = status, True
    recorded.tracing.request_ended(record)


async def test_a_request_is_one_trace(autojump_clock: trio.testing.MockClock) -> None:
    hops = HopTrace("gen-1")
    hops.add([HopTime("b" * 40, 2, 3, 1.0, 2.0, 3.0)] * 2)
    recorded = Recorded(hops=lambda identifier: hops)
    record = begun(recorded)
    record.streamed, record.answered = True, trio.current_time()
    found = generation(max_tokens=4, temperature=0.5, seed=7)
    recorded.tracing.began(found)
    recorded.tracing.routed(found.id, [PathHop("b" * 40, 2, 3)])
    recorded.tracing.failed_over(found.id, "the hop is gone")
    await run(found, 4)
    recorded.tracing.ended(found)
    answered(recorded, record)
    server, model = recorded.one(f"POST {CHAT}"), recorded.one("chat small")
    assert {trace_of(span) for span in recorded.spans} == {TRACE_ID}
    assert server.parent is not None
    assert server.parent.span_id == int(PARENT[36:52], 16)
    assert server.kind is SpanKind.SERVER
    assert attributes(server) == {
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "meshnode.request.id": "7a0e",
    }
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "meshnode",
        "gen_ai.request.model": "small",
        "gen_ai.response.model": "small",
        "gen_ai.response.id": "chatcmpl-7a0e",
        "gen_ai.output.type": "text",
        "gen_ai.request.max_tokens": 4,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": 50,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
        "meshnode.generation.id": "gen-1",
        "meshnode.outcome": "length",
        "meshnode.sampling.duration": pytest.approx(0.004),
    }
    assert attributes(model) == expected
    names = [event.name for event in model.events]
    assert names == ["meshnode.path", "meshnode.failover", "meshnode.first_token", "meshnode.hop"]
    assert dict(model.events[3].attributes or {})["meshnode.compute.duration"] == 0.004
    inside = {span.name for span in recorded.spans if span.parent and not span.parent.is_remote}
    assert inside == {"chat small", "queue", "prefill", "decode", "sampling", "stream"}
    took = {
        name: ((recorded.one(name).end_time or 0) - (recorded.one(name).start_time or 0)) / 1e9
        for name in ("queue", "prefill", "decode", "stream")
    }
    assert took == pytest.approx({"queue": 0.25, "prefill": 0.25, "decode": 0.75, "stream": 1.25})
    assert "secret" not in "".join(span.to_json() for span in recorded.spans)


async def test_a_long_generation_has_few_spans(autojump_clock: trio.testing.MockClock) -> None:
    recorded = Recorded()
    found = generation(max_tokens=100)
    recorded.tracing.began(found)
    assert found.trace is not None
    calls = [found.trace.calling(1) for _ in range(100)]
    for call in calls:
        if call is not None:
            call.ended()
    await run(found, 100)
    recorded.tracing.ended(found)
    assert len(recorded.named("forward")) == len(recorded.named("sampling")) == SHOWN_STEPS
    assert len(recorded.spans) == 2 * SHOWN_STEPS + 4


async def test_failures_are_named(autojump_clock: trio.testing.MockClock) -> None:
    recorded = Recorded()
    record = begun(recorded)
    found = generation()
    recorded.tracing.began(found)
    assert found.trace is not None
    call = found.trace.calling(3)
    assert call is not None
    call.ended("the holder is gone")
    found.fail(LayersUnavailable("no node holds layer 3"), trio.current_time())
    recorded.tracing.ended(found)
    answered(recorded, record, 503)
    kinds = {
        name: (span.status.status_code, attributes(span)["error.type"])
        for name in ("forward", "text_completion small", "chat small", f"POST {CHAT}")
        for span in recorded.named(name)
    }
    assert kinds == {
        "forward": (StatusCode.ERROR, "HopFailed"),
        "chat small": (StatusCode.ERROR, "LayersUnavailable"),
        f"POST {CHAT}": (StatusCode.ERROR, "503"),
    }


async def test_a_refused_request_has_a_span_if_its_client_is_known() -> None:
    for known, route, status, spans in (
        (True, CHAT, 402, 1),
        (False, CHAT, 401, 0),
        (True, "/api/v1/peers", 429, 0),
    ):
        recorded = Recorded()
        answered(recorded, begun(recorded, route, known=known), status)
        assert len(recorded.spans) == spans


@pytest.mark.parametrize(
    ("standing", "joined"),
    [(Standing.PAYING, True), (Standing.PEER, True), (Standing.FREE, False)],
)
async def test_only_a_known_caller_chooses_the_trace(standing: Standing, joined: bool) -> None:
    recorded = Recorded()
    caller = Caller("192.0.2.1", 5, {"traceparent": PARENT})
    served = recorded.tracing.generating_call("StreamInference", caller)
    found = generation(standing=standing)
    recorded.tracing.began(found)
    recorded.tracing.ended(found)
    recorded.tracing.call_ended(served, "OK")
    server = recorded.one("node.NodeService/StreamInference")
    assert (trace_of(server) == TRACE_ID) is joined
    assert (server.parent is not None) is joined
    inner = recorded.one("text_completion small").parent
    assert inner is not None
    assert inner.span_id == id_of(server)


async def test_the_operators_sampler_decides() -> None:
    """With a sampler that does not look at the parent, a customer's flag changes nothing."""
    never = TraceIdRatioBased(0.0)
    for sampler, recorded_spans in ((never, 0), (ParentBased(never), 3)):
        recorded = Recorded(sampler)
        record = begun(recorded)
        found = generation()
        recorded.tracing.began(found)
        assert (found.trace is None) is (recorded_spans == 0)
        recorded.tracing.ended(found)
        answered(recorded, record)
        assert len(recorded.spans) == recorded_spans


async def test_without_propagation_every_trace_is_the_nodes_own() -> None:
    recorded = Recorded(propagates=False)
    record = begun(recorded)
    found = generation()
    recorded.tracing.began(found)
    recorded.tracing.ended(found)
    answered(recorded, record)
    assert recorded.one(f"POST {CHAT}").parent is None


async def test_requests_side_by_side_keep_apart() -> None:
    recorded, numbers = Recorded(), itertools.count()

    async def one() -> None:
        record = begun(recorded, known=False)
        found = generation()
        found.id = f"gen-{next(numbers)}"
        await trio.testing.wait_all_tasks_blocked()
        recorded.tracing.began(found)
        await trio.testing.wait_all_tasks_blocked()
        recorded.tracing.ended(found)
        answered(recorded, record)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(one)
    servers = recorded.named(f"POST {CHAT}")
    assert len({trace_of(span) for span in servers}) == 5
    for span in recorded.named("chat small"):
        assert span.parent is not None
        assert span.parent.span_id in {id_of(each) for each in servers}
