"""Three nodes answer a request; a collector gets one trace with spans of all (decision 0200)."""

from __future__ import annotations

import http.client
import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from meshnode.wire import node_pb2 as pb
from spec_tests.ports import free_port
from spec_tests.processes.nodes import Node, running_node, starting_node, wait_until
from spec_tests.processes.otlp_collector import Collector, running_collector
from spec_tests.processes.pipelines import NODE, PATIENT

pytestmark = [pytest.mark.process, pytest.mark.slow]

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "default",
    "messages": [{"role": "user", "content": "a-secret-word"}],
    "max_tokens": 5,
    # Whatever is drawn otherwise may end the answer earlier.
    "temperature": 0,
    "stream": True,
}


def chat(node: Node, token: str) -> bytes:
    """Stream a chat, as part of a trace that the client has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=600)
    headers = {"Authorization": f"Bearer {token}", "traceparent": PARENT}
    headers["Content-Type"] = "application/json"
    connection.request("POST", CHAT, json.dumps(BODY), headers)
    answer = connection.getresponse().read()
    connection.close()
    return answer


def test_one_request_over_three_nodes_is_one_trace(tmp_path: Path) -> None:
    with ExitStack() as stack:
        collector = stack.enter_context(running_collector())
        settings = {**NODE, **collector.variables, "OTEL_SERVICE_NAME": "test-service"}
        driver = stack.enter_context(
            running_node(tmp_path / "a", "--layers", "0-2", changes=[PATIENT], **settings)
        )
        nodes = [driver]
        for name, layers in (("b", "3-5"), ("c", "6-7")):
            tracker = f"http://127.0.0.1:{driver.port}"
            options = ("--layers", layers, "--tracker", tracker)
            nodes.append(stack.enter_context(starting_node(tmp_path / name, *options, **settings)))
        for node in nodes[1:]:
            node.wait_ready()
        # Holders believe the contexts of nodes that they know.
        for node in nodes:
            wait_until(lambda node=node: node.ask("GET", "/api/v1/status").json["peer_count"] == 2)
        ids = {node.ask("GET", "/api/v1/status").json["node_id"] for node in nodes}
        wait_until(lambda: whole(collector, driver, ids))
        ask_over_grpc(driver)
        begun_by_client = {
            (f"POST {CHAT}", "b7ad6b7169203331"),
            ("node.NodeService/UnaryInference", "b7ad6b7169203331"),
        }
        # Each node exports its spans on its own, so a child may come before its parent.
        wait_until(lambda: roots(collector) == begun_by_client)
        spans = [span for span in collector.spans if span.trace_id == TRACE]
        assert {span.resource["service.name"] for span in spans} == {"test-service"}
        assert {"queue", "prefill", "decode", "sampling", "forward", "stream", "compute"} <= {
            span.name for span in spans
        }
        generations = [span for span in spans if span.name == "chat default"]
        assert all(span.attributes["gen_ai.usage.output_tokens"] == 5 for span in generations)
        assert b"a-secret-word" not in collector.raw


def roots(collector: Collector) -> set[tuple[str, str]]:
    """Names and parents of the trace's spans whose parents the collector does not have."""
    spans = [span for span in collector.spans if span.trace_id == TRACE]
    known = {span.span_id for span in spans}
    return {(span.name, span.parent_id) for span in spans if span.parent_id not in known}


def ask_over_grpc(node: Node) -> None:
    """Generate with Google's client, as part of the same trace."""
    metadata = [("authorization", f"Bearer {node.token}"), ("traceparent", PARENT)]
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}") as channel:
        call = channel.unary_unary(
            "/node.NodeService/UnaryInference",
            pb.InferenceRequest.SerializeToString,
            pb.InferenceResponse.FromString,
        )
        request = pb.InferenceRequest(prompt="a-secret-word", max_tokens=2)
        assert call(request, metadata=metadata, timeout=600).tokens_generated == 2


def whole(collector: Collector, driver: Node, ids: set[str]) -> bool:
    """Ask once more; whether the collector then has spans of all nodes."""
    assert chat(driver, driver.token).rstrip().endswith(b"data: [DONE]")

    def exported() -> bool:
        count = len(collector.spans)
        names = [span.name for span in collector.spans]
        return count > 0 and names.count("stream") == names.count(f"POST {CHAT}") > 0

    wait_until(exported)
    return {span.node_id for span in collector.spans if span.trace_id == TRACE} == ids


def test_a_collector_that_is_away_holds_nothing_up(tmp_path: Path) -> None:
    variables = {
        **NODE,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_BSP_MAX_QUEUE_SIZE": "16",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16",
    }
    with running_node(tmp_path / "data", **variables) as node:
        for _ in range(20):
            assert (
                node.ask("POST", "/api/v1/inference", {"prompt": "a", "max_tokens": 5}).status
                == 200
            )
        node.signal(signal.SIGTERM)
        status, log = node.wait()
    assert status == 0
    assert log.count("opentelemetry: ") == 1
