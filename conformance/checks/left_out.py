"""Interface 4.1: parameters that are null, and those that have their default.

Whether a node refuses null is open; one that takes it for a value of its own choice surprises
whoever writes every member of a body.
"""

from conformance.checks.money import TRIES
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_int

IS_LEFT_OUT, DEFAULT = "NA-INF-059", "NA-INF-064"
# The defaults of the interface, of what may change a text.
DEFAULTS: dict[str, Json] = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 50, "stream": False, "stop": [],
}  # fmt: skip
PROMPT = "Once upon a time"
SHORT = 4


@requirement(IS_LEFT_OUT)
def inference_nulls(context: Context) -> None:
    """POST /inference without max_tokens, temperature, stop and stream, and with null for each."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    whole: dict[str, Json] = {"prompt": PROMPT, "temperature": 0}
    short: dict[str, Json] = {**whole, "max_tokens": SHORT}
    _judge_alike(context, whole, "max_tokens")
    _judge_alike(context, short, "stop")
    answer = context.infer({**short, "stream": None})
    why = f'{{"stream": null}} is answered with {answer.media_type}'
    context.judge(IS_LEFT_OUT, answer.media_type != "text/event-stream", why, answer)
    _judge_sampled(context)


@requirement(DEFAULT)
def inference_defaults(context: Context) -> None:
    """POST /inference without parameters and with the default of each, in turn."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    body: dict[str, Json] = {"prompt": PROMPT, "max_tokens": 2 * SHORT}
    usual = {_text(context.infer(body)) for _ in range(TRIES)}
    if len(usual) > 1 or not all(usual):
        raise Skipped("one request has other texts each time")
    for name, value in DEFAULTS.items():
        turns = [(context.infer({**body, name: value}), context.infer(body)) for _ in range(2)]
        named = {_text(answer) for answer, _ in turns}
        plain = {_text(answer) for _, answer in turns}
        if plain == usual and len(named) == 1 and all(named):
            told = f"without {name} always {brief(sorted(plain))}, and with {brief(value)}"
            context.judge(DEFAULT, named == plain, f"{told} {brief(sorted(named))}", *turns[0])


def _text(answer: Answer) -> str:
    found = (answer.json_object() or {}).get("text")
    return found if answer.ok and isinstance(found, str) else ""


def _judge_alike(context: Context, body: dict[str, Json], name: str) -> None:
    """Rule on a text that is always as long, and has another length with null."""
    seen = list[tuple[int, int]]()
    for _ in range(TRIES):
        without, null = context.infer(body), context.infer({**body, name: None})
        made = _made(without), _made(null)
        if made[0] is None or made[1] is None:
            return
        seen.append((made[0], made[1]))
        if made[0] == made[1] or len(set(seen)) > 1:
            break
    held = len(seen) < TRIES
    why = f"{seen[-1][0]} tokens without {name}, and {seen[-1][1]} where it is null"
    context.judge(IS_LEFT_OUT, held, why, without, null)


def _judge_sampled(context: Context) -> None:
    """Rule on texts that are never the same without a temperature, and always are with null."""
    body: dict[str, Json] = {"prompt": PROMPT, "max_tokens": 2 * SHORT}
    texts = list[set[str]]()
    for sent in (body, {**body, "temperature": None}):
        answers = [context.infer(sent) for _ in range(TRIES)]
        results = [answer.json_object() or {} for answer in answers]
        if not all(answer.ok for answer in answers):
            return
        texts.append({str(result.get("text")) for result in results})
    held = len(texts[0]) < TRIES or len(texts[1]) > 1
    why = f"{len(texts[0])} texts without a temperature, and {brief(sorted(texts[1]))} with null"
    context.judge(IS_LEFT_OUT, held, why, *answers)


def _made(answer: Answer) -> int | None:
    made = (answer.json_object() or {}).get("tokens_generated")
    return int(made) if answer.ok and is_int(made) else None
