"""Interface 2.1: transfers that are easy to book wrongly, to oneself and several at the same time.

As in ``money``, a difference is a violation only if every try shows it.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

from conformance.checks.history import newest
from conformance.checks.money import (
    EXACT,
    TRIES,
    Comparison,
    Money,
    eventually,
    near,
    read_money,
    still,
)
from conformance.checks.reading import resource_ids
from conformance.checks.wallet import AMOUNT, MEMO
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

AT_ONCE, TWICE = 4, 2


def _send(context: Context, to: str) -> Answer:
    body = {"to": to, "amount": AMOUNT, "memo": MEMO}
    return context.api("POST", "/wallet/send", credential=context.target.valid, json_body=body)


def _has(context: Context, available: float) -> bool:
    return near(context, read_money(context, context.target.valid).available, available)


def _has_most(context: Context, account: Credential, available: float) -> bool:
    return read_money(context, account).available > available - AMOUNT / 2


def fee_of(answer: Answer) -> float:
    """Return the fee in the result of a transfer, 0 without one."""
    fee = (answer.json_object() or {}).get("fee")
    return float(fee) if is_number(fee) else 0.0


def require_budget(context: Context, amount: float) -> None:
    """Raise `Skipped` where the run may not spend so much more."""
    if context.budget.left < amount:
        raise context.budget.used_up()


@requirement("NA-WALLET-025")
def money_returned(context: Context) -> None:
    """POST /wallet/send to the account itself, which must not be richer by the amount."""
    first = context.target.valid
    compared = Comparison(context)
    for _ in range(TRIES + 2):
        before = still(context, first)
        if before is None:
            continue
        address = before[0].document.get("address")
        if not isinstance(address, str) or before[0].available < 2 * AMOUNT:
            raise Skipped("there is no address, or too little is available")
        require_budget(context, AMOUNT)
        sent = _send(context, address)
        if not sent.ok:
            raise Skipped(f"POST /wallet/send was answered with status {sent.status}")
        fee = fee_of(sent)
        context.budget.charge(fee)
        after = still(context, first)
        if after is None:
            continue
        gained = after[0].available - before[0].available
        # Anything else may be a reward.
        held = abs(gained - AMOUNT) > fee + EXACT
        why = f"{gained:g} more is available after sending {AMOUNT:g} to itself"
        compared.note("NA-WALLET-025", held, why, before[0].answer, sent, after[0].answer)
        if compared.clean:
            break
    compared.conclude()


@requirement("NA-WALLET-026", "NA-WALLET-085")
def money_at_once(context: Context) -> None:
    """POST /wallet/send several times at the same moment, to the second account."""
    first, second = context.target.valid, context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    compared, lost = Comparison(context), list[tuple[str, tuple[Answer, ...]]]()
    for _ in range(TRIES + 2):
        before = still(context, first)
        if before is None:
            continue
        receiver = read_money(context, second)
        address = receiver.document.get("address")
        if not isinstance(address, str) or address == before[0].document.get("address"):
            raise Skipped("there are no two accounts")
        if before[0].available < 3 * AT_ONCE * AMOUNT:
            raise Skipped("too little is available")
        require_budget(context, AT_ONCE * AMOUNT)
        with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
            sent = list(pool.map(partial(_send, context), [address] * AT_ONCE))
        taken = [answer for answer in sent if answer.ok]
        cost = sum(AMOUNT + fee_of(answer) for answer in taken)
        context.budget.charge(cost)
        if not taken:
            raise Skipped(f"POST /wallet/send was answered with status {sent[0].status}")
        wanted = before[0].available - cost
        eventually(partial(_has, context, wanted))
        after = read_money(context, first)
        less = before[0].available - after.available
        why = f"{len(taken)} transfers of {cost:g} in all took {less:g}"
        held = near(context, after.available, wanted)
        compared.note("NA-WALLET-026", held, why, before[0].answer, *taken, after.answer)
        if context.edition >= SIXTH:
            given = len(taken) * AMOUNT
            # A charge, or something else that comes in, does not count.
            eventually(partial(_has_most, context, second, receiver.available + given))
            now = read_money(context, second)
            more = now.available - receiver.available
            why = f"{len(taken)} transfers of {AMOUNT:g} each at the same time gave {more:g}"
            held = near(context, more, given)
            compared.note("NA-WALLET-085", held, why, receiver.answer, *taken, now.answer)
            # Which of them meet is a matter of chance, but not that whole ones are missing.
            if _is_multiple(given - more):
                lost.append((why, (receiver.answer, *taken, now.answer)))
        if compared.clean:
            break
    if len(lost) >= TWICE:
        context.fails("NA-WALLET-085", lost[-1][0], *lost[-1][1])
    compared.conclude()


def _is_multiple(missing: float) -> bool:
    """Return whether what is missing is one transfer of the smallest amount, or several."""
    return missing > AMOUNT / 2 and abs(missing - round(missing / AMOUNT) * AMOUNT) <= EXACT


# Large beside any fee.
DRAWN = 0.3
UNIT = 1
REFUSED = frozenset({400, 422})


@requirement("NA-WALLET-037", "NA-WALLET-001")
def money_drawn(context: Context) -> None:
    """POST /wallet/send an amount below zero to the second account, which must not lose it."""
    first, second = context.target.valid, context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    compared = Comparison(context)
    for _ in range(TRIES):
        before = still(context, first, second)
        if before is None:
            continue
        body: dict[str, Json] = {
            "to": before[1].document.get("address"), "amount": -DRAWN, "memo": MEMO}  # fmt: skip
        answer = context.api("POST", "/wallet/send", credential=first, json_body=body)
        after = [read_money(context, each) for each in (first, second)]
        gained = after[0].available - before[0].available
        lost = before[1].available - after[1].available
        # Both at once, by the same amount: neither is a reward or a charge.
        held = gained < DRAWN / 2 or lost < DRAWN / 2
        why = f"status {answer.status}: the sender has {gained:g} more, the receiver {lost:g} less"
        shown = (before[1].answer, answer, after[1].answer)
        compared.note("NA-WALLET-037", held, why, *shown)
        told = (answer.json_object() or {}).get("amount")
        if context.edition >= FORMS_SINCE and answer.ok and is_number(told):
            why = f"a transfer of {-DRAWN:g} has the amount {brief(told)} in the result"
            context.judge("NA-WALLET-001", near(context, told, -DRAWN), why, answer)
        if compared.clean:
            break
    compared.conclude()


@requirement("NA-WALLET-038")
def money_in_whole_units(context: Context) -> None:
    """POST /wallet/send a whole unit to the account itself, written as `1` and as `1.0`.

    In JSON both are the same number.
    """
    first = context.target.valid
    before = read_money(context, first)
    address = before.document.get("address")
    if not isinstance(address, str) or before.available < 2 * UNIT:
        raise Skipped("there is no address, or too little is available")
    compared = Comparison(context)
    for _ in range(TRIES):
        require_budget(context, AMOUNT)
        sent = [_send_unit(context, address, amount) for amount in (UNIT, float(UNIT))]
        statuses = [answer.status for answer in sent]
        if not any(answer.ok for answer in sent):
            raise Skipped(f"one unit to the account itself: statuses {statuses}")
        why = f"{UNIT} and {float(UNIT)} are answered with status {statuses}"
        compared.note("NA-WALLET-038", not REFUSED.intersection(statuses), why, *sent)
        if compared.clean:
            break
    compared.conclude()


# Between two amounts that are whole, so that it is neither too little nor too much.
BETWEEN = 1.5


@requirement("NA-WALLET-060")
def money_in_parts(context: Context) -> None:
    """POST /wallet/send an amount between two whole ones to the account itself, and these two."""
    first = context.target.valid
    before = read_money(context, first)
    address = before.document.get("address")
    if not isinstance(address, str) or before.available < 3 * UNIT:
        raise Skipped("there is no address, or too little is available")
    require_budget(context, 2 * UNIT)
    compared = Comparison(context)
    for _ in range(TRIES):
        part = _send_unit(context, address, BETWEEN)
        if context.edition >= SIXTH and part.ok:
            # So whole ones need not be tried.
            compared.note("NA-WALLET-060", True, "", part)
            break
        sent = [part, *(_send_unit(context, address, whole) for whole in (UNIT, 2 * UNIT))]
        if not all(answer.ok for answer in sent[1:]):
            raise Skipped(f"one of two whole amounts has status {[one.status for one in sent[1:]]}")
        why = f"{BETWEEN} is refused with status {part.status}, {UNIT} and {2 * UNIT} are sent"
        compared.note("NA-WALLET-060", part.status not in REFUSED, why, *sent)
        if compared.clean:
            break
    compared.conclude()


def _send_unit(context: Context, address: str, amount: float) -> Answer:
    body: dict[str, Json] = {"to": address, "amount": amount, "memo": MEMO}
    answer = context.api("POST", "/wallet/send", credential=context.target.valid, json_body=body)
    if answer.ok:
        # The unit stays with the account: the fee is what it costs.
        context.budget.charge(fee_of(answer))
    return answer


# Far above what the suite sends elsewhere; an account that has less sends a part of what it has.
LARGE, PART = 25, 4
# Of more digits than a column, or a number of four bytes, may keep; and a fee that is usual.
HUGE, PERCENT = (1001.37, 33_000.25, 70_000.5), 100
# As many decimals as an account shows at least.
ODD, HALF_ATOM = 0.0125, 5e-7
# A little less as a binary fraction, so that it loses a hundredth, or an atom, where it is cut.
BINARY = 2.01
# The first edition that sends a whole unit without a memo, and follows an amount below zero in the
# result.
FORMS_SINCE = 4


@requirement("NA-WALLET-039", "NA-WALLET-001", *resource_ids("transactions"))
def money_moved(context: Context) -> None:
    """POST /wallet/send many units to the second account, and back, and compare both balances."""
    first, second = context.target.valid, context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    start = [read_money(context, each) for each in (first, second)]
    addresses = [each.document.get("address") for each in start]
    whole = min(LARGE, math.floor(start[0].available / PART))
    if addresses[0] == addresses[1] or whole < UNIT:
        raise Skipped("there are no two accounts, or too little is available")
    bodies: list[dict[str, Json]] = [{"amount": whole + ODD, "memo": MEMO}]
    if context.edition >= FORMS_SINCE:
        # A whole unit, and a transfer without a memo, may be booked by lines of their own.
        bodies.append({"amount": UNIT})
    if context.edition >= FOURTH and whole > BINARY:
        bodies.append({"amount": BINARY, "memo": MEMO})
    # As much as the run may lose, if a fee takes all of it.
    most = min(start[0].available / PART, context.budget.left)
    if context.edition >= FIFTH and most > LARGE:
        bodies.append({"amount": math.floor(most), "memo": MEMO})
        # Beyond that, a hundredth of it could be lost.
        most = min(start[0].available / PART, PERCENT * context.budget.left)
        bodies += [{"amount": one, "memo": MEMO} for one in HUGE if one < most]
    ways = (first, second, addresses[1]), (second, first, addresses[0])
    for body, (sender, receiver, to) in product(bodies, ways):
        compared = Comparison(context)
        for _ in range(TRIES):
            if _move(context, compared, sender, receiver, {"to": to, **body}):
                break
        compared.conclude()
    # Of what is listed, every answer is judged.
    newest(context)


def _move(
    context: Context, compared: Comparison, sender: Credential, receiver: Credential,
    body: dict[str, Json],
) -> bool:  # fmt: skip
    """Send once, and note what both balances show; return whether they show it rightly."""
    before = still(context, sender, receiver)
    if before is None:
        return False
    require_budget(context, AMOUNT)
    sent = context.api("POST", "/wallet/send", credential=sender, json_body=body)
    if sent.status in REFUSED:
        # How many decimals an amount may have is not said.
        body["amount"] = math.floor(float(str(body["amount"])))
        sent = context.api("POST", "/wallet/send", credential=sender, json_body=body)
    amount, fee = float(str(body["amount"])), fee_of(sent)
    if not sent.ok:
        raise Skipped(f"POST /wallet/send of {amount:g} was answered with status {sent.status}")
    # The amount stays with the operator.
    context.budget.charge(fee)
    told = (sent.json_object() or {}).get("amount")
    why = f"a transfer of {amount:g} has the amount {brief(told)} in the result"
    same = not is_number(told) or near(context, float(told), amount)
    if context.edition >= FORMS_SINCE:
        same = not is_number(told) or math.isclose(told, amount, rel_tol=1e-9, abs_tol=HALF_ATOM)
        # The result is of this transfer, whatever else happens.
        context.judge("NA-WALLET-001", same, why, sent)
    else:
        compared.note("NA-WALLET-001", same, why, sent)
    now: list[Money] = []

    def arrived() -> bool:
        now[:] = [read_money(context, each) for each in (sender, receiver)]
        return near(context, now[0].available, before[0].available - amount - fee) and near(
            context, now[1].available, before[1].available + amount)  # fmt: skip

    held = eventually(arrived)
    less, more = (
        before[0].available - now[0].available, now[1].available - before[1].available,
    )  # fmt: skip
    why = f"sending {amount:g} with a fee of {fee:g} took {less:g}, and gave {more:g}"
    compared.note("NA-WALLET-039", held, why, *(each.answer for each in before), sent,
                  *(each.answer for each in now))  # fmt: skip
    return held
