"""OpenAI's interface (interface 10): refusals on every route, in one piece and for streams.

`openai.py` refuses chats in one piece and keys where models are listed; here are the other places
where the same sentences hold. The seed of the run decides which of the values a place gets.

Invariants: every refusal here has the error body, whatever its status; a stream that says its error
in an event is a refusal too, since the description names no status for it; nothing is refused that
the description allows.
"""

import random
from itertools import product
from urllib.parse import quote

from conformance.catalogue import fields_of
from conformance.checks import openai
from conformance.checks.openai_mixed import SINCE
from conformance.checks.openai_texts import choices_of
from conformance.checks.reading import ABSENT
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.sse import read
from conformance.strictjson import Json, brief

KEY_OF_A_MODEL, WITHOUT_MODEL, BAD_VALUE, BROKEN, STREAMED, OTHER_MODEL = (
    "OA-AUTH-003", *(f"OA-REFUSE-{number:03d}" for number in range(8, 13)),
)  # fmt: skip
LISTED, NO_MESSAGES = "OA-AUTH-004", "OA-REFUSE-013"
# Sentences that other checks rule on in fewer places.
ELSEWHERE = ("OA-AUTH-001", "OA-AUTH-002", "OA-REFUSE-006")
# What a good request has on each route.
ROUTES: tuple[tuple[str, dict[str, Json]], ...] = (
    (openai.CHATS, openai.CHAT),
    (openai.TEXTS, {"prompt": "Hello"}),
)
# Values that both routes have to refuse; a few of them for each stream.
BAD_VALUES: tuple[tuple[str, Json], ...] = (
    *openai.OUT_OF_RANGE,
    *((key, value) for key, value in openai.OF_ANOTHER_TYPE if key != "messages"),
    ("n", "two"), ("n", 1.5), ("max_tokens", 2.5), ("top_p", "most"), ("top_p", -0.5),
    ("presence_penalty", "none"), ("frequency_penalty", 2.5), ("stop", [1, 2]),
)  # fmt: skip
DRAWN, SEVERAL = 3, 24
BROKEN_BODIES = (b"{", b"prompt=Hello", b'{"prompt": "Hello"')


@requirement(
    LISTED, NO_MESSAGES, KEY_OF_A_MODEL, WITHOUT_MODEL, BAD_VALUE, BROKEN, STREAMED, OTHER_MODEL,
    *ELSEWHERE, *fields_of("openai-error"),
)  # fmt: skip
def openai_refused_everywhere(context: Context) -> None:
    """Send keys, names and values that are to be refused to every route, also for streams."""
    if context.edition < SINCE:
        raise Skipped(f"edition {SINCE} is the first that has these requirements")
    draw = random.Random(context.target.seed)  # noqa: S311 - a draw that can be repeated
    name = openai.model_of(context)
    _refuse_keys(context, draw, name)
    _look_for_another(context, name)
    for path, asked in ROUTES:
        # A server that reads no body here does not have the route.
        if openai.ask(context, "POST", path, content=BROKEN_BODIES[0]).status not in ABSENT:
            _refuse_models(context, path, asked)
            _refuse_bodies(context, draw, path, {"model": name, **asked, "max_tokens": 1})


def _refuse_keys(context: Context, draw: random.Random, name: str) -> None:
    listed = openai.ask(context, "GET", openai.MODELS, credential=ANONYMOUS)
    if listed.ok and context.edition >= SEVENTH:
        body = {"model": name, **ROUTES[0][1], "max_tokens": 1}
        chat = openai.ask(context, "POST", ROUTES[0][0], body, credential=ANONYMOUS)
        why = "without a key the models are listed, and no chat is made"
        context.judge(LISTED, chat.status not in (401, 403), why, listed, chat)
    if listed.ok:
        return
    known = f"{openai.MODELS}/{quote(name, safe='')}"
    served = openai.ask(context, "GET", known).ok
    for credential in (ANONYMOUS, openai.NOT_A_KEY):
        for path in (openai.MODELS, *([known] if served else [])):
            answer = openai.ask(context, "GET", path, credential=credential)
            ident = KEY_OF_A_MODEL if path == known else "OA-AUTH-001"
            _judge_key(context, ident, f"GET {openai.BASE}{path}", answer)
    for (path, asked), stream, credential in product(
        ROUTES, (False, True), (ANONYMOUS, openai.NOT_A_KEY)
    ):
        body = {"model": name, **asked, "max_tokens": draw.randint(1, 3), "stream": stream}
        answer = openai.ask(context, "POST", path, body, credential=credential)
        what = f"POST {openai.BASE}{path} with stream {brief(stream)}"
        _judge_key(context, "OA-AUTH-002", what, answer)


def _judge_key(context: Context, ident: str, what: str, answer: Answer) -> None:
    """Rule on the refusal of a key, if the route is there and asks for one."""
    free = answer.ok and "Authorization" not in answer.exchange.request["headers"]
    if free or answer.status in (*openai.NOT_NOW, *ABSENT):
        return
    held = answer.status == 401
    if context.judge(ident, held, f"{what}: status {answer.status}", answer):
        openai.judge_error(context, answer)


def _look_for_another(context: Context, name: str) -> None:
    """GET a model that is not there, if the server shows one that is there."""
    one = openai.ask(context, "GET", f"{openai.MODELS}/{quote(name, safe='')}")
    answer = openai.ask(context, "GET", f"{openai.MODELS}/{openai.UNKNOWN_MODEL}")
    if one.ok and 400 <= answer.status < 500 and answer.status not in openai.NOT_NOW:
        openai.judge_error(context, answer)


def _refuse_models(context: Context, path: str, asked: dict[str, Json]) -> None:
    """Ask for texts of a model that is not there."""
    ident = OTHER_MODEL if path == openai.TEXTS else "OA-REFUSE-006"
    most = (1, SEVERAL) if context.edition >= SEVENTH else (1,)
    for stream, tokens in product((False, True), most):
        body = {"model": openai.UNKNOWN_MODEL, **asked, "max_tokens": tokens, "stream": stream}
        _refuse(context, ident, path, f"another model and stream {brief(stream)}", body)


def _refuse_bodies(context: Context, draw: random.Random, path: str, good: dict[str, Json]) -> None:
    """Send bodies that the description does not allow, once in one piece and once for a stream."""
    stream = {"stream": True}
    without = {key: value for key, value in good.items() if key != "model"}
    if path == openai.TEXTS:
        _refuse(context, WITHOUT_MODEL, path, "no model", without)
        for content in BROKEN_BODIES:
            _refuse(context, BROKEN, path, f"the body {content.decode()}", content=content)
        for key, value in (*BAD_VALUES, ("prompt", {"a": 1})):
            bad = {**good, key: value}
            _refuse(context, BAD_VALUE, path, f"{key} {brief(value)}", bad)
    _refuse(context, STREAMED, path, "no model and a stream", {**without, **stream})
    if path == openai.CHATS:
        nothing: dict[str, Json] = {**good, "messages": []}
        one = openai.ask(context, "POST", path, nothing)
        if context.edition >= SEVENTH and one.status not in openai.NOT_NOW:
            why = f"status {one.status} to a chat without any message in its list"
            context.judge(NO_MESSAGES, 400 <= one.status < 500, why, one)
        if 400 <= one.status < 500 and one.status not in openai.NOT_NOW:
            _refuse(context, STREAMED, path, "no message and a stream", {**nothing, **stream})
    values = [(key, value) for key, value in BAD_VALUES if key != "stream"]
    drawn = draw.sample(values, DRAWN)
    if context.edition >= SEVENTH:
        # One value of each parameter.
        drawn = list(dict(draw.sample(values, len(values))).items())
    for key, value in drawn:
        bad = {**good, **stream, key: value}
        _refuse(context, STREAMED, path, f"{key} {brief(value)} and a stream", bad)


def _refuse(
    context: Context, ident: str, path: str, what: str, body: Json = None,
    content: bytes | None = None,
) -> None:  # fmt: skip
    """Send a request that is to be refused, and rule on whether it is, and on how."""
    if context.budget.exhausted:
        raise context.budget.used_up()
    answer = openai.ask(context, "POST", path, body, content=content)
    if answer.status in (*openai.REFUSED_KEY, *openai.NOT_NOW, 405, 410, 501):
        return
    why = f"status {answer.status} to POST {openai.BASE}{path} with {what}"
    refused = 400 <= answer.status < 500 or _has_error(answer)
    context.judge(ident, refused, why, answer)
    if 400 <= answer.status < 500:
        openai.judge_error(context, answer)


def _has_error(answer: Answer) -> bool:
    """Return whether a stream says its error in an event, and nothing else."""
    values = [event.value for event in read(answer.body).events if isinstance(event.value, dict)]
    failed = any(value.get("error") for value in values)
    return answer.ok and failed and not any(choices_of(value) for value in values)
