"""Interface 5: bearer tokens on the routes marked Auth, and the errors of interface 7.1.

The invalid tokens are invented: no target would accept one of them by chance. Routes that change or
spend something are tried only if that is allowed.
"""

from itertools import product
from urllib.parse import parse_qsl, urlsplit

from hypothesis import strategies

from conformance.checks.node_reads import (
    AUTH_READS,
    BALANCE,
    CONFIG,
    HEALTH,
    METRICS,
    NETWORK,
    PROOFS,
    STATUS,
    TRANSACTIONS,
)
from conformance.checks.reading import ABSENT, Resource, fetch
from conformance.context import API, Context
from conformance.editions import FIFTH, FOURTH, SIXTH
from conformance.exploration import explore
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS, Credential, bearer
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import brief

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"
invalid_tokens = strategies.text(_LETTERS, min_size=1, max_size=64)
INVENTED = bearer("not-a-token-of-this-node")
EMPTY = Credential("Bearer", "Bearer")
# A node may limit how often somebody tries.
TOO_MANY = 429
# The first edition that asks for a page, with the scheme alone without a token, and on each route
# with tokens of other lengths.
PAGES_SINCE = 4
# As short as a digit, and longer than most tokens.
OTHER_LENGTHS = (bearer("0"), bearer("not-a-token-of-this-node-" * 4))

# Those that are longer than a table or a buffer may take.
LONG_TOKENS = tuple(bearer("0123456789abcdef" * times) for times in (20, 100))
# What programs write for no value, or for any.
WORDS = ("null", "undefined", "None", "true", "*", "admin")
# Letters of one byte that are not ASCII; a server may refuse them before anybody looks for a token.
NOT_ASCII = bearer("t\u00f6ken-\u00e9")

# Pages of the routes that have them.
_PAGES: tuple[tuple[Resource, dict[str, object]], ...] = (
    (TRANSACTIONS, {"limit": 1}),
    (TRANSACTIONS, {"limit": 1, "offset": 1}),
    (PROOFS, {"limit": 1}),
)

# The routes of the node API that need no token.
OPEN_READS = (STATUS, METRICS, HEALTH, NETWORK)
# Below these the document shows no path that a client could choose.
NO_CHILDREN = ("/status", "/metrics", "/config", "/wallet", "/wallet/balance", "/inference", "")

# A word, a scheme without a token, and more or fewer of both.
ODD, ODD_FORMS = "NA-AUTH-040", ("word", "Bearer", "Bearer a b c", ":", "Bearer,word", "Token word")

_ERROR_IDS = ("NA-AUTH-003", "NA-ERR-001", "NA-ERR-002", "NA-ERR-003", "NA-ERR-005")


def judge_refusal(context: Context, ident: str, answer: Answer) -> None:
    """Rule on a request that should have been refused with 401 UNAUTHORIZED."""
    if answer.status in ABSENT and not _is_there(context, answer):
        # Whether the route exists is a requirement of its own.
        return
    if answer.status >= 500 or answer.status == TOO_MANY:
        context.unclear(ident, f"the server could not answer now: {answer.status}", answer)
        return
    refused = context.judge(
        ident, answer.status == 401, f"status {answer.status} instead of 401", answer
    )
    error = (answer.json_object() or {}).get("error")
    if refused and isinstance(error, dict) and isinstance(error.get("code"), str):
        context.judge(
            "NA-AUTH-003",
            error["code"] == "UNAUTHORIZED",
            f"error.code is {brief(error['code'])}",
            answer,
        )


def _is_there(context: Context, answer: Answer) -> bool:
    """Return whether what is not found is served with the declared token."""
    request = answer.exchange.request
    if context.edition < FIFTH or request["method"] != "GET" or context.target.token is None:
        return False
    parts = urlsplit(request["url"])
    query: dict[str, object] = dict(parse_qsl(parts.query))
    path = parts.path.removeprefix(API)
    return context.api("GET", path, credential=context.target.valid, query=query or None).ok


def _read(context: Context, resource: Resource, credential: Credential) -> Answer:
    return context.api("GET", resource.path, credential=credential)


@requirement("NA-AUTH-001", *_ERROR_IDS)
def auth_invalid(context: Context) -> None:
    """GET every Auth route with an invented token, and one of them with many different tokens."""

    def try_token(token: str) -> None:
        if token not in (
            context.target.token,
            context.target.second_token,
            context.target.expired_token,
        ):
            judge_refusal(context, "NA-AUTH-001", _read(context, CONFIG, bearer(token)))

    for resource in AUTH_READS:
        judge_refusal(context, "NA-AUTH-001", _read(context, resource, INVENTED))
    if context.edition >= PAGES_SINCE:
        for resource, credential in product(AUTH_READS, OTHER_LENGTHS):
            judge_refusal(context, "NA-AUTH-001", _read(context, resource, credential))
        for resource, query in _PAGES:
            answer = context.api("GET", resource.path, credential=INVENTED, query={**query})
            judge_refusal(context, "NA-AUTH-001", answer)
    if context.edition >= FOURTH:
        for word in WORDS:
            try_token(word)
        for resource, credential in product(AUTH_READS, LONG_TOKENS):
            _judge_odd(context, resource, credential)
        _judge_odd(context, CONFIG, NOT_ASCII)
    if context.edition >= SIXTH:
        for name in _public_names(context):
            try_token(name)

    explore(context, invalid_tokens, try_token)


def _public_names(context: Context) -> list[str]:
    """Return what anybody may read of the node and its accounts, and might take for a token."""
    accounts = (context.target.valid, context.target.second)
    shown = [context.api("GET", BALANCE.path, credential=account) for account in accounts]
    found = [(answer.json_object() or {}).get("address") for answer in shown if answer.ok]
    found.append((context.api("GET", STATUS.path).json_object() or {}).get("node_id"))
    texts = [
        text for text in found if isinstance(text, str) and text.isascii() and text.isprintable()
    ]
    return [text for text in dict.fromkeys(texts) if text.strip() == text != ""]


def _judge_odd(context: Context, resource: Resource, credential: Credential) -> None:
    """Rule on a token that a server may refuse for its form, as any other bad header."""
    control = _read(context, resource, INVENTED)
    answer = _read(context, resource, credential)
    if control.status == 401:
        refused = 400 <= answer.status < 500
        why = f"a token of {len(credential.header or '')} letters gets {answer.status}"
        context.judge("NA-AUTH-001", refused, why, control, answer)


@requirement(ODD)
def auth_odd(context: Context) -> None:
    """GET an Auth route with headers that have another form than a scheme and a token."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    for form in ODD_FORMS:
        answers = [_read(context, CONFIG, Credential(form, form)) for _ in range(2)]
        control = _read(context, CONFIG, INVENTED)
        if control.status == 401 and not any(answer.status == TOO_MANY for answer in answers):
            refused = any(400 <= answer.status < 500 for answer in answers)
            why = f"Authorization: {brief(form)} is answered twice with {answers[-1].status}"
            context.judge(ODD, refused, why, control, *answers)


@requirement("NA-AUTH-002", *_ERROR_IDS)
def auth_expired(context: Context) -> None:
    """GET every Auth route with the expired token that the target declares."""
    for resource in AUTH_READS:
        judge_refusal(context, "NA-AUTH-002", _read(context, resource, context.target.expired))


@requirement("NA-AUTH-004", "NA-AUTH-017", *_ERROR_IDS)
def auth_missing(context: Context) -> None:
    """GET every Auth route without an Authorization header, with the scheme Basic, and no token."""
    schemes = (ANONYMOUS, Credential("Basic dXNlcjp1c2Vy", "Basic dXNlcjp1c2Vy"))
    for resource in AUTH_READS:
        for credential in schemes:
            answer = _read(context, resource, credential)
            judge_refusal(context, "NA-AUTH-004", answer)
            _judge_unserved(context, resource, answer)
    if context.edition >= PAGES_SINCE:
        for resource in AUTH_READS:
            _judge_unserved(context, resource, _read(context, resource, EMPTY))
        for resource, query in _PAGES:
            answer = context.api("GET", resource.path, credential=ANONYMOUS, query={**query})
            _judge_unserved(context, resource, answer)


def _judge_unserved(context: Context, resource: Resource, answer: Answer) -> None:
    if answer.ok or (400 <= answer.status < 500 and answer.status not in ABSENT):
        why = f"GET {resource.path} is served without a token"
        context.judge("NA-AUTH-017", not answer.ok, why, answer)


@requirement("NA-AUTH-005", "NA-AUTH-011", "NA-AUTH-053")
def auth_valid(context: Context) -> None:
    """GET all routes with the declared token, once with the scheme in lower case."""
    for resource in AUTH_READS:
        answer = _read(context, resource, context.target.valid)
        if answer.status in ABSENT or answer.status >= 500:
            continue
        if answer.status == 401:
            # A wrong token in the configuration of the run would look the same.
            context.unclear("NA-AUTH-005", "the declared token is refused", answer)
        else:
            context.holds("NA-AUTH-005", answer)
    if context.edition >= FIFTH:
        _judge_open(context)
    lower = Credential(f"bearer {context.target.token}", "bearer $TOKEN")
    answer = _read(context, CONFIG, lower)
    context.observe("NA-AUTH-011", f"'bearer' is answered with {answer.status}", answer)


def _judge_open(context: Context) -> None:
    """Rule on the routes that ask for no token, with the declared one, where others take it."""
    answers = [_read(context, resource, context.target.valid) for resource in (CONFIG, *OPEN_READS)]
    for answer in answers[1:]:
        if answers[0].ok and (answer.ok or answer.status == 401):
            path = urlsplit(answer.exchange.request["url"]).path
            why = f"GET {path}, which needs no token, refuses the declared one"
            context.judge("NA-AUTH-005", answer.ok, why, answers[0], answer)
    for resource in OPEN_READS if context.edition >= SIXTH else ():
        plain, answer = (_read(context, resource, one) for one in (ANONYMOUS, INVENTED))
        if plain.ok and (answer.ok or answer.status == 401):
            why = f"GET {resource.path}, which needs no token, refuses one that is not valid"
            context.judge("NA-AUTH-053", answer.ok, why, plain, answer)


@requirement("NA-AUTH-006", *_ERROR_IDS)
def auth_invalid_inference(context: Context) -> None:
    """POST /inference with an invented token, asking for a single token of output."""
    answer = context.infer({"prompt": "Hello", "max_tokens": 1}, credential=INVENTED)
    judge_refusal(context, "NA-AUTH-006", answer)


@requirement("NA-AUTH-007", *_ERROR_IDS)
def auth_invalid_config(context: Context) -> None:
    """PATCH /config with an invented token and a value that is already in force."""
    _, config = fetch(context, CONFIG)
    training = config.get("training") if config else None
    if not isinstance(training, dict) or "batch_size" not in training:
        raise Skipped("GET /config has no training.batch_size")
    answer = context.api(
        "PATCH",
        "/config",
        credential=INVENTED,
        json_body={"training": {"batch_size": training["batch_size"]}},
    )
    judge_refusal(context, "NA-AUTH-007", answer)


@requirement("NA-ERR-013", "NA-ERR-017")
def errors_elsewhere(context: Context) -> None:
    """GET paths that do not exist, by themselves and below others, and one that only takes POST."""
    for parent in NO_CHILDREN:
        answer = context.api("GET", f"{parent}/no-such-route-of-the-document")
        context.judge("NA-ERR-017", not answer.ok, f"status {answer.status}", answer)
    error = (answer.json_object() or {}).get("error")
    code = error.get("code") if isinstance(error, dict) else None
    context.observe("NA-ERR-013", f"missing path: {answer.status} {brief(code)}", answer)
    answer = context.api("GET", "/inference")
    context.observe("NA-ERR-013", f"GET /inference: {answer.status}", answer)
