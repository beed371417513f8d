"""The way of the spans to a collector, as the environment says (decision 0200).

The variables are OpenTelemetry's own. Here are read those that say whether anything is exported,
how, and which contexts are passed on; the SDK reads all others: samplers, limits, resource, queue,
end point, headers, certificates, compression, timeouts.

Invariant: the exporter's thread is a daemon, so a collector that does not answer delays the end of
the node by no more than ``FLUSH_S``.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points

import trio
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

log = logging.getLogger(__name__)

FLUSH_S = 3.0
"""Time for the last spans to reach the collector."""
SAY_AGAIN_S = 60.0
GROUP = "opentelemetry_traces_exporter"
OTLP = "otlp"
PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


class OneRecordAMinute(logging.Handler):
    """Passes on at most one record a minute: a collector that is away fails with every batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_at = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on to the handlers of the root, unless one was passed on lately."""
        now = time.monotonic()
        if now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            logging.getLogger().handle(record)


class ExporterMissing(Exception):
    """An exporter that the environment names is not installed. The message says which."""


def start_export(environ: Mapping[str, str], facts: Mapping[str, str]) -> TracerProvider:
    """A provider whose spans are exported; ``facts`` describe this process.

    Raises ExporterMissing. What ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` say comes
    before the facts. From then on the library's own records are passed on once a minute.
    """
    library = logging.getLogger("opentelemetry")
    library.propagate, library.handlers = False, [OneRecordAMinute()]
    named = OTELResourceDetector().detect().attributes
    resource = Resource.create({**facts, **named})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in _exporters(environ):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


async def serve_export(
    provider: TracerProvider,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Wait until cancelled, and then for the last spans to be exported."""
    task_status.started()
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(FLUSH_S, shield=True) as waiting:
            await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)
        if waiting.cancelled_caught:
            log.warning("the collector did not take the last spans in time")


def _exporters(environ: Mapping[str, str]) -> Iterator[SpanExporter]:
    names = environ.get("OTEL_TRACES_EXPORTER") or OTLP
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name == OTLP:
            protocol = (
                environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
                or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
                or "http/protobuf"
            )
            name = PROTOCOLS.get(protocol, protocol)
        found = next(iter(entry_points(group=GROUP, name=name)), None)
        if found is None:
            raise ExporterMissing(f"no exporter {name!r} is installed")
        exporter: SpanExporter = found.load()()
        yield exporter
