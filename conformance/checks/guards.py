"""Interface 5: the routes marked Auth that change something, without a token or with an old one.

The bodies are good ones, of the smallest amounts. A route that refuses its body before it looks at
the token serves nobody either; only a success shows that the guard is missing.
"""

from contextlib import suppress

from conformance.catalogue import Effect
from conformance.checks.auth import INVENTED, judge_refusal
from conformance.checks.money import staked
from conformance.checks.node_reads import CONFIG
from conformance.checks.reading import ABSENT, fetch
from conformance.checks.wallet import AMOUNT, DAYS, MEMO
from conformance.context import Context
from conformance.editions import FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS, Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json

_ERRORS = ("NA-AUTH-003", "NA-ERR-001", "NA-ERR-002", "NA-ERR-003", "NA-ERR-005")


def smallest_bodies(context: Context) -> list[tuple[str, str, dict[str, Json]]]:
    """Return a good body, of the smallest amounts, for each route that changes something."""
    found: list[tuple[str, str, dict[str, Json]]] = [
        ("POST", "/inference", {"prompt": "Hello", "max_tokens": 1}),
        ("POST", "/wallet/send", {"to": "nobody", "amount": AMOUNT, "memo": MEMO}),
        ("POST", "/wallet/stake", {"amount": AMOUNT, "duration_days": DAYS}),
        ("POST", "/wallet/unstake", {"amount": AMOUNT}),
    ]
    if context.edition >= FOURTH:
        # Answered in another way, and perhaps by other code.
        found.append(("POST", "/inference", {"prompt": "Hello", "max_tokens": 1, "stream": True}))
    _, config = fetch(context, CONFIG)
    size = lookup(config, "training.batch_size")
    if size and context.target.allows(Effect.MUTATE):
        # The value that is in force.
        found.append(("PATCH", "/config", {"training": {"batch_size": size[0]}}))
    return found


def _ask(
    context: Context, method: str, path: str, body: dict[str, Json], credential: Credential
) -> Answer:
    timeout_s = context.target.inference_timeout_s
    return context.api(method, path, credential=credential, json_body=body, timeout_s=timeout_s)


@requirement("NA-AUTH-019", *_ERRORS)
def guards_missing(context: Context) -> None:
    """POST and PATCH every Auth route that changes something without a token."""
    if context.edition >= SIXTH and context.target.allows(Effect.SPEND):
        # Where nothing is staked an unstake is refused, whoever asks for it.
        with suppress(Skipped):
            staked(context, context.target.valid)
    for method, path, body in smallest_bodies(context):
        answer = _ask(context, method, path, body, ANONYMOUS)
        if answer.ok or (400 <= answer.status < 500 and answer.status not in ABSENT):
            why = f"{method} {path} is served without a token"
            context.judge("NA-AUTH-019", not answer.ok, why, answer)


@requirement("NA-AUTH-018", *_ERRORS)
def guards_expired(context: Context) -> None:
    """POST and PATCH every Auth route that changes something with the declared expired token."""
    for method, path, body in smallest_bodies(context):
        answer = _ask(context, method, path, body, context.target.expired)
        judge_refusal(context, "NA-AUTH-018", answer)


@requirement("NA-AUTH-008", "NA-AUTH-003")
def auth_invalid_wallet(context: Context) -> None:
    """POST the three routes that move money with an invented token."""
    for path, body in (
        ("/wallet/send", {"to": "nobody", "amount": AMOUNT, "memo": MEMO}),
        ("/wallet/stake", {"amount": AMOUNT, "duration_days": DAYS}),
        ("/wallet/unstake", {"amount": AMOUNT}),
    ):
        answer = context.api("POST", path, credential=INVENTED, json_body=body)
        judge_refusal(context, "NA-AUTH-008", answer)
