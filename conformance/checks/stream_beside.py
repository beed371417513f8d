"""Interface 6: a stream beside the result of the same body, where both have the same text."""

from conformance.checks.counting import EARLY_TOKENS, early
from conformance.checks.effects import letters, stream_values
from conformance.checks.money import TRIES
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.passive.events import tokens_of
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

COUNTED, ENDED = "NA-SSE-030", "NA-SSE-031"


@requirement(COUNTED, ENDED)
def stream_beside(context: Context) -> None:
    """POST /inference with and without a stream, to the end and to a stop sequence; compare."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    stopped = early(context)
    for body in (stopped, {**stopped, "stop": [], "max_tokens": EARLY_TOKENS // 3}):
        _judge(context, body)


def _judge(context: Context, body: dict[str, Json]) -> None:
    """Rule on the completion tokens and the reason of a stream; each is wrong each time."""
    prompt, wrong, seen = str(body["prompt"]), {COUNTED: True, ENDED: True}, list[Answer]()
    for _ in range(TRIES):
        result, (streamed, values) = context.infer(body), stream_values(context, body)
        document, last = result.json_object() or {}, values[-1]
        found = [letters("".join(map(str, tokens_of(streamed))))]
        found.append(letters(str(document.get("text")).removeprefix(prompt)))
        if not result.ok or not found[0] or found[0] != found[1]:
            raise Skipped("a stream and a result have not the same text")
        seen += [result, streamed]
        counts = [lookup(one, "usage.completion_tokens") for one in (last, document)]
        reasons = [one.get("finish_reason") for one in (last, document)]
        if not all(one and is_int(one[0]) for one in counts):
            raise Skipped("one of the two has no usage")
        wrong[COUNTED] &= counts[0] != counts[1]
        wrong[ENDED] &= reasons[0] != reasons[1] and all(isinstance(one, str) for one in reasons)
        if not any(wrong.values()):
            break
    shown = f"of {brief(found[0])}, with the stop sequences {brief(body['stop'])}"
    why = f"completion_tokens {brief(counts)} in the stream and in the result {shown}"
    context.judge(COUNTED, not wrong[COUNTED], why, *seen)
    why = f"finish_reason {brief(reasons)} in the stream and in the result {shown}"
    context.judge(ENDED, not wrong[ENDED], why, *seen)
