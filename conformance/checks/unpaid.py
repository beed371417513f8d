"""Interface 2.1 and 7.1: a generation of an account that has next to nothing.

The second account is emptied for it: what it has goes to the first account, and comes back.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from conformance.checks.money import EXACT, TRIES, Comparison, near, read_money, still
from conformance.checks.wallet import AMOUNT, MEMO
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer, Unanswered
from conformance.passive.events import tokens_of
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

# Of many tokens, so that what they cost is more than the smallest amount.
BODY: Json = {"prompt": "Once upon a time", "max_tokens": 64}
# The finest amount that is sent, as a number of decimals.
DECIMALS = 6
# So many times a cost is an amount in another unit, or another amount.
OTHER_UNIT, REQUIRED = 100, "NA-ERR-042"
# A hundred times a cost is already one, however it is rounded.
NEARLY = 0.99


def _cost(answer: Answer) -> float:
    found = lookup(answer.json_object() or {}, "cost.amount") if answer.ok else []
    return float(found[0]) if found and is_number(found[0]) else 0.0


def _address(context: Context, credential: Credential) -> str:
    address = read_money(context, credential).document.get("address")
    if not isinstance(address, str):
        raise Skipped("an account has no address")
    return address


def _send(context: Context, sender: Credential, to: str, amount: float) -> float:
    """Send, and return the fee; raise `Skipped` if it is refused."""
    body: Json = {"to": to, "amount": amount, "memo": MEMO}
    answer = context.api("POST", "/wallet/send", credential=sender, json_body=body)
    if not answer.ok:
        raise Skipped(f"POST /wallet/send of {amount:g} was answered with status {answer.status}")
    fee = (answer.json_object() or {}).get("fee")
    paid = float(fee) if is_number(fee) else 0.0
    # The amount stays with the operator.
    context.budget.charge(paid)
    return paid


@contextmanager
def _emptied(context: Context, left: float) -> Iterator[None]:
    """Let the second account have this much, and give it back its money afterwards."""
    first, second = context.target.valid, context.target.second
    own, other = _address(context, second), _address(context, first)
    if own == other:
        raise Skipped("there are no two accounts")
    fee = _send(context, second, other, AMOUNT)
    spare = read_money(context, second).available - fee - left
    amount = math.floor(spare * 10**DECIMALS) / 10**DECIMALS
    if amount <= AMOUNT:
        raise Skipped("too little is available")
    _send(context, second, other, amount)
    try:
        yield
    finally:
        try:
            _send(context, first, own, amount)
        except Skipped as refused:
            context.residue.append(f"{amount:g} of the second account's, with the first: {refused}")


@requirement("NA-ERR-025", "NA-ERR-027", "NA-ERR-029", REQUIRED)
def generation_unpaid(context: Context) -> None:
    """POST /wallet/send all but a little of the second account, then ask it for a generation."""
    account = context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    before = still(context, account)
    control = context.infer(BODY, credential=account)
    cost, after = _cost(control), read_money(context, account)
    if cost < 4 * 10**-DECIMALS:
        raise Skipped(f"POST /inference names no cost, status {control.status}")
    if before is None or not near(context, before[0].available - after.available, cost):
        raise Skipped("a charge is not settled at once, or the balance moves")
    compared = Comparison(context)
    for _ in range(TRIES):
        with _emptied(context, cost / 2):
            _ask(context, compared, control, cost)
        if compared.clean:
            break
    compared.conclude()


def judge_nothing(context: Context) -> None:
    """Rule on a generation of an account that has nothing at all, where one is charged at once."""
    account, compared = context.target.second, Comparison(context)
    had = still(context, account)
    control = context.infer(BODY, credential=account)
    cost, after = _cost(control), read_money(context, account)
    charged = had is not None and near(context, had[0].available - after.available, cost)
    for _ in range(TRIES if charged and cost > EXACT else 0):
        with _emptied(context, 0):
            before = still(context, account)
            if before is None or abs(before[0].available) > EXACT:
                return
            answer = context.infer(BODY, credential=account)
            left = read_money(context, account)
            if answer.status != 402 and not answer.ok:
                return
            # Who has nothing may be given something.
            free = answer.ok and _cost(answer) > cost / 2 and left.available <= EXACT
            why = f"a generation of an account that has nothing has status {answer.status}"
            compared.note("NA-ERR-025", not free, why, before[0].answer, answer, left.answer)
        if compared.clean:
            break
    compared.conclude()


# What a 402 says, which is a status of its own.
CODE = b"INSUFFICIENT_BALANCE"


def _ask(context: Context, compared: Comparison, control: Answer, cost: float) -> None:
    """Ask for what has cost so much, of an account that has about half of it."""
    account = context.target.second
    before = still(context, account)
    if before is None or not 0 < before[0].available < cost - EXACT:
        return
    had = before[0].available
    try:
        answer = context.infer(BODY, credential=account)
    except Unanswered as limited:
        if context.edition < FOURTH or not limited.why.startswith("limited"):
            raise
        # As many requests as before, so it is no limit where another account meets none.
        other = context.infer(BODY)
        why = f"a cost of {cost:g} with {had:g}: always 429, and status {other.status} with more"
        compared.note("NA-ERR-029", not other.ok, why, control, before[0].answer, limited, other)
        return
    left = read_money(context, account).available
    shown = (control, before[0].answer, answer)
    why = f"a cost of {_cost(answer):g} with {had:g}: status {answer.status}"
    if answer.status == 402:
        why = f"{why}, and {had - left:g} less is available"
        compared.note("NA-ERR-025", had - left <= EXACT, why, *shown)
        compared.note("NA-ERR-029", True, why, *shown)
        required = lookup(answer.json_object() or {}, "error.details.required")
        if context.edition >= SIXTH and required and is_number(required[0]):
            told = f"{required[0]:g} are required for what has cost {cost:g}"
            most = OTHER_UNIT * cost * (NEARLY if context.edition >= SEVENTH else 1)
            context.judge(REQUIRED, required[0] <= most, told, control, answer)
        stream = context.infer({**BODY, "stream": True}, credential=account)
        # A balance may also end while tokens are sent.
        within = stream.ok and CODE in stream.body and not tokens_of(stream)
        why = f"a stream of {had:g} and less has {CODE.decode()} in it, with status {stream.status}"
        made = (control.json_object() or {}).get("tokens_generated")
        whole = stream.ok and is_number(made) and 0 < made <= len(tokens_of(stream))
        if whole and context.edition >= FIFTH:
            # As many tokens as a generation that is refused.
            within, why = True, f"a stream of {made} tokens is sent, which cost {cost:g} of {had:g}"
        compared.note("NA-ERR-027", not within, why, *shown, stream)
    elif context.edition >= FOURTH and 400 <= answer.status < 500:
        other = context.infer(BODY)
        why = f"{why}, and status {other.status} with more"
        compared.note("NA-ERR-029", not other.ok, why, *shown, other)
    elif _cost(answer) > had + EXACT >= left:
        # Where more is left than there was, something has come in that may have paid.
        compared.note("NA-ERR-025", False, why, *shown)
