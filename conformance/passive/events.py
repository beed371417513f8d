"""Interface 6: the events of one stream.

Terms: a *final* event has `finish_reason` or `usage`, or has the token `[DONE]` and no index; every
other event is a token event. (A model may generate the text `[DONE]` as a token, and an event with
another token and its index may have more fields, such as no reason yet, or the usage so far.)
"""

from itertools import pairwise

from conformance.catalogue import fields_of
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.passive.meaning import ids_for, judge_meaning
from conformance.shapes import FORMAT_IDS, judge_shape, lookup
from conformance.sse import Event, Stream, read
from conformance.strictjson import Json, brief, is_int

DONE = "[DONE]"
# The first edition that asks how many lines the JSON of an event has.
ONE_LINE_SINCE = 4


def is_final(value: dict[str, Json]) -> bool:
    """Return whether the event's object is a final event."""
    token = value.get("token")
    if is_int(value.get("index")) and isinstance(token, str) and token != DONE:
        return value.get("finish_reason") is not None
    if "finish_reason" in value or "usage" in value:
        return True
    return token == DONE and "index" not in value


def tokens_of(answer: Answer) -> list[Json]:
    """Return the tokens of a stream, without its final event; none of what is no stream."""
    values = (event.value for event in read(answer.body).events)
    tokens = (v for v in values if isinstance(v, dict) and "token" in v and not is_final(v))
    return [value["token"] for value in tokens]


def stream_ids() -> frozenset[str]:
    """Return the requirements on which :func:`judge_stream` may rule."""
    own = (f"NA-SSE-{number:03d}" for number in (*range(1, 8), 9, 10, 14, 15, 19))
    fields = (*fields_of("sse-token"), *fields_of("sse-final"), *ids_for("sse-final"))
    return frozenset((*own, *fields, *FORMAT_IDS))


def judge_stream(findings: Findings, limit: Json, stream: Stream, answer: Answer) -> None:
    """Rule on the events of a stream, whose request had `limit` as its max_tokens."""
    if _judge_framing(findings, stream, answer):
        _judge_events(findings, [event.value for event in stream.events], limit, answer)


def _judge_framing(findings: Findings, stream: Stream, answer: Answer) -> bool:
    faults = [stream.fault or ""]
    faults += [_event_fault(event) for event in stream.events]
    if not stream.events:
        faults.append("no event at all")
    fault = next((fault for fault in faults if fault), "")
    repeated = sorted({key for event in stream.events for key in event.repeated_keys})
    if stream.events:
        findings.judge("NA-SSE-015", stream.ended, "no blank line after the last event", answer)
    spread = next((event for event in stream.events if event.lines > 1 and not event.fault), None)
    if stream.events and findings.edition >= ONE_LINE_SINCE:
        why = f"{spread.lines} lines of data have one JSON: {spread.data[:60]!r}" if spread else ""
        findings.judge("NA-SSE-019", spread is None, why, answer)
    findings.judge("NA-SSE-014", not repeated, f"duplicate keys: {repeated}", answer)
    return findings.judge("NA-SSE-001", not fault, fault, answer)


def _event_fault(event: Event) -> str:
    if event.fault:
        return f"data {event.data[:60]!r} is not JSON: {event.fault}"
    return "" if isinstance(event.value, dict) else f"data {event.data[:60]!r} is not an object"


def _judge_events(
    findings: Findings, values: list[dict[str, Json]], limit: Json, answer: Answer
) -> None:
    tokens = [value for value in values if not is_final(value)]
    finals = [value for value in values if is_final(value)]
    for value in tokens:
        judge_shape(findings, "sse-token", value, answer)
    _judge_indices(findings, [value.get("index") for value in tokens], answer)
    if not findings.judge("NA-SSE-005", bool(finals), "no final event", answer):
        return
    final = finals[0]
    judge_shape(findings, "sse-final", final, answer)
    judge_meaning(findings, "sse-final", final, answer)
    if isinstance(final.get("token"), str):
        findings.judge(
            "NA-SSE-006", final["token"] == DONE, f"it is {brief(final['token'])}", answer
        )
    after = values[values.index(final) + 1 :]
    findings.judge("NA-SSE-007", not after, f"followed by {brief(after)}", answer)
    _judge_usage(findings, final, limit, answer)


def _judge_indices(findings: Findings, indices: list[Json], answer: Answer) -> None:
    if not indices or not all(is_int(index) for index in indices):
        return
    findings.judge("NA-SSE-002", indices[0] == 0, f"the first index is {indices[0]}", answer)
    steps = [after - before for before, after in pairwise(indices)]
    if steps:
        shown = f"indices {brief(indices)}"
        findings.judge("NA-SSE-003", min(steps) > 0, shown, answer)
        findings.judge("NA-SSE-004", all(step == 1 for step in steps), shown, answer)


def _judge_usage(findings: Findings, final: dict[str, Json], limit: Json, answer: Answer) -> None:
    counts = [
        lookup(final, f"usage.{key}")
        for key in ("prompt_tokens", "completion_tokens", "total_tokens")
    ]
    if not all(found and is_int(found[0]) for found in counts):
        return
    prompt, completion, total = (found[0] for found in counts)
    shown = f"usage is {brief(final['usage'])}"
    if is_int(limit):
        why = f"{shown} with max_tokens {limit}"
        findings.judge("NA-SSE-009", completion <= limit, why, answer)
    findings.judge("NA-SSE-010", total == prompt + completion, shown, answer)
