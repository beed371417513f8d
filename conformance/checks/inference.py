"""Interface 4.1, POST /inference: its parameters and its result, with generated bodies.

The document does not name the status of a refusal, so any 4xx counts as one. If a good request is
answered with a status in `REFUSED`, the node found it invalid, which is a violation. A 402, a 5xx
or another 4xx means that the node could not serve it, for instance because it is a worker that
serves no clients; the requirement is then unclear.
"""

from conformance import strategies
from conformance.checks.reading import (
    ABSENT,
    judge_resource,
    judge_server_error,
    judge_token_refused,
    resource_ids,
    served,
)
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.httprequest import Written
from conformance.httpwire import Answer
from conformance.passive.events import tokens_of
from conformance.passive.resources import SINCE as EVERYWHERE_SINCE
from conformance.passive.results import DEFAULT_MAX_TOKENS, judge_result
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

ROUTE = "NA-ROUTE-004"
# The body is invalid, or its media type, or a value in it.
REFUSED = (400, 415, 422)
# The requirement that a parameter in its range is accepted.
ACCEPTED = {
    "max_tokens": "NA-INF-005",
    "temperature": "NA-INF-006",
    "top_p": "NA-INF-008",
    "top_k": "NA-INF-009",
    "stream": "NA-INF-010",
    "stop": "NA-INF-012",
}


def result_of(context: Context, answer: Answer, idents: list[str]) -> dict[str, Json] | None:
    """Rule on `idents` and return the inference result, or None if the answer has no result.

    Raise `Skipped` if the route is missing or does not let the suite in.
    """
    if answer.status in (*ABSENT, 401, 403):
        raise Skipped(f"POST /inference was answered with status {answer.status}")
    if answer.status >= 400 and answer.status not in REFUSED:
        for ident in idents:
            context.unclear(ident, f"status {answer.status} to a good request", answer)
        return None
    result = answer.json_object()
    if answer.ok and result is not None and answer.media_type != "text/event-stream":
        for ident in idents:
            context.holds(ident, answer)
        return result
    why = f"status {answer.status}, {answer.media_type or 'no Content-Type'}, to a documented body"
    for ident in idents:
        context.fails(ident, why, answer)
    return None


@requirement(ROUTE, *resource_ids("inference"), "NA-INF-001", "NA-INF-004", "NA-INF-017")
def inference_result(context: Context) -> None:
    """POST /inference with only a prompt, and judge the defaults and every field.

    In later editions, with a prompt and a stop sequence, too: the default length is the same.
    """
    answer = served(lambda: context.infer({"prompt": "Hello"}))
    if answer.status in ABSENT:
        context.fails(ROUTE, f"the route does not exist: status {answer.status}", answer)
        return
    if answer.status in (401, 403):
        judge_token_refused(context, ROUTE, answer)
        return
    if answer.status >= 500:
        judge_server_error(context, ROUTE, answer)
    elif 300 <= answer.status < 400:
        context.wrong(ROUTE, f"a redirect, status {answer.status}", answer)
    if answer.ok and answer.json_object() is None and answer.media_type != "text/event-stream":
        context.wrong(ROUTE, "the answer is not a JSON object", answer)
        return
    if answer.ok:
        context.holds(ROUTE, answer)
    if answer.ok and answer.media_type == "text/event-stream":
        context.fails("NA-INF-017", "a stream instead of one JSON result", answer)
        return
    if answer.ok:
        context.holds("NA-INF-017", answer)
    result = result_of(context, answer, ["NA-INF-001"])
    if result is None:
        return
    judge_resource(context, "inference", result, answer)
    generated = result.get("tokens_generated")
    if is_int(generated):
        context.judge(
            "NA-INF-004",
            generated <= DEFAULT_MAX_TOKENS,
            f"tokens_generated is {generated} without max_tokens",
            answer,
        )
    if context.edition >= ACROSS_SINCE:
        # What is generated without max_tokens is judged in every answer.
        context.infer({"prompt": "Hello", "stop": [UNLIKELY]})


_PARAMETER_IDS = (
    "NA-INF-003", "NA-INF-011", "NA-INF-022", "NA-INF-023", "NA-INF-024", "NA-INF-025",
    "NA-INF-026", "NA-INF-027", "NA-INF-030", "NA-INF-033", "NA-INF-034", "NA-INF-046",
    *ACCEPTED.values(),
    *resource_ids("inference"),
)  # fmt: skip


@requirement(*_PARAMETER_IDS)
def inference_parameters(context: Context) -> None:
    """POST /inference with generated bodies inside the documented ranges."""
    seen: dict[str, Answer] = {}

    def ask(body: dict[str, Json]) -> None:
        answer = context.infer(body)
        idents = [ACCEPTED[key] for key in body if key in ACCEPTED]
        if answer.status in (400, 422):
            idents = _blamed(context, body)
        elif answer.status == 500 and always_fails(context, body):
            for blamed in _blamed(context, body):
                context.fails(blamed, f"always status 500 to {brief(body)}", answer)
            return
        result = result_of(context, answer, idents)
        if result is None:
            return
        if context.edition < EVERYWHERE_SINCE:
            judge_result(context, body["max_tokens"], result, answer)
        why = f"finish_reason {brief(result.get('finish_reason'))}"
        context.observe("NA-INF-027", why, answer)
        ident = result.get("id")
        if isinstance(ident, str):
            other = seen.setdefault(ident, answer)
            if len(seen) > 1 or other is not answer:
                context.judge("NA-INF-026", other is answer, f"id {ident!r} twice", other, answer)

    # Generated bodies first: the first violation is the one shown, and these have been minimised.
    explore(context, strategies.good_bodies(), ask)
    more = strategies.MORE_EDGES if context.edition >= EVERYWHERE_SINCE else ()
    each = strategies.EACH_OF_FEW if context.edition >= SIXTH else ()
    for body in (*strategies.EDGES, *more, *each):
        ask(body)

    def ask_prompt(prompt: str) -> None:
        answer = context.infer({"prompt": prompt, "max_tokens": 1})
        result_of(context, answer, ["NA-INF-030"])

    if context.edition >= EVERYWHERE_SINCE:
        _judge_accept(context)
    if context.edition >= FOURTH:
        none = context.infer({"prompt": "Hello", "max_tokens": 0})
        made = (none.json_object() or {}).get("tokens_generated") if none.ok else 0
        if is_int(made):
            why = f"{made} tokens are generated with max_tokens 0"
            context.judge("NA-INF-046", made == 0, why, none)
    lines = strategies.LINES if context.edition >= EVERYWHERE_SINCE else ()
    foreign = strategies.FOREIGN if context.edition >= SEVENTH else ()
    for prompt in (*strategies.PROMPTS, *lines, *foreign):
        ask_prompt(prompt)
    explore(
        context, strategies.any_prompts, ask_prompt, examples=max(3, context.target.examples // 3)
    )


def _judge_accept(context: Context) -> None:
    """Rule on requests whose header Accept prefers the other kind of answer, or on none."""
    for stream, accept, ident in (
        (False, "text/event-stream, application/json", "NA-INF-010"),
        (True, "application/json, text/event-stream", "NA-INF-011"),
    ):
        body: Json = {"prompt": "Hello", "max_tokens": 2, "stream": stream}
        answer = context.api(
            "POST", "/inference", credential=context.target.valid, json_body=body, stream=stream,
            written=Written(accept=accept),
        )  # fmt: skip
        if answer.ok:
            context.budget.charge_stream(2)
            why = f"{brief(body)} with Accept: {accept} is answered with {answer.media_type}"
            streamed = answer.media_type == "text/event-stream"
            context.judge(ident, streamed == stream, why, answer)


def always_fails(context: Context, body: dict[str, Json]) -> bool:
    """Whether a body ends with 500 twice more, and its prompt alone does not."""
    if context.edition < EVERYWHERE_SINCE:
        return False
    again = [context.infer(body).status for _ in range(2)]
    plain = {key: value for key, value in body.items() if key not in ACCEPTED}
    return again == [500, 500] and context.infer({**plain, "max_tokens": 2}).ok


def _blamed(context: Context, body: dict[str, Json]) -> list[str]:
    """Return the requirement of the parameter without which a refused body is accepted.

    If leaving out a single parameter does not help, return the requirements of all of them.
    """
    optional = [key for key in body if key in ACCEPTED]
    for key in optional:
        rest = {name: value for name, value in body.items() if name != key}
        if context.infer(rest).ok:
            return [ACCEPTED[key]]
    return [ACCEPTED[key] for key in optional]


# Editions before looked for fewer pieces of the text.
ACROSS_SINCE = 4
# With which no text ends.
UNLIKELY = "\u2603\u2603\u2603"
# Editions before did not ask whether NaN is refused.
NEARLY_SINCE = 4
_REFUSED_IDS = ("NA-INF-002", "NA-INF-007", "NA-INF-019", "NA-INF-020", "NA-INF-021", "NA-INF-029",
                "NA-INF-031", "NA-INF-051", "NA-INF-052")  # fmt: skip


@requirement(*_REFUSED_IDS)
def inference_refused(context: Context) -> None:
    """POST /inference with generated bodies that break one rule each."""

    def refuse(ident: str, answer: Answer, body: Json) -> None:
        if answer.status in (*ABSENT, 401, 403):
            raise Skipped(f"POST /inference was answered with status {answer.status}")
        if answer.status == 402:
            context.unclear(ident, "the balance is too low to see how the body is judged", answer)
            return
        failed = answer.status >= 500
        context.judge("NA-INF-020", not failed, f"status {answer.status} to {brief(body)}", answer)
        if not failed:
            context.judge(ident, not answer.ok, f"{brief(body)} was served", answer)

    explore(
        context,
        strategies.bad_bodies,
        lambda bad: refuse(bad.requirement, context.infer(bad.body), bad.body),
        examples=2 * context.target.examples,
    )

    texts = strategies.TEXTS if context.edition >= NEARLY_SINCE else ()
    switches = strategies.SWITCHES if context.edition >= FIFTH else ()
    if context.edition >= SEVENTH:
        switches = (*switches, *strategies.NO_SWITCHES)
    for bad in (*strategies.SURELY_BAD, *texts, *switches):
        refuse(bad.requirement, context.infer(bad.body), bad.body)

    for bad in strategies.SURELY_BAD if context.edition >= NEARLY_SINCE else ():
        if not isinstance(bad.body, dict) or "stream" in bad.body:
            continue
        answer = context.infer({**bad.body, "stream": True})
        # A failure may be told within the stream, which then has no tokens.
        if not answer.ok or tokens_of(answer):
            refuse(bad.requirement, answer, {**bad.body, "stream": True})

    def send_bytes(content: bytes) -> None:
        answer = context.api("POST", "/inference", credential=context.target.valid, content=content)
        refuse("NA-INF-021", answer, content.decode("utf-8", "replace"))

    explore(context, strategies.broken_json, send_bytes, examples=6)
    if context.edition >= NEARLY_SINCE:
        for content in strategies.NEARLY_JSON:
            send_bytes(content)
        # Nothing, which is JSON, but no body with a prompt.
        nothing = context.api(
            "POST", "/inference", credential=context.target.valid, content=b"null"
        )
        refuse("NA-INF-031", nothing, None)
    answer = context.infer({"prompt": "Hello", "max_tokens": 1, "not_in_the_document": 1})
    context.observe("NA-INF-029", f"an unknown parameter: status {answer.status}", answer)
    if context.edition >= FIFTH:
        _judge_negative(context)
        account, odd = context.target.valid, [("NA-INF-052", strategies.NOT_UTF8)]
        for ident, content in (*odd, *(("NA-INF-007", number) for number in strategies.BEYOND)):
            answer = context.api("POST", "/inference", credential=account, content=content)
            refuse(ident, answer, content.decode("utf-8", "replace"))


def _judge_negative(context: Context) -> None:
    """Rule on a number of tokens below zero, which may be taken for none at all."""
    streams: tuple[dict[str, Json], ...] = ({}, {"stream": True})
    for stream in streams if context.edition >= SEVENTH else streams[:1]:
        body: dict[str, Json] = {"prompt": "Hello", "max_tokens": -1, **stream}
        answer = context.infer(body)
        # A failure may be told within a stream.
        served = answer.ok and (not stream or bool(tokens_of(answer)))
        if served or 400 <= answer.status < 500:
            context.judge("NA-INF-051", not served, f"{brief(body)} was served", answer)


# The statuses of a body that is too long.
TOO_LONG = (400, 413, 422)


@requirement("NA-INF-032", "NA-INF-048", "NA-INF-063")
def inference_prompts(context: Context) -> None:
    """POST /inference with a word, a sentence and several sentences, and compare their tokens."""
    counts: list[float] = []
    answers: list[Answer] = []
    sentence = "Once upon a time there was a node. "
    for prompt in ("Hello", sentence, sentence * 4):
        answer = context.infer({"prompt": prompt, "max_tokens": 1})
        found = lookup(answer.json_object() or {}, "usage.prompt_tokens")
        if not answer.ok or not found or not is_int(found[0]):
            raise Skipped(f"no usage, status {answer.status}")
        counts.append(found[0])
        answers.append(answer)
    context.judge(
        "NA-INF-032",
        0 < counts[0] < counts[1] < counts[2],
        f"prompt_tokens {brief(counts)} for a word, a sentence and four sentences",
        *answers,
    )
    if context.edition >= ACROSS_SINCE:
        _judge_foreign(context)
        # Above what a short buffer holds; how long a prompt may be is not said.
        longer = context.infer({"prompt": sentence * 8, "max_tokens": 1})
        if longer.ok or longer.status in TOO_LONG:
            why = f"a prompt of {len(sentence) * 8} letters ends with status {longer.status}"
            context.judge("NA-INF-048", longer.ok, why, answers[2], longer)
        found = lookup(longer.json_object() or {}, "usage.prompt_tokens")
        if longer.ok and found and is_int(found[0]):
            why = f"prompt_tokens {counts[2]} for four sentences, {found[0]} for eight"
            context.judge("NA-INF-032", counts[2] < found[0], why, answers[2], longer)
    if context.edition >= SEVENTH:
        _judge_echoed(context, sentence)


# So many tokens are generated, and become a prompt; fewer bytes a token are the usual ones.
ECHOED, BYTES_A_TOKEN = 32, 8


def _judge_echoed(context: Context, prompt: str) -> None:
    """Rule on the tokens of a prompt that is a text of the node's own."""
    made = context.infer({"prompt": prompt, "max_tokens": ECHOED, "temperature": 0})
    result = made.json_object() or {}
    text, generated = result.get("text"), result.get("tokens_generated")
    if not made.ok or not isinstance(text, str) or not is_int(generated) or generated < ECHOED / 2:
        return
    answer = context.infer({"prompt": text, "max_tokens": 1})
    found = lookup(answer.json_object() or {}, "usage.prompt_tokens")
    if answer.ok and found and is_int(found[0]):
        why = f"a text of {generated} tokens has {found[0]} as a prompt: {brief(text)}"
        few = found[0] < generated / 2 and found[0] < len(text.encode()) / BYTES_A_TOKEN
        context.judge("NA-INF-063", not few, why, made, answer)


# Letters outside ASCII, which some tokenizers make more tokens of, and none makes nothing of.
FOREIGN = "日本語 für Größe ελληνικά "


def _judge_foreign(context: Context) -> None:
    """Rule on prompts of which one has many more foreign letters than the other."""
    answers = [context.infer({"prompt": FOREIGN * n, "max_tokens": 1}) for n in (1, 5)]
    found = [lookup(each.json_object() or {}, "usage.prompt_tokens") for each in answers]
    if all(each.ok for each in answers) and all(count and is_int(count[0]) for count in found):
        fewer, more = (int(count[0]) for count in found)
        why = f"prompt_tokens {fewer} for foreign letters, {more} for five times as many"
        context.judge("NA-INF-032", 0 < fewer < more, why, *answers)


@requirement("NA-INF-028")
def inference_repeat(context: Context) -> None:
    """POST /inference twice with the same body and temperature 0."""
    body: dict[str, Json] = {"prompt": "Hello", "max_tokens": 6, "temperature": 0}
    answers = [context.infer(body) for _ in range(2)]
    texts = {(answer.json_object() or {}).get("text") for answer in answers}
    context.observe("NA-INF-028", "the same text" if len(texts) == 1 else "another text", *answers)
