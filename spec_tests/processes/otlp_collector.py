"""A collector for tests: takes spans over OTLP, on HTTP, and keeps them in memory."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class CollectedSpan:
    """A span, and the resource of the node that sent it."""

    node_id: str
    resource: dict[str, Any]
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    attributes: dict[str, Any]
    events: tuple[str, ...]


@dataclass
class Collector:
    """What has arrived."""

    port: int
    spans: list[CollectedSpan] = field(default_factory=list)
    raw: bytes = b""

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a node that exports its spans here."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def take(self, data: bytes) -> None:
        self.raw += data
        for sent in ExportTraceServiceRequest.FromString(data).resource_spans:
            resource = values(sent.resource.attributes)
            for scope in sent.scope_spans:
                self.spans += [
                    CollectedSpan(
                        resource["service.instance.id"],
                        resource,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.name,
                        values(span.attributes),
                        tuple(event.name for event in span.events),
                    )
                    for span in scope.spans
                ]


def values(attributes: Any) -> dict[str, Any]:
    """Attributes by their keys; lists as they came."""
    found = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        found[attribute.key] = getattr(attribute.value, kind)
    return found


@contextmanager
def running_collector() -> Iterator[Collector]:
    """A collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            collector.take(data)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
