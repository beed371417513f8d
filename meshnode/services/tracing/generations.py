"""The spans of one generation: ``gen_ai.*``, its phases, its steps over other nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind, set_span_in_context

from meshnode.domain.traces import CallTrace
from meshnode.services.observing import PathHop
from meshnode.services.tracing.served import Attributes, context_of, fail

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from meshnode.services.generation import Generation
    from meshnode.services.pipeline.records import HopTrace
    from meshnode.services.tracing.clocks import Clocks

SHOWN_STEPS = 16
"""Steps of a generation whose calls and sampling have spans of their own; the rest is summed."""
SHOWN_HOPS = 32
MAX_REASON_CHARS = 200
PROVIDER = "meshnode"
CHAT, COMPLETION = "chat", "text_completion"


class GenerationSpans:
    """A :class:`~meshnode.domain.traces.GenerationTrace`."""

    def __init__(self, tracer: Tracer, span: Span, clocks: Clocks) -> None:
        """``span`` is the generation's, which has begun."""
        self._tracer = tracer
        self._span = span
        self._inside = set_span_in_context(span)
        self._clocks = clocks
        self._calls = 0
        self._samples = 0
        self._sampling_s = 0.0

    def calling(self, positions: int) -> CallTrace | None:
        """The span of one step's calls, while there have been few."""
        self._calls += 1
        if self._calls > SHOWN_STEPS:
            return None
        span = self._tracer.start_span(
            "forward",
            self._inside,
            kind=SpanKind.CLIENT,
            attributes={"meshnode.positions": positions},
            start_time=self._clocks.now(),
        )
        return ForwardSpan(span, self._clocks)

    def sampled(self, began: float, ended: float) -> None:
        """A token was chosen."""
        self._samples += 1
        self._sampling_s += ended - began
        if self._samples <= SHOWN_STEPS:
            self._phase("sampling", self._clocks.at_counter(began), self._clocks.at_counter(ended))

    def routed(self, hops: Sequence[PathHop]) -> None:
        """It goes over these holders from now on."""
        path = [f"{hop.node_id[:16]} {hop.first}-{hop.last}" for hop in hops[:SHOWN_HOPS]]
        self._span.add_event("meshnode.path", {"meshnode.path": path}, self._clocks.now())

    def failed_over(self, reason: str) -> None:
        """It leaves its path."""
        attributes = {"meshnode.reason": reason[:MAX_REASON_CHARS]}
        self._span.add_event("meshnode.failover", attributes, self._clocks.now())

    def end(self, generation: Generation, hops: HopTrace | None) -> None:
        """Record what is known only now, and end the span."""
        at, span, usage = self._clocks.at, self._span, generation.usage
        opened, admitted = generation.opened_at, generation.admitted_at
        first, ended = generation.first_emitted_at, self._clocks.now()
        self._phase("queue", at(opened), ended if admitted is None else at(admitted))
        if admitted is not None:
            self._phase("prefill", at(admitted), ended if first is None else at(first))
        if first is not None:
            self._phase("decode", at(first), ended)
            span.add_event("meshnode.first_token", timestamp=at(first))
            span.set_attribute("gen_ai.response.time_to_first_chunk", first - opened)
        span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
        span.set_attribute("meshnode.outcome", generation.finish_reason or generation.state.value)
        span.set_attribute("meshnode.sampling.duration", self._sampling_s)
        if generation.finish_reason is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [str(generation.finish_reason)])
        if generation.failure is not None:
            fail(span, type(generation.failure).__name__)
        for hop in hops.hops if hops is not None else ():
            attributes: Attributes = {
                "meshnode.node.id": hop.node_id,
                "meshnode.layers": f"{hop.first}-{hop.last}",
                "meshnode.steps": hop.steps,
                "meshnode.queue.duration": hop.queue_ms / 1e3,
                "meshnode.compute.duration": hop.compute_ms / 1e3,
                "meshnode.network.duration": hop.network_ms / 1e3,
            }
            span.add_event("meshnode.hop", attributes, ended)
        span.end(ended)

    def _phase(self, name: str, began: int, ended: int) -> None:
        self._tracer.start_span(name, self._inside, start_time=began).end(max(began, ended))


class ForwardSpan:
    """A :class:`~meshnode.domain.traces.CallTrace`."""

    def __init__(self, span: Span, clocks: Clocks) -> None:
        self._span = span
        self._clocks = clocks

    @property
    def metadata(self) -> Mapping[str, str]:
        """The context of this span."""
        return context_of(self._span).headers()

    def ended(self, reason: str = "") -> None:
        """The calls were answered, or failed."""
        if reason:
            fail(self._span, "HopFailed", reason[:MAX_REASON_CHARS])
        self._span.end(self._clocks.now())


def operation_of(route: str) -> str:
    """The conventions' name for what a route does; all others continue a text."""
    return CHAT if route.endswith("/chat/completions") else COMPLETION


def request_attributes(
    generation: Generation, model: str, route: str, request_id: str, *, streamed: bool
) -> Attributes:
    """What is known of a generation as it begins, by the conventions for generative AI.

    Stop strings are the client's words, so they are not recorded.
    """
    asked = generation.request
    operation, prefix = operation_of(route), ""
    if route.startswith("/v1/"):
        # Clients of OpenAI's interface see the id of the request.
        prefix = "chatcmpl-" if operation == CHAT else "cmpl-"
    attributes: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": prefix + request_id if prefix else generation.id,
        "gen_ai.output.type": "text" if asked.json_schema is None else "json",
        "gen_ai.request.max_tokens": asked.max_tokens,
        "gen_ai.request.temperature": asked.temperature,
        "gen_ai.request.top_p": asked.top_p,
        "gen_ai.request.stream": streamed,
        "meshnode.generation.id": generation.id,
    }
    optional = {
        "gen_ai.request.top_k": asked.top_k or None,
        "gen_ai.request.seed": asked.seed,
        "gen_ai.request.frequency_penalty": asked.frequency_penalty or None,
        "gen_ai.request.presence_penalty": asked.presence_penalty or None,
    }
    return attributes | {key: value for key, value in optional.items() if value is not None}
