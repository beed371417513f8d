"""Interface 6: the events of POST /inference with stream true.

Terms: a *final* event has `finish_reason` or `usage`, or has the token `[DONE]` and no index; every
other event is a token event. (A model may generate the text `[DONE]` as a token.)
"""

from itertools import pairwise

from conformance import strategies
from conformance.catalogue import fields_of
from conformance.checks.reading import ABSENT, judge_resource, resource_ids
from conformance.context import Context
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.shapes import judge_shape, lookup
from conformance.sse import Event, Stream, read
from conformance.strictjson import Json, brief, is_int

DONE = "[DONE]"
# More tokens than a default, or a buffer of a hundred, has room for; and the first edition that
# asks for so many.
LONG, LONG_SINCE = 130, 4
_IDS = tuple(f"NA-SSE-{number:03d}" for number in (*range(1, 12), 13, 14, 15))


def is_final(value: dict[str, Json]) -> bool:
    """Return whether the event's object is a final event."""
    if "finish_reason" in value or "usage" in value:
        return True
    return value.get("token") == DONE and "index" not in value


@requirement("NA-INF-011", *fields_of("sse-token"), *resource_ids("sse-final"), *_IDS)
def inference_stream(context: Context) -> None:
    """POST /inference with stream true and generated bodies; read every event."""
    explore(
        context,
        strategies.stream_bodies(),
        lambda body: _ask(context, body),
        examples=max(3, context.target.examples // 2),
    )
    # Generated stop sequences may leave no tokens; this request has some in every run.
    _ask(context, {"prompt": "Once upon a time", "max_tokens": 8, "stream": True})
    if context.edition >= LONG_SINCE:
        _ask(context, {"prompt": "Once upon a time", "max_tokens": LONG, "stream": True})


def _whole(context: Context, body: dict[str, Json]) -> Answer:
    """Return the answer; a stream that is cut twice is no stream."""
    try:
        return context.infer(body)
    except Unanswered as reason:
        if context.edition == 1 or not reason.why.startswith("cut"):
            raise
        # Without its frames, which would keep the connection.
        first = reason.with_traceback(None)
    try:
        return context.infer(body)
    except Unanswered as reason:
        if reason.why.startswith("cut"):
            context.fails("NA-INF-011", "the stream is cut twice", first, reason)
        raise


def _ask(context: Context, body: dict[str, Json]) -> None:
    answer = _whole(context, body)
    if answer.status in (*ABSENT, 401, 403):
        raise Skipped(f"POST /inference was answered with status {answer.status}")
    if answer.status == 402 or answer.status >= 500:
        context.unclear("NA-INF-011", f"status {answer.status} to a good request", answer)
        return
    if not answer.ok:
        # Whether a parameter in its range is accepted is tried without a stream.
        return
    stream = read(answer.body)
    plain = answer.json_object() is not None
    if plain or (not stream.events and answer.media_type == "application/json"):
        context.fails("NA-INF-011", "one JSON result instead of a stream", answer)
        return
    context.holds("NA-INF-011", answer)
    context.judge(
        "NA-SSE-008",
        answer.media_type == "text/event-stream",
        f"Content-Type is {answer.header('Content-Type')!r}",
        answer,
    )
    if _judge_framing(context, stream, answer):
        _judge_events(context, [event.value for event in stream.events], body, answer)


def _judge_framing(context: Context, stream: Stream, answer: Answer) -> bool:
    faults = [stream.fault or ""]
    faults += [_event_fault(event) for event in stream.events]
    if not stream.events:
        faults.append("no event at all")
    fault = next((fault for fault in faults if fault), "")
    repeated = sorted({key for event in stream.events for key in event.repeated_keys})
    if stream.events:
        context.judge("NA-SSE-015", stream.ended, "no blank line after the last event", answer)
    context.judge("NA-SSE-014", not repeated, f"duplicate keys: {repeated}", answer)
    return context.judge("NA-SSE-001", not fault, fault, answer)


def _event_fault(event: Event) -> str:
    if event.fault:
        return f"data {event.data[:60]!r} is not JSON: {event.fault}"
    return "" if isinstance(event.value, dict) else f"data {event.data[:60]!r} is not an object"


def _judge_events(
    context: Context, values: list[dict[str, Json]], body: dict[str, Json], answer: Answer
) -> None:
    tokens = [value for value in values if not is_final(value)]
    finals = [value for value in values if is_final(value)]
    for value in tokens:
        judge_shape(context, "sse-token", value, answer)
    _judge_indices(context, [value.get("index") for value in tokens], answer)
    if not context.judge("NA-SSE-005", bool(finals), "no final event", answer):
        return
    final = finals[0]
    judge_resource(context, "sse-final", final, answer)
    if isinstance(final.get("token"), str):
        context.judge(
            "NA-SSE-006", final["token"] == DONE, f"it is {brief(final['token'])}", answer
        )
    after = values[values.index(final) + 1 :]
    context.judge("NA-SSE-007", not after, f"followed by {brief(after)}", answer)
    _judge_usage(context, final, len(tokens), body["max_tokens"], answer)
    times = answer.arrivals
    context.observe(
        "NA-SSE-013", f"first piece after {times[0]:.3f} s, end after {times[-1]:.3f} s", answer
    )


def _judge_indices(context: Context, indices: list[Json], answer: Answer) -> None:
    if not indices or not all(is_int(index) for index in indices):
        return
    context.judge("NA-SSE-002", indices[0] == 0, f"the first index is {indices[0]}", answer)
    steps = [after - before for before, after in pairwise(indices)]
    if steps:
        shown = f"indices {brief(indices)}"
        context.judge("NA-SSE-003", min(steps) > 0, shown, answer)
        context.judge("NA-SSE-004", all(step == 1 for step in steps), shown, answer)


def _judge_usage(
    context: Context, final: dict[str, Json], tokens: int, limit: int, answer: Answer
) -> None:
    counts = [
        lookup(final, f"usage.{key}")
        for key in ("prompt_tokens", "completion_tokens", "total_tokens")
    ]
    if not all(found and is_int(found[0]) for found in counts):
        return
    prompt, completion, total = (found[0] for found in counts)
    shown = f"usage is {brief(final['usage'])}"
    context.judge("NA-SSE-009", completion <= limit, f"{shown} with max_tokens {limit}", answer)
    context.judge("NA-SSE-010", total == prompt + completion, shown, answer)
    context.observe("NA-SSE-011", f"{tokens} token events, {completion} tokens", answer)
