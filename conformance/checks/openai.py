"""OpenAI's interface (interface 10): models, keys and refusals, and what its other checks share.

The requirements come from OpenAI's published description alone. A server under another name, with
more fields, more routes or more parameters conforms; one that asks for no key does too.

Invariants: no passive rule of the node API judges these answers; a text costs at most a few dozen
tokens; a server that cannot answer now (402, 429, 503) leaves a rule unclear.
"""

from itertools import product
from typing import Any
from urllib.parse import quote

from conformance.catalogue import fields_of
from conformance.checks.clock import APART, served_at
from conformance.checks.money import TRIES
from conformance.checks.reading import ABSENT, UNAVAILABLE, served
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS, Credential, bearer
from conformance.httpwire import Answer
from conformance.passive.forms import judge_openai
from conformance.registry import requirement
from conformance.shapes import judge_shape
from conformance.strictjson import Json, brief, is_int

BASE = "/v1"
MODELS, CHATS, TEXTS = "/models", "/chat/completions", "/completions"
UNKNOWN_MODEL = "no-such-model-of-the-suite"
NOT_A_KEY = bearer("not-a-key-of-this-server")
REFUSED_KEY = (401, 403)
# What a model has in the list as well as by itself.
SAME = ("created", "owned_by")
# The server cannot answer this request now, or not for this account.
NOT_NOW = (402, 429, UNAVAILABLE)
CHAT: dict[str, Json] = {
    "messages": [
        {
            "role": "user",
            # Longer than any maximum of these checks, and something that most models continue.
            "content": "Once upon a time there was a little girl. What did she do next?"
            " Please tell me more of her story.",
        }
    ]
}


def ask(
    context: Context,
    method: str,
    path: str,
    body: Json = None,
    *,
    content: bytes | None = None,
    credential: Credential | None = None,
) -> Answer:
    """Send a request to a route below /v1; a server error is tried twice."""
    answer = served(
        lambda: context.http.call(
            method,
            BASE + path,
            credential=context.target.valid if credential is None else credential,
            json_body=body,
            content=content,
            timeout_s=context.target.inference_timeout_s,
        )
    )
    if context.edition >= SIXTH and method == "GET" and credential is None:
        judge_openai(context, method, BASE + path, body, answer)
    return answer


def generate(context: Context, path: str, body: dict[str, Json]) -> Answer:
    """POST a request that makes the server compute, within the budget."""
    if context.budget.exhausted:
        raise context.budget.used_up()
    answer = ask(context, "POST", path, body)
    if context.edition >= SIXTH:
        # Others ask for what is to be refused.
        judge_openai(context, "POST", BASE + path, body, answer)
        context.service.heard.forms.judge_model(context, body, answer)
    usage = (answer.json_object() or {}).get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    context.budget.charge_stream(int(tokens) if is_int(tokens) else answer.body.count(b"data:"))
    return answer


def judge_route(context: Context, ident: str, answer: Answer, *, optional: bool = False) -> None:
    """Rule on whether the route answers a good request; end the check if it does not."""
    if answer.ok:
        context.holds(ident, answer)
        return
    why = f"status {answer.status} to a good request"
    if answer.status in ABSENT and optional:
        raise Skipped(f"the server does not have this older route: status {answer.status}")
    if answer.status in REFUSED_KEY:
        if not context.target.token:
            raise Skipped("the server asks for a key, and the target declares none")
        why = f"the declared key is refused with {answer.status}"
    if answer.status in (*NOT_NOW, *REFUSED_KEY):
        context.unclear(ident, why, answer)
    else:
        context.fails(ident, why, answer)
    raise Skipped(why)


def json_of(context: Context, ident: str, answer: Answer) -> dict[str, Json]:
    """Return the object of an answer; one that is none violates the sentence of its route."""
    document = answer.json_object()
    if document is None:
        context.fails(ident, "the answer is not a JSON object", answer)
        raise Skipped("the answer is not a JSON object")
    return document


def model_of(context: Context) -> str:
    """Return the model to ask: the declared one, or the first of the list."""
    if context.target.model:
        return context.target.model
    listed = (ask(context, "GET", MODELS).json_object() or {}).get("data")
    entry = listed[0] if isinstance(listed, list) and listed else None
    name = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise Skipped("GET /v1/models names no model, and the target declares none")
    return name


def judge_created(context: Context, ident: str, value: Json, answer: Answer) -> None:
    """Rule on a Unix time that means now, by the Date header of the same answer."""
    date = served_at(answer)
    if date is not None and is_int(value):
        why = f"created is {brief(value)}, the Date header is {int(date.timestamp())}"
        context.judge(ident, abs(value - date.timestamp()) <= APART.total_seconds(), why, answer)


@requirement(
    "OA-ROUTE-001", "OA-ROUTE-002", "OA-ROUTE-010",
    "OA-MODEL-101", "OA-MODEL-102", "OA-MODEL-103", "OA-MODEL-104",
    *fields_of("openai-models"), *fields_of("openai-model"),
)  # fmt: skip
def openai_models(context: Context) -> None:
    """GET /v1/models, each model by its id, and one that is not there."""
    answer = ask(context, "GET", MODELS)
    judge_route(context, "OA-ROUTE-001", answer)
    document = json_of(context, "OA-ROUTE-001", answer)
    judge_shape(context, "openai-models", document, answer)
    if isinstance(document.get("object"), str):
        kind = document["object"]
        context.judge("OA-MODEL-101", kind == "list", f"object is {brief(kind)}", answer)
    listed = document.get("data")
    entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
    for entry in entries:
        _judge_model(context, entry, answer)
    names = [entry["id"] for entry in entries if isinstance(entry.get("id"), str)]
    if names:
        unlike = len(set(names)) == len(names) and all(names)
        context.judge("OA-MODEL-102", unlike, f"ids {brief(names)}", answer)
    for name in names[:2]:
        _retrieve(context, name)
    unknown = ask(context, "GET", f"{MODELS}/{UNKNOWN_MODEL}")
    if unknown.status not in NOT_NOW:
        why = f"status {unknown.status}"
        context.judge("OA-MODEL-104", unknown.status == 404, why, unknown)


def _judge_model(context: Context, model: dict[str, Json], answer: Answer) -> None:
    judge_shape(context, "openai-model", model, answer)
    kind, created, date = model.get("object"), model.get("created"), served_at(answer)
    if isinstance(kind, str):
        context.judge("OA-MODEL-101", kind == "model", f"object is {brief(kind)}", answer)
    if is_int(created) and date is not None:
        latest = date.timestamp() + APART.total_seconds()
        why = f"created is {brief(created)}, now is {int(date.timestamp())}"
        context.judge("OA-MODEL-103", 0 <= created <= latest, why, answer)


def _retrieve(context: Context, name: str) -> None:
    answer = ask(context, "GET", f"{MODELS}/{quote(name, safe='')}")
    if answer.status in ABSENT and "/" in name:
        # A server may not decode a slash within a segment of its path.
        answer = ask(context, "GET", f"{MODELS}/{quote(name)}")
    if answer.status in NOT_NOW:
        context.unclear("OA-ROUTE-002", f"status {answer.status}", answer)
        return
    document = answer.json_object()
    found = document.get("id") if document is not None else None
    why = f"status {answer.status}, id {brief(found)} of {brief(name)}"
    if context.judge("OA-ROUTE-002", answer.ok and found == name, why, answer) and document:
        _judge_model(context, document, answer)


@requirement("OA-MODEL-105", "OA-ROUTE-002")
def openai_model_twice(context: Context) -> None:
    """GET the models, then each of some by its id; compare."""
    for _ in range(TRIES):
        listed = ask(context, "GET", MODELS)
        found = (listed.json_object() or {}).get("data")
        entries = found if isinstance(found, list) else []
        models = [each for each in entries if isinstance(each, dict)][:2]
        unlike: list[tuple[Json, Json, Answer]] = []
        for model in models:
            one = ask(context, "GET", f"{MODELS}/{quote(str(model.get('id')), safe='')}")
            alone = one.json_object() or {}
            if context.edition >= SIXTH and "/" not in str(model.get("id")):
                _judge_there(context, listed, one)
            if one.ok and alone.get("id") == model.get("id"):
                pairs = [(model[key], alone[key]) for key in SAME if key in model and key in alone]
                unlike += [(*pair, one) for pair in pairs if pair[0] != pair[1]]
                if not unlike:
                    context.holds("OA-MODEL-105", listed, one)
        if not unlike:
            return
    inside, outside, one = unlike[0]
    why = f"{brief(inside)} in the list is {brief(outside)} in the model by itself"
    context.fails("OA-MODEL-105", why, listed, one)


def _judge_there(context: Context, listed: Answer, one: Answer) -> None:
    """Rule on the answer to the id of a model that has just been listed."""
    if one.ok or one.status in ABSENT:
        why = f"status {one.status} to the id of a model that was listed just before"
        context.judge("OA-ROUTE-002", one.ok, why, listed, one)


@requirement("OA-AUTH-001")
def openai_keys(context: Context) -> None:
    """GET /v1/models without a key and with one that is not valid."""
    without = ask(context, "GET", MODELS, credential=ANONYMOUS)
    if without.ok:
        raise Skipped("the server answers without a key")
    for answer in (without, ask(context, "GET", MODELS, credential=NOT_A_KEY)):
        if answer.status in NOT_NOW:
            context.unclear("OA-AUTH-001", f"status {answer.status}", answer)
        elif answer.status not in ABSENT:
            context.judge("OA-AUTH-001", answer.status == 401, f"status {answer.status}", answer)


@requirement("OA-AUTH-002")
def openai_keys_generating(context: Context) -> None:
    """POST a chat and a completion of one token with a key that is not valid, also as streams."""
    if ask(context, "GET", MODELS, credential=ANONYMOUS).ok:
        raise Skipped("the server answers without a key")
    name = model_of(context)
    generating: tuple[tuple[str, dict[str, Json]], ...] = (
        (CHATS, CHAT), (TEXTS, {"prompt": "Hello"}),
    )  # fmt: skip
    for (path, body), stream in product(generating, (False, True)):
        request: dict[str, Json] = {"model": name, **body, "max_tokens": 1}
        if stream:
            request["stream"] = True
        answer = ask(context, "POST", path, request, credential=NOT_A_KEY)
        if answer.status in NOT_NOW:
            context.unclear("OA-AUTH-002", f"status {answer.status}", answer)
        elif answer.status not in ABSENT:
            why = f"POST {BASE}{path}: status {answer.status}"
            context.judge("OA-AUTH-002", answer.status == 401, why, answer)


# Values that no reading of the published description accepts.
OUT_OF_RANGE: tuple[tuple[str, Json], ...] = (
    ("temperature", 2.5), ("temperature", -0.5), ("top_p", 1.5), ("n", 0),
    ("presence_penalty", 2.5), ("frequency_penalty", -2.5),
)  # fmt: skip
OF_ANOTHER_TYPE: tuple[tuple[str, Json], ...] = (
    ("messages", "Hello"), ("messages", [7]), ("max_tokens", "ten"), ("temperature", "warm"),
    ("stream", {"a": 1}), ("stop", {"a": 1}),
)  # fmt: skip
# From edition 7 on.
NO_MODELS: tuple[tuple[str, Json], ...] = (("model", 7), ("model", {"a": 1}))
BROKEN = (b"{", b'{"messages": [', b"messages=Hello")


@requirement(
    *(f"OA-REFUSE-{number:03d}" for number in range(1, 8)), *fields_of("openai-error")
)  # fmt: skip
def openai_refusals(context: Context) -> None:
    """POST /v1/chat/completions with bodies that OpenAI's description does not allow."""
    name = model_of(context)
    good: dict[str, Any] = {"model": name, **CHAT, "max_tokens": 1}

    def refused(ident: str, what: str, body: Json = None, content: bytes | None = None) -> None:
        if context.budget.exhausted:
            raise context.budget.used_up()
        answer = ask(context, "POST", CHATS, body, content=content)
        if answer.status in ABSENT and ident != "OA-REFUSE-006":
            raise Skipped(f"the route does not exist: status {answer.status}")
        if answer.status in (*REFUSED_KEY, *NOT_NOW):
            context.unclear(ident, f"status {answer.status}", answer)
            return
        why = f"status {answer.status} to a chat with {what}"
        if context.judge(ident, 400 <= answer.status < 500, why, answer):
            context.observe("OA-REFUSE-007", f"status {answer.status}", answer)
            judge_error(context, answer)

    refused(
        "OA-REFUSE-001",
        "no messages",
        {key: value for key, value in good.items() if key != "messages"},
    )
    refused(
        "OA-REFUSE-002", "no model", {key: value for key, value in good.items() if key != "model"}
    )
    for key, value in OUT_OF_RANGE:
        refused("OA-REFUSE-003", f"{key} {brief(value)}", {**good, key: value})
    for key, value in (*OF_ANOTHER_TYPE, *(NO_MODELS if context.edition >= SEVENTH else ())):
        refused("OA-REFUSE-004", f"{key} {brief(value)}", {**good, key: value})
    for content in BROKEN:
        refused("OA-REFUSE-005", f"the body {content.decode()}", content=content)
    refused("OA-REFUSE-006", "another model", {**good, "model": UNKNOWN_MODEL})


def judge_error(context: Context, answer: Answer) -> None:
    """Rule on the body of a refusal."""
    document = answer.json_object()
    if document is None:
        ident = fields_of("openai-error")[0]
        context.fails(ident, "the body of the refusal is not a JSON object", answer)
        return
    judge_shape(context, "openai-error", document, answer)
