"""The request or call that the running task serves, and its span (decision 0200)."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from meshnode.domain.trace_context import TraceContext, read_context

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer
    from opentelemetry.util.types import AttributeValue

    from meshnode.http.access_log import RequestRecord
    from meshnode.services.tracing.clocks import Clocks

Attributes = dict[str, "AttributeValue"]
"""The attributes of a span."""


@dataclass(slots=True, eq=False)
class ServedRequest:
    """What a task serves. Its span begins when it is known whom it is for and what it does."""

    name: str
    """The operation of a call; empty for a request over HTTP."""
    began: int
    """Nanoseconds since 1970."""
    clocks: Clocks
    headers: Mapping[str, str]
    """Those that may have a trace context, with names in lower case."""
    record: RequestRecord | None = None
    """Of a request over HTTP."""
    span: Span | None = None

    def open(self, tracer: Tracer, attributes: Attributes, *, known: bool) -> Span:
        """Begin the span, as part of the caller's trace if the caller is ``known``."""
        parent = read_context(self.headers) if known else None
        self.span = tracer.start_span(
            self.name or f"{self.record.method} {self.record.route}" if self.record else self.name,
            context=None if parent is None else parent_of(parent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=self.began,
        )
        return self.span


SERVED: ContextVar[ServedRequest | None] = ContextVar("served", default=None)
"""Set by the task that serves a request, and seen by the tasks that it starts."""


def parent_of(context: TraceContext) -> Context:
    """A context of the SDK, in which spans become children of a span elsewhere."""
    remote = SpanContext(
        context.trace_id,
        context.span_id,
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([context.state]) if context.state else None,
    )
    return set_span_in_context(NonRecordingSpan(remote))


def context_of(span: Span) -> TraceContext:
    """The context by which another node makes its spans children of ``span``."""
    own = span.get_span_context()
    return TraceContext(
        own.trace_id, own.span_id, own.trace_flags.sampled, own.trace_state.to_header()
    )


def fail(span: Span, kind: str, reason: str = "") -> None:
    """Mark a span as failed; ``kind`` is the name of a class or status, not a text."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, reason or None))
