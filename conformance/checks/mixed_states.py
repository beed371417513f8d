"""Interface 4.1: what is served in one state of a node is served in another.

A state is what the requests before have brought about: training that is turned off, an account that
has just paid, a refusal. The document shows no state in which a route is missing, nor one in which
what it says of an answer does not hold; so checks that only read run once more in each of them.
"""

import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import partial
from itertools import cycle

from conformance.catalogue import Effect
from conformance.checks.again import run_all_again
from conformance.checks.changes import ENABLED
from conformance.checks.config import changeable, nested, patch, read_config, restore
from conformance.checks.crossed import meanwhile
from conformance.checks.money import read_money
from conformance.checks.node_reads import AUTH_READS, METRICS, NETWORK, STATUS
from conformance.checks.stream import LONG
from conformance.checks.wallet import AMOUNT, DAYS, EXCESS, MEMO
from conformance.context import API, Context
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json

TRIES, BETWEEN_S = 3, 0.3
# So long a client waits that leaves.
LEFT_S = 0.02
BODY: dict[str, Json] = {"prompt": "Once upon a time", "max_tokens": 2}
# The statuses of a route that is not there, or that cannot answer.
ABSENT = (404, 405, 501)
MISSING = (*ABSENT, 500, 503)
Ask = Callable[[], Answer]
# What the checks of these names say holds in every state.
AGAIN = (
    "shape-status", "shape-metrics", "shape-network", "shape-balance", "shape-transactions",
    "shape-layers", "shape-config", "shape-proofs", "shape-training-global",
    "shape-training-verify", "training-relations", "training-local", "status-sane", "metrics-sane",
    "config-sane", "layers-sane", "pages-whole",
)  # fmt: skip
QUICKLY = tuple(name for name in AGAIN if name not in ("status-sane", "metrics-sane"))
# Of the states, those that change what is read; the others only add to it.
OF_TRAINING = "training"


def _routes(context: Context) -> dict[str, Ask]:
    """Return how each route is asked, but for the health, whose status says how the node is."""
    found: dict[str, Ask] = {}
    for resource in (*AUTH_READS, STATUS, METRICS, NETWORK):
        account = context.target.valid if resource in AUTH_READS else ANONYMOUS
        found[f"GET {resource.path}"] = partial(
            context.api, "GET", resource.path, credential=account
        )
    for path in ("/training/global", "/training/verify"):
        found[f"GET /api{path}"] = partial(context.api, "GET", path, prefix="/api")
    if context.target.allows(Effect.SPEND):
        found[f"POST {API}/inference"] = partial(context.infer, BODY)
        found["a stream"] = partial(context.infer, {**BODY, "stream": True})
    return found


def _states(context: Context) -> Generator[str]:
    """Bring about one state after the other; each ends when the next begins."""
    first, second = context.target.valid, context.target.second
    if context.target.allows(Effect.MUTATE):
        original = read_config(context)
        try:
            near = {path: values[0] for path, values in changeable(original).items()}
            for path, value in near.items():
                patch(context, nested({path: value}))
            yield f"after {OF_TRAINING} and resources have been changed"
        finally:
            restore(context, original)
        found = lookup(read_config(context), ENABLED)
        if found and isinstance(found[0], bool):
            changed = patch(context, nested({ENABLED: not found[0]}))
            if changed.ok:
                try:
                    yield f"after {ENABLED} was set to {not found[0]}"
                finally:
                    patch(context, nested({ENABLED: found[0]}))
                    if lookup(read_config(context), ENABLED) != found:
                        context.residue.append(f"configuration: {ENABLED} is not {found[0]} again")
    if not context.target.allows(Effect.SPEND):
        return
    own = read_money(context, first).document.get("address")
    to_itself: dict[str, Json] = {"to": own, "amount": AMOUNT, "memo": MEMO}
    for account, path, body in (
        (first, "/wallet/send", {**to_itself, "amount": float(EXCESS) * EXCESS}),
        (first, "/wallet/stake", {"amount": AMOUNT}),
        (second, "/wallet/send", {**to_itself, "amount": -AMOUNT}),
        (second, "/wallet/unstake", {"amount": float(EXCESS) * EXCESS}),
        (first, "/wallet/send", to_itself),
        (second, "/wallet/stake", {"amount": AMOUNT, "duration_days": DAYS}),
    ):
        if context.budget.left < AMOUNT:
            raise context.budget.used_up()
        answer = context.api("POST", path, credential=account, json_body=body)
        if answer.ok:
            context.budget.charge(AMOUNT)
        yield f"after POST {path} with status {answer.status}"
    if context.edition >= SIXTH:
        _leave(context)
        yield "after a stream was left before its end"


def _leave(context: Context) -> None:
    """Ask for a long stream, and close the connection soon; a fast node has sent all of it."""
    context.budget.charge_stream(LONG)
    body: dict[str, Json] = {**BODY, "max_tokens": LONG, "stream": True}
    with suppress(Unanswered):
        context.http.call(
            "POST", f"{API}/inference", credential=context.target.valid, json_body=body,
            timeout_s=LEFT_S,
        )  # fmt: skip


@requirement("NA-ROUTE-018", "NA-ROUTE-020", "NA-SANE-063")
def mixed_states(context: Context) -> None:
    """Ask all routes that are served once more in several states of the node."""
    routes = _routes(context)
    served = {name: ask for name, ask in routes.items() if ask().ok}
    if not served:
        raise Skipped("no route is served")
    again: tuple[str, ...] = AGAIN
    # Closed at once if something ends it, so that no state stays.
    with closing(_states(context)) as states:
        for state in states:
            _judge_served(context, served, state)
            if OF_TRAINING in state:
                # What takes a while is looked at in one state only.
                run_all_again(context, again, state)
                again = again if context.edition < SIXTH else QUICKLY
    if context.edition >= FIFTH and context.target.allows(Effect.SPEND):
        _judge_busy(context, {name: ask for name, ask in served.items() if "GET" in name})


def _judge_served(context: Context, served: dict[str, Ask], state: str) -> None:
    """Rule on each route that was served before."""
    for name, ask in served.items():
        answers = [ask()]
        while answers[-1].status in MISSING and len(answers) < TRIES:
            time.sleep(BETWEEN_S)
            answers.append(ask())
        why = f"{name} has status {answers[-1].status} {state}"
        # An account may be empty, or the node busy.
        if answers[-1].ok or answers[-1].status in MISSING:
            context.judge("NA-ROUTE-018", answers[-1].ok, why, *answers)


def _judge_busy(context: Context, served: dict[str, Ask]) -> None:
    """Rule on each read while streams are sent; a node may be too busy to answer, but not lack it.

    What the account lets nobody generate is not looked at.
    """
    with suppress(Skipped):
        body: dict[str, Json] = {**BODY, "max_tokens": LONG, "stream": True}
        read, made = meanwhile(context, body, cycle(served.values()))
        for name, answer in zip(cycle(served), read, strict=False):
            why = f"{name} has status {answer.status} while a stream is sent"
            if answer.ok or answer.status in ABSENT:
                context.judge("NA-ROUTE-018", answer.ok, why, answer, *made[:1])
