"""An inference as HTTP shows it: one result (interface 2.1), or server-sent events (interface 6).

A client that sends ``X-Meshnode-Trace: 1`` learns how long each hop of the pipeline took: from a
header of the same name, or from a comment of the stream before its final event (decision 0039).

Invariants: both show the same text and the same usage; a stream that has begun ends with its final
event, with an event that has the documented error body, or with the end of the connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, Protocol, TypedDict, cast

from meshnode.domain.generation import Finished, TokenEvent, Usage
from meshnode.http.app import Response, event_stream
from meshnode.http.errors import Error, report
from meshnode.http.exchange import request_record
from meshnode.http.fields import Amount, Count
from meshnode.http.schema import Limits, NamedSchema, reference
from meshnode.wire import sse

if TYPE_CHECKING:
    from meshnode.domain.generation import Timing
    from meshnode.http.access_log import RequestRecord

Warnings = Annotated[
    list[str],
    Limits(description="Keys of the request that were ignored; absent if there are none."),
]
FinishReasons = Literal["stop", "length"]


class InferenceUsage(TypedDict):
    """How many tokens a generation read and made (interface 2.1)."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count


class Cost(TypedDict):
    """What was charged, in units of the currency and not in atoms."""

    amount: Amount
    currency: str


class InferenceTiming(TypedDict):
    """How long a generation waited, and took."""

    queue_ms: Amount
    inference_ms: Amount
    total_ms: Amount


class InferenceResult(TypedDict):
    """A generation as one answer (interface 2.1)."""

    id: str
    text: str
    tokens_generated: Count
    finish_reason: FinishReasons
    usage: InferenceUsage
    cost: Cost
    timing: InferenceTiming
    warnings: NotRequired[Warnings]


class TokenData(TypedDict):
    """The event of one token (interface 6)."""

    token: Annotated[
        str,
        Limits(
            description="Text of one token. Empty while a character or a stop string is incomplete."
        ),
    ]
    index: Count


class FinalData(TypedDict):
    """The final event of a stream (interface 6)."""

    token: Literal["[DONE]"]
    finish_reason: FinishReasons
    usage: InferenceUsage
    warnings: NotRequired[Warnings]


INFERENCE_EVENT = NamedSchema(
    "InferenceEvent",
    {
        "type": "object",
        "description": (
            "One event of a stream, when stream is true: a token, the end, or an error that broke "
            "the stream off."
        ),
        "required": ["data"],
        "properties": {
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {
                    "oneOf": [reference(kind.__name__) for kind in (TokenData, FinalData, Error)]
                },
            }
        },
    },
    (TokenData, FinalData, Error),
)
"""Before OpenAPI 3.2, the schema of an event stream is that of each event."""

TRACE_HEADER = "X-Meshnode-Trace"

Trace = Callable[[str], str | None]
"""One line of JSON about the hops of the generation with an id, None if there were none."""


class Generation(Protocol):
    """What is shown: token events, then one :class:`Finished`."""

    @property
    def id(self) -> str:
        """The result's id."""

    @property
    def notes(self) -> Sequence[str]:
        """What the client should know about how the answer was made; complete at the end."""

    def __aiter__(self) -> AsyncIterator[TokenEvent | Finished]:
        """Iterate over the events, once."""


async def collect(
    generation: Generation,
    currency: str,
    cost: Callable[[], float] = lambda: 0.0,
    warnings: Sequence[str] = (),
) -> InferenceResult:
    """Wait for the end and make the inference result.

    ``cost`` is called at the end and gives units of ``currency``; by default that is nothing.
    """
    texts: list[str] = []
    record = request_record()
    async for event in generation:
        if isinstance(event, TokenEvent):
            record.count_token()
            texts.append(event.text)
        else:
            finished = event
    record.tokens = finished.usage.completion_tokens
    result: InferenceResult = {
        "id": generation.id,
        "text": "".join(texts),
        "tokens_generated": finished.usage.completion_tokens,
        "finish_reason": cast("FinishReasons", str(finished.finish_reason)),
        "usage": _usage(finished.usage),
        "cost": {"amount": cost(), "currency": currency},
        "timing": _timing(finished.timing),
    }
    if warnings or generation.notes:
        result["warnings"] = [*warnings, *generation.notes]
    return result


def stream(
    generation: Generation, trace: Trace | None = None, warnings: Sequence[str] = ()
) -> Response:
    """The events of ``generation``, as they are made; with its ``trace``, if one is wanted."""
    return event_stream(_Events(generation, request_record(), trace, warnings))


class _Events(AsyncIterator[bytes]):
    """Encodes events. It holds nothing; the generation belongs to the exchange."""

    def __init__(
        self,
        generation: Generation,
        record: RequestRecord,
        trace: Trace | None,
        warnings: Sequence[str],
    ) -> None:
        self._generation = generation
        self._events = aiter(generation)
        self._trace = trace
        self._record = record
        self._ended = False
        self._warnings = warnings

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            event = await anext(self._events)
        except Exception as error:  # noqa: BLE001 - an edge guard: the client must hear of it
            # The status line has been sent: an event is the only place left for the error.
            self._ended = True
            return sse.encode_event(report(error, self._record.id).body())
        if isinstance(event, TokenEvent):
            self._record.count_token()
            return sse.encode_event({"token": event.text, "index": event.index})
        self._ended = True
        self._record.tokens = event.usage.completion_tokens
        final: FinalData = {
            "token": "[DONE]",
            "finish_reason": cast("FinishReasons", str(event.finish_reason)),
            "usage": _usage(event.usage),
        }
        if self._warnings or self._generation.notes:
            final["warnings"] = [*self._warnings, *self._generation.notes]
        return self._comment() + sse.encode_event(final)

    def _comment(self) -> bytes:
        hops = self._trace(self._generation.id) if self._trace is not None else None
        return b"" if hops is None else sse.encode_comment(f"trace {hops}")


def _usage(usage: Usage) -> InferenceUsage:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def _timing(timing: Timing) -> InferenceTiming:
    return {
        "queue_ms": round(timing.queue_ms, 3),
        "inference_ms": round(timing.inference_ms, 3),
        "total_ms": round(timing.total_ms, 3),
    }
