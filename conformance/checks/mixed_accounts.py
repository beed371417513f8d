"""Interface 4.1 and 5: what holds for the account of one token holds for that of another one.

The checks of one account run once more with the second token. What only two accounts show is left
out, since the first one is the operator's.
"""

import math

from conformance.checks.again import run_again, told_of
from conformance.checks.connections import PERMITTED
from conformance.checks.money import read_money
from conformance.checks.node_reads import AUTH_READS, CONFIG
from conformance.checks.reading import ABSENT
from conformance.checks.wallet import DAYS, EXCESS, MEMO
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import Json
from conformance.verdict import Finding

READS, POOR = "NA-AUTH-052", "NA-ERR-008"
UNAUTHORIZED, UNPAID, FORBIDDEN, FAILED = 401, 402, 403, 500
# How an account asks for a text.
BODIES: dict[str, dict[str, Json]] = {
    "a generation": {"prompt": "Hello", "max_tokens": 1},
    "a stream": {"prompt": "Hello", "max_tokens": 1, "stream": True},
    "one with all parameters": {
        "prompt": "Hello", "max_tokens": 1, "temperature": 0.5, "top_p": 0.9, "stop": ["~~"],
    },
}  # fmt: skip

AGAIN = (
    "shape-transactions", "shape-proofs", "pages-whole", "mixed-pages",
    "history-walked", "inference-result", "inference-stop", "inference-stops-exactly",
    "inference-stream", "inference-counted", "wallet-send", "wallet-stake", "wallet-unstake",
    "wallet-poor", "wallet-afterwards", "money-sent", "money-staked", "money-bodies", "memo-kept",
    "history-later", "layers-sane", "config-sane", "grpc-port",
)  # fmt: skip
# What later editions add.
ALSO = ("inference-refused", "config-patch", "config-patch-refused")


@requirement("NA-AUTH-036", "NA-AUTH-039", POOR, READS)
def mixed_accounts(context: Context) -> None:
    """Run the checks of one account once more, with the second token."""
    if context.edition < FIFTH:
        # What it finds is scored by other requirements, too.
        raise Skipped("later editions ask for it")
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    _judge_forbidden(context)
    if context.edition >= SIXTH:
        _judge_welcome(context)
        _judge_readers(context)
    if context.edition >= SEVENTH:
        _judge_changes(context)
        _judge_poor(context)
    target, wrong = context.target.of_second(), list[Finding]()
    for name in (*AGAIN, *(ALSO if context.edition >= SEVENTH else ())):
        wrong += run_again(context, name, "with the second token", target)
    why = told_of(wrong)
    context.judge("NA-AUTH-036", not why, why)


def _judge_forbidden(context: Context) -> None:
    """Rule on a 403 to what an account does with its own money, where the first one gets none."""
    accounts = context.target.valid, context.target.second
    for path in ("/wallet/send", "/wallet/stake", "/wallet/unstake"):
        # No account has so much, so that nothing moves.
        body: dict[str, Json] = {"amount": EXCESS**2, "duration_days": DAYS, "to": "nobody"}
        answers = [context.api("POST", path, credential=one, json_body=body) for one in accounts]
        statuses = [answer.status for answer in answers]
        why = f"POST {path} of too much has status {statuses[0]}, with the second token"
        held = statuses[1] != FORBIDDEN or statuses[0] == FORBIDDEN
        context.judge("NA-AUTH-039", held, f"{why} {statuses[1]}", *answers)


def _judge_poor(context: Context) -> None:
    """Rule on a transfer of more than an account has, where the other account gets 402 for it."""
    first, second = context.target.valid, context.target.second
    moneys = [read_money(context, account) for account in (first, second)]
    amount = float(math.floor(max(money.available for money in moneys)) + EXCESS)
    # Each would send it to the other one.
    answers = [
        context.api("POST", "/wallet/send", credential=account, json_body={
            "to": other.document.get("address"), "amount": amount, "memo": MEMO})
        for account, other in zip((first, second), reversed(moneys), strict=True)
    ]  # fmt: skip
    statuses = [answer.status for answer in answers]
    # Others judge what an account is forbidden, and a node may be busy.
    if statuses[0] == UNPAID and statuses[1] not in (UNAUTHORIZED, FORBIDDEN, *PERMITTED):
        why = f"more than there is has status {UNPAID}, and {statuses[1]} with the second token"
        context.judge(POOR, statuses[1] == UNPAID, why, *answers)


def _judge_welcome(context: Context) -> None:
    """Rule on a second token that opens only some of the ways to ask for a text."""
    asked = {
        name: [
            context.infer(body, credential=account)
            for account in (context.target.valid, context.target.second)
        ]
        for name, body in BODIES.items()
    }
    if not any(other.ok for _, other in asked.values()):
        # It may not generate at all, but the route is there, and not busy each time in turn.
        turns = [*asked.values()]
        missing = all(
            one.ok and (other.status in ABSENT or other.status >= FAILED) for one, other in turns
        )
        if context.edition >= SEVENTH and missing:
            why = (
                f"{len(turns)} times in turn a text with one token, and with the second one status"
            )
            context.fails("NA-AUTH-036", f"{why} {turns[0][1].status}", *turns[0])
        return
    for name, (one, other) in asked.items():
        if one.ok:
            why = f"{name} with the second token has status {other.status}"
            held = other.status not in (UNAUTHORIZED, FORBIDDEN)
            context.judge("NA-AUTH-036", held, why, one, other)


def _judge_readers(context: Context) -> None:
    """Rule on reads that one token opens, and another valid one does not."""
    accounts = context.target.valid, context.target.second
    for resource in AUTH_READS:
        one, other = (context.api("GET", resource.path, credential=each) for each in accounts)
        if one.ok:
            why = f"GET {resource.path} with the second token has status {other.status}"
            held = other.status not in (UNAUTHORIZED, FORBIDDEN)
            context.judge(READS, held, why, one, other)


def _judge_changes(context: Context) -> None:
    """Rule on a 401 to a second token where the first one is told what is wrong with a change.

    Who may change the configuration is open, but that is 403. Nothing is changed by this body.
    """
    accounts = context.target.valid, context.target.second
    one, other = (
        context.api("PATCH", CONFIG.path, credential=each, json_body=[]) for each in accounts
    )
    why = f"PATCH /config without settings has status {one.status}, with the second token"
    held = other.status != UNAUTHORIZED or one.status == UNAUTHORIZED
    context.judge("NA-AUTH-036", held, f"{why} {other.status}", one, other)
