"""Interface 7.1: all that an account has available, and what it does with nothing.

What the second account has goes to the first one, and comes back.
"""

from conformance.checks.money import EXACT, TRIES, Comparison, Money, read_money, still
from conformance.checks.payments import fee_of, require_budget
from conformance.checks.unpaid import BODY, judge_nothing
from conformance.checks.wallet import AMOUNT, DAYS, MEMO
from conformance.context import Context
from conformance.editions import FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number


@requirement("NA-ERR-024", "NA-ERR-025", "NA-ERR-030", "NA-ERR-043")
def money_whole(context: Context) -> None:
    """POST /wallet/send all that the second account has, without its fee, and with it."""
    first, second = context.target.valid, context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    address = read_money(context, first).document.get("address")
    own = read_money(context, second).document.get("address")
    if not isinstance(address, str) or not isinstance(own, str) or address == own:
        raise Skipped("there are no two accounts")
    require_budget(context, AMOUNT)
    body: dict[str, Json] = {"to": own, "amount": AMOUNT, "memo": MEMO}
    small = context.api("POST", "/wallet/send", credential=first, json_body=body)
    fee = fee_of(small)
    if small.ok and fee <= 0 and context.edition >= SIXTH:
        # There is nothing but the amount.
        whole = read_money(context, second).available
        _send_all(context, {"to": address, "amount": whole, "memo": MEMO}, own)
    if not small.ok or fee <= 0:
        raise Skipped(f"a transfer has no fee, status {small.status}")
    context.budget.charge(AMOUNT + fee)
    compared = Comparison(context)
    for _ in range(TRIES):
        before = still(context, second)
        if before is None:
            continue
        amount = before[0].available
        if amount <= 0:
            raise Skipped("the second account has nothing available")
        body = {"to": address, "amount": amount, "memo": MEMO}
        sent = context.api("POST", "/wallet/send", credential=second, json_body=body)
        why = f"{amount:g} of {amount:g} with a fee of {fee:g}: status {sent.status}"
        if sent.ok:
            # Between the operator's own accounts; back it goes.
            body = {"to": own, "amount": amount, "memo": MEMO}
            context.api("POST", "/wallet/send", credential=first, json_body=body)
            free = fee_of(sent) <= 0
            compared.note("NA-ERR-024", free, why, small, before[0].answer, sent)
        elif sent.status == 402:
            compared.note("NA-ERR-024", True, why, small, sent)
            if context.edition >= FOURTH:
                _send_all(context, {**body, "amount": round(amount - fee, 6)}, own)
        if compared.clean:
            break
    compared.conclude()
    if context.edition >= SEVENTH:
        # Large amounts, as both histories have them.
        for account in (first, second):
            context.api("GET", "/wallet/transactions", credential=account)


def _send_all(context: Context, body: dict[str, Json], own: str) -> None:
    """Send what is available but for the fee, and back again; a 402 names more than that."""
    first, second = context.target.valid, context.target.second
    sent = context.api("POST", "/wallet/send", credential=second, json_body=body)
    required = lookup(sent.json_object() or {}, "error.details.required")
    has = read_money(context, second)
    if sent.status == 402 and required and is_number(required[0]):
        # A fee may grow with the amount.
        why = f"of {has.available:g} that are available {required[0]:g} are required: status 402"
        context.judge("NA-ERR-030", required[0] > has.available, why, has.answer, sent)
        if context.edition >= SIXTH:
            _judge_required(context, has, body, float(required[0]), own)
    made = False
    if sent.ok:
        context.holds("NA-ERR-030", sent)
        context.budget.charge(2 * fee_of(sent))
        try:
            if context.edition >= SIXTH:
                made = abs(has.available) <= EXACT and context.infer(BODY, credential=second).ok
                _judge_nothing(context, has, str(body["to"]), own)
        finally:
            back = {**body, "to": own}
            returned = context.api("POST", "/wallet/send", credential=first, json_body=back)
            if not returned.ok:
                context.residue.append(f"{body['amount']} of the second account's, with the first")
        if made:
            judge_nothing(context)


def _judge_required(
    context: Context, has: Money, body: dict[str, Json], required: float, own: str
) -> None:
    """Send less by what a 402 asks for besides, and back again: that is what is taken."""
    amount = float(str(body["amount"]))
    more = required - amount
    less = round(has.available - more, 6)
    if not 0 < more < less or less >= amount:
        return
    first, second = context.target.valid, context.target.second
    sent = context.api(
        "POST", "/wallet/send", credential=second, json_body={**body, "amount": less}
    )
    if not sent.ok:
        return
    fee = fee_of(sent)
    context.budget.charge(2 * fee)
    why = f"a 402 to a transfer of {amount:g} requires {more:g} besides, and one of {less:g} takes"
    context.judge("NA-ERR-030", fee >= more / 2 + EXACT, f"{why} {fee:g}", has.answer, sent)
    back = {**body, "to": own, "amount": less}
    if not context.api("POST", "/wallet/send", credential=first, json_body=back).ok:
        context.residue.append(f"{less} of the second account's, with the first")


def _judge_nothing(context: Context, has: Money, other: str, own: str) -> None:
    """Rule on a transfer of an account that has nothing, then stake all of what it is given."""
    first, second = context.target.valid, context.target.second
    if abs(has.available) > EXACT:
        return
    body: dict[str, Json] = {"to": other, "amount": AMOUNT, "memo": MEMO}
    sent = context.api("POST", "/wallet/send", credential=second, json_body=body)
    left = read_money(context, second)
    # Who has nothing may be given something.
    why = f"{AMOUNT:g} are sent of nothing, and {left.available:g} is left"
    made = sent.ok and left.available <= EXACT
    context.judge("NA-ERR-043", not made, why, has.answer, sent, left.answer)
    if sent.ok or context.budget.left < 2 * AMOUNT:
        return
    given = context.api("POST", "/wallet/send", credential=first, json_body={**body, "to": own})
    if given.ok:
        context.budget.charge(fee_of(given))
        # A 402 to it tells that more is required.
        stake: Json = {"amount": AMOUNT, "duration_days": DAYS}
        staked = context.api("POST", "/wallet/stake", credential=second, json_body=stake)
        context.budget.charge(AMOUNT if staked.ok else 0.0)
