"""Interface 2.1, 4.1 and 6: several stop sequences, and what a stream adds to the metrics."""

from conformance.checks.effects import stream_values
from conformance.checks.money import TRIES, counted, counted_after
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

PROMPTS = ("Once upon a time", "The history of the old town begins with")
# No model says this.
NEVER = "\u241fnever\u241f"


@requirement("NA-INF-036")
def inference_stops(context: Context) -> None:
    """Repeat a request with temperature 0, with pieces of its answer among its stop sequences."""
    for prompt in PROMPTS:
        body: dict[str, Json] = {"prompt": prompt, "max_tokens": 24, "temperature": 0}
        first = context.infer(body)
        text = (first.json_object() or {}).get("text")
        if not first.ok or not isinstance(text, str) or len(text) < 8:
            continue
        third = len(text) // 3
        for length in (1, 2, 4):
            piece = text[third : third + length]
            stops: list[Json] = [NEVER, text[-2:], piece]
            second = context.infer({**body, "stop": stops})
            stopped = (second.json_object() or {}).get("text")
            if second.ok and isinstance(stopped, str):
                _judge(context, [str(stop) for stop in stops], stopped, first, second)


def _judge(context: Context, stops: list[str], text: str, *shown: Answer) -> None:
    """Rule on the text: whichever sequence comes first ends it, with or without the sequence."""
    found = [(text.find(stop), stop) for stop in stops if stop in text]
    behind = [stop for at, stop in found if at + len(stop) < len(text)]
    why = f"{brief(text)} continues after {brief(behind)}, of {brief(stops)}"
    context.judge("NA-INF-036", not behind, why, *shown)


@requirement("NA-COUNT-006")
def stream_counted_once(context: Context) -> None:
    """POST /inference with a stream, and read the metrics before and after it."""
    steps: list[tuple[float, float, float]] = []
    shown: Answer | None = None
    for _ in range(TRIES):
        before = counted(context)
        shown, values = stream_values(context, {"max_tokens": 3})
        used = [found for value in values for found in lookup(value, "usage.completion_tokens")]
        made = float(used[0]) if used and is_int(used[0]) else 0.0
        after = counted_after(context, before, tokens=bool(made))
        steps.append((after[0] - before[0], after[1] - before[1], made))
    if shown is None:
        raise Skipped("there was no stream")
    # Others may use the target too, but not always by the same factor.
    requests = {asked for asked, _, _ in steps}
    each = {tokens / many for _, tokens, many in steps if many}
    # What is not counted at all is reported by requirements of its own.
    wrong = [found for found in (requests, each) if len(found) == 1 and min(found) > 1.0]
    why = f"each stream is counted as {requests}, each of its tokens as {each}"
    context.judge("NA-COUNT-006", not wrong, why, shown)
