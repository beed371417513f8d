"""A node's traces in memory, and what a test needs to make some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from meshnode.domain.generation import GenerationRequest
from meshnode.domain.shares import Requester, Standing
from meshnode.services.generation import Generation
from meshnode.services.pipeline.records import HopTrace
from meshnode.services.tracing import Tracing

CHAT = "/v1/chat/completions"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = int(PARENT[3:35], 16)


class Recorded:
    """A tracer whose spans a test can read once they have ended."""

    def __init__(self, sampler: Sampler | None = None, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        hops: Callable[[str], HopTrace | None] = options.pop("hops", lambda identifier: None)
        self.tracing = Tracing(
            provider,
            model="small",
            version="1.2.3",
            hops=hops,
            routes=frozenset({CHAT, "/api/v1/inference"}),
            **options,
        )

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        found: Sequence[ReadableSpan] = self._exporter.get_finished_spans()
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.span_id
    return found


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.trace_id
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def generation(
    prompt: str = "secret words", standing: Standing = Standing.PAYING, **asked: Any
) -> Generation:
    request = GenerationRequest(prompt, requester=Requester(standing, "somebody"), **asked)
    return Generation(
        request,
        id="gen-1",
        prompt=[1, 2, 3],
        most_tokens=request.max_tokens,
        opened_at=trio.current_time(),
        leave=lambda generation: None,
    )


async def run(found: Generation, tokens: int, wait_s: float = 0.25) -> None:
    """Let a generation wait, and then have so many tokens, one each ``wait_s``."""
    await trio.sleep(wait_s)
    found.admit(trio.current_time())
    for _ in range(tokens):
        await trio.sleep(wait_s)
        if found.trace is not None:
            found.trace.sampled(0.0, 0.001)
        found.advance(b"secret ", end_of_text=False, now=trio.current_time())
