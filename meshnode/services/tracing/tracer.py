"""Records the spans of requests, generations, and steps for other nodes (decision 0200).

A caller's context is believed if the caller is known: over HTTP and for generations, by a bearer
token; for steps of other nodes' generations, by the credential of a peer (decision 0164). Anybody
else's request begins a trace of its own, and a stranger's step has no span at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.trace import set_span_in_context

from meshnode.domain.shares import Standing
from meshnode.domain.trace_context import TRACEPARENT, TRACESTATE, read_context
from meshnode.services.shards.decoding import CREDENTIAL
from meshnode.services.tracing.clocks import Clocks
from meshnode.services.tracing.generations import GenerationSpans, operation_of, request_attributes
from meshnode.services.tracing.served import (
    SERVED,
    Attributes,
    ServedRequest,
    context_of,
    fail,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

    from meshnode.http.access_log import RequestRecord
    from meshnode.rpc.caller import Caller
    from meshnode.services.generation import Generation
    from meshnode.services.observing import PathHop
    from meshnode.services.pipeline.records import HopTrace
    from meshnode.services.shards.messages import ForwardAnswer, ForwardCall

PACKAGE = "node.NodeService"
NOBODY: Mapping[str, str] = {}
_HEADERS = {name.encode(): name for name in (TRACEPARENT, TRACESTATE)}


class Tracing:
    """Handle: an observer of generations, requests, calls and steps."""

    def __init__(
        self,
        provider: TracerProvider,
        *,
        model: str,
        version: str,
        hops: Callable[[str], HopTrace | None],
        routes: frozenset[str],
        propagates: bool = True,
    ) -> None:
        """``hops`` gives the hops of a generation by its id; ``routes`` are those that generate.

        Unless it ``propagates``, contexts are neither taken from callers nor passed on.
        """
        self.provider = provider
        self._tracer = provider.get_tracer("meshnode", version)
        self._model = model
        self._hops = hops
        self._routes = routes
        self._propagates = propagates
        # Bounded like the generations: by the places of the batch and those of the queue.
        self._open: dict[str, GenerationSpans] = {}
        self.by_peer: Callable[[str, str], bool] = lambda credential, ip: False
        """Tells peers from strangers, by credential and address (decision 0164)."""

    # Requests over HTTP.

    def request_began(self, record: RequestRecord, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """A request has arrived. It gets a span if it turns out to generate."""
        found = (
            {_HEADERS[name]: value.decode("latin-1") for name, value in headers if name in _HEADERS}
            if self._propagates
            else {}
        )
        clocks = Clocks()
        SERVED.set(ServedRequest("", clocks.at(record.began), clocks, found, record))

    def request_ended(self, record: RequestRecord) -> None:
        """A request's answer is complete, or its client has gone."""
        served = SERVED.get()
        if served is None or served.record is not record:
            return
        # The task may serve another request after this one.
        SERVED.set(None)
        if served.span is None:
            # What strangers are refused has no span: they could fill the collector with it.
            if record.route not in self._routes or not record.known:
                return
            self._open_request(served)
        span, clocks = served.span, served.clocks
        if span is None:
            return
        ended = clocks.now()
        if record.streamed and record.answered is not None and record.status == 200:
            inside, began = set_span_in_context(span), clocks.at(record.answered)
            self._tracer.start_span("stream", inside, start_time=began).end(ended)
        if record.status is not None:
            span.set_attribute("http.response.status_code", record.status)
            if record.status >= 500:
                fail(span, str(record.status))
        if not record.complete:
            span.set_attribute("meshnode.client.left", True)
        span.end(ended)

    # Calls over gRPC.

    def generating_call(self, operation: str, caller: Caller) -> ServedRequest:
        """A call that generates text begins. Its span begins with its first generation."""
        return self._call(operation, caller)

    def forward_call(self, operation: str, caller: Caller) -> ServedRequest | None:
        """A step for another node begins; None if it is not part of a peer's trace."""
        if not self._propagates or read_context(caller.metadata) is None:
            return None
        if not self.by_peer(caller.metadata.get(CREDENTIAL, ""), caller.ip):
            return None
        served = self._call(operation, caller)
        served.open(self._tracer, _call_attributes(served.name), known=True)
        return served

    def _call(self, operation: str, caller: Caller) -> ServedRequest:
        clocks = Clocks()
        headers = caller.metadata if self._propagates else NOBODY
        served = ServedRequest(f"{PACKAGE}/{operation}", clocks.now(), clocks, headers)
        SERVED.set(served)
        return served

    def call_ended(self, served: ServedRequest, status: str) -> None:
        """A call has ended with the status of this name."""
        if served.span is not None:
            served.span.set_attribute("rpc.response.status_code", status)
            if status not in ("OK", "CANCELLED"):
                fail(served.span, status)
            served.span.end(served.clocks.now())

    def carried(self) -> Mapping[str, str]:
        """The metadata by which calls of this task continue the trace of what it serves."""
        served = SERVED.get()
        if served is None or served.span is None or not served.span.is_recording():
            return NOBODY
        return context_of(served.span).headers()

    def observe(self, call: ForwardCall, answer: ForwardAnswer) -> None:
        """A step for another node was computed, by the task that serves the call."""
        served = SERVED.get()
        if served is None or served.span is None or not served.span.is_recording():
            return
        ended, inside = served.clocks.now(), set_span_in_context(served.span)
        layers = f"{call.layers.start}-{call.layers.stop - 1}" if call.layers else ""
        served.span.set_attribute("meshnode.layers", layers)
        computing = ended - round(answer.compute_ms * 1e6)
        waiting = computing - round(answer.queue_ms * 1e6)
        for name, began, end in (("queue", waiting, computing), ("compute", computing, ended)):
            self._tracer.start_span(name, inside, start_time=max(began, served.began)).end(end)

    # Generations. A ``GenerationObserver``.

    def began(self, generation: Generation) -> None:
        """A generation was taken into the queue, by the task that serves its request."""
        served = SERVED.get()
        parent: Span | None = None
        if served is not None:
            # A generation has the standing of a peer if a peer that signs has passed it on.
            known = generation.request.requester.standing is not Standing.FREE
            parent = served.span or self._open_served(served, known=known)
        clocks = Clocks()
        record = served.record if served is not None else None
        route, request_id, streamed = "", "", False
        if record is not None:
            route, request_id, streamed = record.route or "", record.id, record.streamed
        elif served is not None:
            streamed = served.name.endswith("/StreamInference")
        attributes = request_attributes(
            generation, self._model, route, request_id, streamed=streamed
        )
        span = self._tracer.start_span(
            f"{operation_of(route)} {self._model}",
            None if parent is None else set_span_in_context(parent),
            attributes=attributes,
            start_time=clocks.at(generation.opened_at),
        )
        if span.is_recording():
            spans = self._open[generation.id] = GenerationSpans(self._tracer, span, clocks)
            generation.trace = spans

    def routed(self, generation_id: str, hops: Sequence[PathHop]) -> None:
        """A generation goes over these remote holders from now on."""
        if (spans := self._open.get(generation_id)) is not None:
            spans.routed(hops)

    def failed_over(self, generation_id: str, reason: str) -> None:
        """A generation leaves its path."""
        if (spans := self._open.get(generation_id)) is not None:
            spans.failed_over(reason)

    def ended(self, generation: Generation) -> None:
        """A generation has ended, however it ended."""
        if (spans := self._open.pop(generation.id, None)) is not None:
            spans.end(generation, self._hops(generation.id))

    def _open_served(self, served: ServedRequest, *, known: bool) -> Span:
        if served.record is not None:
            return self._open_request(served)
        return served.open(self._tracer, _call_attributes(served.name), known=known)

    def _open_request(self, served: ServedRequest) -> Span:
        record = served.record
        if record is None:
            raise AssertionError("a request over HTTP has a record")
        attributes: Attributes = {
            "http.request.method": record.method,
            "http.route": record.route or "",
            "meshnode.request.id": record.id,
        }
        return served.open(self._tracer, attributes, known=record.known)


def _call_attributes(name: str) -> Attributes:
    return {"rpc.system.name": "grpc", "rpc.method": name}
