"""An inference as HTTP shows it: one result (section 2.1), or server-sent events (section 6).

A client that sends ``X-Meshnode-Trace: 1`` is told what every hop of the pipeline took: in a header
of the same name, or in a comment of the stream just before its final event (decisions/0039).

Invariants: both show the same text and the same usage; a stream that began ends with its final
event, with an event that has the documented error body, or with the connection, never in silence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

from meshnode.domain.generation import Finished, TokenEvent, Usage
from meshnode.http.app import Response, event_stream
from meshnode.http.errors import report
from meshnode.http.exchange import request_id
from meshnode.wire import sse

if TYPE_CHECKING:
    from meshnode.domain.generation import Timing

TRACE_HEADER = "X-Meshnode-Trace"

Trace = Callable[[str], str | None]
"""One line of JSON about the hops of the generation with an id, None if there were none."""


class Generation(Protocol):
    """What is shown: token events, then one :class:`Finished`."""

    @property
    def id(self) -> str:
        """The result's id."""

    def __aiter__(self) -> AsyncIterator[TokenEvent | Finished]:
        """Iterate over the events, once."""


async def collect(
    generation: Generation, currency: str, cost: Callable[[], float] = lambda: 0.0
) -> dict[str, object]:
    """Wait for the end and make the inference result.

    ``cost`` is asked at the end, for whole units; without it the generation costs nothing.
    """
    texts: list[str] = []
    async for event in generation:
        if isinstance(event, TokenEvent):
            texts.append(event.text)
        else:
            finished = event
    return {
        "id": generation.id,
        "text": "".join(texts),
        "tokens_generated": finished.usage.completion_tokens,
        "finish_reason": str(finished.finish_reason),
        "usage": _usage(finished.usage),
        "cost": {"amount": cost(), "currency": currency},
        "timing": _timing(finished.timing),
    }


def stream(generation: Generation, trace: Trace | None = None) -> Response:
    """The events of ``generation``, as they are made; with its ``trace``, if one is wanted."""
    return event_stream(_Events(generation, request_id(), trace))


class _Events(AsyncIterator[bytes]):
    """Encodes events. It holds nothing; the generation belongs to the exchange."""

    def __init__(self, generation: Generation, identifier: str, trace: Trace | None) -> None:
        self._generation = generation
        self._events = aiter(generation)
        self._trace = trace
        self._identifier = identifier
        self._ended = False

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            event = await anext(self._events)
        except Exception as error:  # noqa: BLE001 - an edge guard: the client must hear of it
            # The status line is long gone: the event is the only place left to say it.
            self._ended = True
            return sse.encode_event(report(error, self._identifier).body())
        if isinstance(event, TokenEvent):
            return sse.encode_event({"token": event.text, "index": event.index})
        self._ended = True
        return self._comment() + sse.encode_event(
            {
                "token": sse.DONE,
                "finish_reason": str(event.finish_reason),
                "usage": _usage(event.usage),
            }
        )

    def _comment(self) -> bytes:
        hops = self._trace(self._generation.id) if self._trace is not None else None
        return b"" if hops is None else sse.encode_comment(f"trace {hops}")


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _timing(timing: Timing) -> dict[str, float]:
    return {
        "queue_ms": round(timing.queue_ms, 3),
        "inference_ms": round(timing.inference_ms, 3),
        "total_ms": round(timing.total_ms, 3),
    }
