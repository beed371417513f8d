"""Interface 6: POST /inference with stream true. Its events are judged in `passive.events`."""

from conformance import strategies
from conformance.checks.inference import always_fails
from conformance.checks.reading import ABSENT
from conformance.context import Context
from conformance.editions import FIFTH, SIXTH
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.httpbody import UNENDED
from conformance.httpwire import Answer, Unanswered
from conformance.passive.events import is_final, judge_stream, stream_ids
from conformance.passive.resources import SINCE as EVERYWHERE_SINCE
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.sse import read
from conformance.strictjson import Json, brief, is_int

# More tokens than a default, or a buffer of a hundred, has room for; and the first edition that
# asks for so many.
LONG, LONG_SINCE = 130, 4
# So long a connection may take to end after the last event.
ENDS_WITHIN_S = 5.0


@requirement(
    "NA-INF-011", "NA-SSE-008", "NA-SSE-011", "NA-SSE-013", "NA-SSE-022", *sorted(stream_ids())
)
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
    """Return the answer; a stream that is cut twice is no stream, nor is one without an end."""
    try:
        return context.infer(body)
    except Unanswered as reason:
        again = "cut" if context.edition < FIFTH else ("cut", UNENDED)
        if context.edition == 1 or not reason.why.startswith(again):
            raise
        # Without its frames, which would keep the connection.
        first = reason.with_traceback(None)
    try:
        return context.infer(body)
    except Unanswered as reason:
        if reason.why.startswith("cut"):
            context.fails("NA-INF-011", "the stream is cut twice", first, reason)
        elif reason.why.startswith(UNENDED) and context.edition >= FIFTH:
            context.fails("NA-SSE-022", f"twice: {reason.why}", first, reason)
        raise


def _ask(context: Context, body: dict[str, Json]) -> None:
    answer = _whole(context, body)
    if answer.status in (*ABSENT, 401, 403):
        raise Skipped(f"POST /inference was answered with status {answer.status}")
    if answer.status == 500 and context.edition >= SIXTH and always_fails(context, body):
        why = f"always status 500 to {brief(body)}, and a result without stream"
        context.fails("NA-INF-011", why, answer)
        return
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
    # Later editions judge every stream, whichever check asks for it.
    if context.edition < EVERYWHERE_SINCE:
        judge_stream(context, body["max_tokens"], stream, answer)
    values = [event.value for event in stream.events]
    times = answer.arrivals
    if times:
        shown = f"first piece after {times[0]:.3f} s, end after {times[-1]:.3f} s"
        context.observe("NA-SSE-013", shown, answer)
        # The last of them is the end itself.
        open_s = times[-1] - times[-2] if len(times) > 1 else 0.0
        why = f"the response goes on for {open_s:.1f} s after the last event"
        context.judge("NA-SSE-022", open_s <= ENDS_WITHIN_S, why, answer)
    if all(isinstance(value, dict) for value in values):
        made = [found for value in values for found in lookup(value, "usage.completion_tokens")]
        tokens = sum(not is_final(value) for value in values)
        if made and is_int(made[-1]):
            context.observe("NA-SSE-011", f"{tokens} token events, {made[-1]} tokens", answer)
