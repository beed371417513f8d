"""Interface 4.1, the three routes that move money, and 402 (interface 7.1).

Invariants: each amount is the smallest of a few that the target accepts, and counts against the
budget; transfers go to the target itself, unless it declares `send_to`. The document gives neither
the minimum stake nor the minimum transfer nor the fee, so a refusal is not a violation.
"""

import json
import math
import time
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from conformance.catalogue import fields_of
from conformance.checks.clock import judge_now, near_midnight
from conformance.checks.history import newest
from conformance.checks.node_reads import BALANCE, day, judge_sends, judge_term
from conformance.checks.reading import (
    ABSENT,
    fetch,
    judge_resource,
    judge_server_error,
    judge_token_refused,
    resource_ids,
    served,
)
from conformance.context import Context
from conformance.editions import FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import FORMAT_IDS, judge_shape, lookup
from conformance.strictjson import Json, brief, is_int, is_number

AMOUNT = 0.01
# The smallest amount is not specified, so the first of these that is accepted is used.
AMOUNTS = (AMOUNT, 0.1, 1.0)
# A stake may have to be larger; the budget bounds it.
STAKES = (*AMOUNTS, 10.0, 100.0, 1000.0)
DAYS = 30
# For so few a stake may not be allowed.
FEW_DAYS = 7
# With a capital letter, which a node keeps.
MEMO = "Conformance"
# So far above the balance that no reward received meanwhile covers it.
EXCESS = 1_000_000
# A transfer may appear in the list a little after its answer.
LISTED_WITHIN_S = 10.0


def _balance(context: Context) -> dict[str, Json]:
    answer, balance = fetch(context, BALANCE)
    if balance is None:
        raise Skipped(f"GET /wallet/balance returned no balance, status {answer.status}")
    return balance


def _available(context: Context, least: float) -> float:
    if least and context.budget.left < AMOUNT:
        raise context.budget.used_up()
    found = lookup(_balance(context), "balances.available")
    if not found or not is_number(found[0]) or found[0] < least:
        raise Skipped(f"less than {least:g} is available")
    return float(found[0])


def _post(context: Context, path: str, body: Json, credential: Credential | None = None) -> Answer:
    if context.budget.exhausted:
        raise context.budget.used_up()
    credential = credential or context.target.valid
    return served(lambda: context.api("POST", path, credential=credential, json_body=body))


def _result(context: Context, ident: str, answer: Answer) -> dict[str, Json]:
    """Rule on the route and return its result, or raise `Skipped` if there is none."""
    if answer.status in ABSENT:
        context.fails(ident, f"the route does not exist: status {answer.status}", answer)
    elif answer.status == 401:
        judge_token_refused(context, ident, answer)
    elif answer.status >= 500:
        judge_server_error(context, ident, answer)
    result = answer.json_object()
    if answer.ok and result is None:
        context.wrong(ident, "the answer is not a JSON object", answer)
    elif 300 <= answer.status < 400:
        context.wrong(ident, f"a redirect, status {answer.status}", answer)
    if not answer.ok or result is None:
        raise Skipped(f"status {answer.status}; the document does not say what is accepted")
    context.holds(ident, answer)
    return result


def _differing(requested: dict[str, Json], reported: Json) -> list[str]:
    """Return the keys whose reported value differs from the requested one."""
    found = reported if isinstance(reported, dict) else {}
    return [
        key for key, value in requested.items() if key in found and not _same(found[key], value)
    ]


def _same(reported: Json, requested: Json) -> bool:
    if is_number(requested) and is_number(reported):
        return abs(reported - requested) <= 1e-9
    return bool(reported == requested)


def _nearly(one: Json, other: Json) -> bool:
    """Return whether two values are the same, but for how a number is rounded for display."""
    if is_number(one) and is_number(other):
        return abs(one - other) <= 1e-3 * max(1.0, abs(other))
    return bool(one == other)


def answer_amount(answer: Answer, key: str = "amount") -> float:
    """Return the amount, or another number, of the request that an answer belongs to."""
    return float(json.loads(answer.exchange.request["body"]["text"])[key])


# So many times what a transfer took, no fee is in the unit of the balance.
ABSURD = 1000
_SEND = (
    "NA-ROUTE-006",
    "NA-WALLET-036",
    "NA-WALLET-001",
    "ST-008",
    "GEN-019",
    *resource_ids("transfer"),
)


@requirement(*_SEND)
def wallet_send(context: Context) -> None:
    """POST /wallet/send a hundredth of a unit, to the declared address or to itself."""
    before = _available(context, 2 * AMOUNT)
    address = context.target.send_to or _balance(context).get("address")
    if not isinstance(address, str):
        raise Skipped("there is no address to send to")
    body = {"to": address, "amount": AMOUNT, "memo": MEMO}
    answer = _post(context, "/wallet/send", body)
    if context.target.send_to and answer.status in (400, 422):
        context.fails("NA-ROUTE-006", f"status {answer.status} to a transfer as documented", answer)
    result = _result(context, "NA-ROUTE-006", answer)
    fee = result.get("fee")
    cost = AMOUNT + (float(fee) if is_number(fee) else 0.0)
    taken = before - _available(context, 0)
    why = f"a transfer of {AMOUNT:g} with a fee of {fee} took {taken:g}"
    # Rewards and other transfers may have come in between, but none so large.
    most = ABSURD * (abs(taken) + AMOUNT)
    context.judge("NA-WALLET-036", cost <= most, why, answer)
    context.budget.charge(min(cost, most / ABSURD))
    judge_resource(context, "transfer", result, answer)
    context.observe("ST-008", f"status {brief(result.get('status'))}", answer)
    other = _differing(body, result)
    why = f"sent {brief(body)}, but the answer has other values for {other}"
    context.judge("NA-WALLET-001", not other, why, answer)
    judge_now(context, "timestamp", result.get("timestamp"), answer)


_STAKE = ("NA-ROUTE-008", *resource_ids("stake"))


def _stake(
    context: Context, credential: Credential | None = None, terms: tuple[int, ...] = (DAYS,)
) -> tuple[Answer, dict[str, Json]]:
    amounts = [amount for amount in STAKES if amount <= context.budget.left] or [AMOUNT]
    for amount, days in product(amounts, terms):
        body: Json = {"amount": amount, "duration_days": days}
        answer = _post(context, "/wallet/stake", body, credential)
        if answer.status not in (400, 409, 422):
            break
        context.observe("NA-WALLET-005", f"{brief(body)}: status {answer.status}", answer)
    result = _result(context, "NA-ROUTE-008", answer)
    if result.get("success") is True:
        context.budget.charge(amount)
    return answer, result


_UNSTAKE = ("NA-ROUTE-009", "NA-WALLET-004", "ST-005", "NA-WALLET-062", *resource_ids("unstake"))


@requirement(*_UNSTAKE, "NA-ROUTE-008", "NA-WALLET-005")
def wallet_unstake(context: Context) -> None:
    """POST /wallet/unstake a hundredth of a unit or a little more; stake it first if needed."""
    staked = lookup(_balance(context), "balances.staked")
    held = float(staked[0]) if staked and is_number(staked[0]) else 0.0
    if held < AMOUNT:
        _available(context, 2 * AMOUNT)
        _, stake = _stake(context)
        found = lookup(stake, "stake.amount")
        held = float(found[0]) if found and is_number(found[0]) else AMOUNT
    for amount in [amount for amount in AMOUNTS if amount <= held]:
        answer = _post(context, "/wallet/unstake", {"amount": amount})
        if answer.status not in (400, 422):
            break
    result = _result(context, "NA-ROUTE-009", answer)
    judge_resource(context, "unstake", result, answer)
    unstake = result.get("unstake")
    if result.get("success") is True and isinstance(unstake, dict):
        _judge_cooldown(context, amount, unstake, answer)


def _judge_cooldown(
    context: Context, amount: float, unstake: dict[str, Any], answer: Answer
) -> None:
    other = _differing({"amount": amount}, unstake)
    context.judge("NA-WALLET-004", not other, f"unstake is {brief(unstake)}", answer)
    ends, days = day(unstake.get("available_date")), unstake.get("cooldown_days")
    if ends and is_int(days):
        expected = datetime.now(UTC).date() + timedelta(days=int(days))
        why = f"{days} days from today is {expected}, not {ends}"
        # The target's clock may be on the other side of midnight.
        context.judge("ST-005", abs((ends - expected).days) <= 1, why, answer)
        if context.edition >= FOURTH and not near_midnight():
            context.judge("NA-WALLET-062", ends == expected, f"{why}, in UTC", answer)


@requirement(
    *_STAKE,
    "NA-WALLET-002",
    "NA-WALLET-003",
    "NA-WALLET-005",
    "NA-WALLET-020",
    "NA-WALLET-022",
    "NA-WALLET-045",
)
def wallet_stake(context: Context) -> None:
    """POST /wallet/stake a hundredth of a unit for a week or thirty days, or a little more."""
    _available(context, 2 * AMOUNT)
    # A stake may lock everything that is staked already, so a second account is used if declared.
    before = lookup(_of_second(context)[1], "balances.staked")
    first = context.edition >= SIXTH and before == [0]
    terms = (FEW_DAYS, DAYS) if first else (DAYS,)
    answer, result = _stake(context, context.target.second, terms)
    judge_resource(context, "stake", result, answer)
    stake = result.get("stake")
    if result.get("success") is not True or not isinstance(stake, dict):
        return
    # A node may add a stake to an existing one, whose duration may then apply to both.
    locked_days = stake.get("duration_days")
    if is_int(locked_days):
        asked, why = answer_amount(answer, "duration_days"), f"stake is {brief(stake)}"
        context.judge("NA-WALLET-002", locked_days >= asked, why, answer)
        if first:
            context.judge("NA-WALLET-045", locked_days <= asked, why, answer)
    judge_term(context, "NA-WALLET-003", stake, answer)
    start, today = day(stake.get("start_date")), datetime.now(UTC).date()
    if start:
        why = f"start_date is {start}, and today is {today}"
        context.judge("NA-WALLET-020", start <= today + timedelta(days=1), why, answer)
    if before and before[0] == 0:
        _judge_in_force(context, stake, answer)
    staked = stake.get("amount")
    if is_number(staked):
        held = staked >= answer_amount(answer) - 1e-9
        context.judge("NA-WALLET-002", held, f"stake is {brief(stake)}", answer)


# What a stake result and the balance both say of a stake.
IN_FORCE = ("amount", "duration_days", "start_date", "unlock_date", "multiplier")


def _of_second(context: Context) -> tuple[Answer, dict[str, Json]]:
    """GET the balance of the account that stakes."""
    answer = context.api("GET", BALANCE.path, credential=context.target.second)
    return answer, (answer.json_object() or {}) if answer.ok else {}


def _judge_in_force(context: Context, stake: dict[str, Json], answer: Answer) -> None:
    """Rule on the balance after the first stake of an account, which is all that is staked."""
    ends = time.monotonic() + LISTED_WITHIN_S
    while True:
        balance_answer, balance = _of_second(context)
        kept, staked = balance.get("staking"), lookup(balance, "balances.staked")
        if (staked and staked[0] != 0) or time.monotonic() > ends:
            break
        time.sleep(0.2)
    if not isinstance(kept, dict) or not staked or not _same(staked[0], stake.get("amount")):
        return
    shared = [key for key in IN_FORCE if key in stake and key in kept]
    other = [key for key in shared if not _nearly(kept[key], stake[key])]
    why = f"stake is {brief(stake)}, the balance has other values for {other}: {brief(kept)}"
    context.judge("NA-WALLET-022", not other, why, answer, balance_answer)


@requirement("NA-ERR-008", "NA-ERR-020", "NA-ERR-021")
def wallet_poor(context: Context) -> None:
    """POST /wallet/stake and /wallet/send more than is available."""
    available = _available(context, 0)
    address = context.target.send_to or _balance(context).get("address")
    if context.target.second_token:
        other = context.api("GET", "/wallet/balance", credential=context.target.second)
        address = (other.json_object() or {}).get("address", address)
    to_another = bool(context.target.send_to or context.target.second_token)
    # Whole units, since the document does not say how many decimals an amount may have.
    amount = float(math.floor(available) + EXCESS)
    for path, body in (
        ("/wallet/stake", {"amount": amount, "duration_days": DAYS}),
        ("/wallet/send", {"to": address, "amount": amount, "memo": MEMO}),
    ):
        before = _balance(context)
        answer = _post(context, path, body)
        after = _balance(context)
        shown = [lookup(one, "balances.available") for one in (before, after)]
        if answer.status == 402:
            context.holds("NA-ERR-008", answer)
            _judge_figures(context, amount, shown, answer)
        if all(found and is_number(found[0]) for found in shown):
            # Nothing but this request can have taken half of it, or a whole unit of little.
            slack = max(1.0, shown[0][0] / 2)
            kept = answer.status == 402 and shown[1][0] >= shown[0][0] - slack
            why = f"{amount:g} of {available:g}: status {answer.status}, then {shown[1][0]:g}"
            # Staking, and a transfer to oneself, may be refused for another reason first.
            judged = (402, 200, 201, 202)
            inside = answer.ok and (answer.json_object() or {}).get("success") is False
            if (answer.status in judged and not inside) or (
                path == "/wallet/send" and to_another and answer.status in (400, 403, 422)
            ):
                context.judge("NA-ERR-021", kept, why, answer)
        if answer.ok and (answer.json_object() or {}).get("success") is not False:
            context.fails(
                "NA-ERR-008", f"{amount:g} of {available:g}: status {answer.status}", answer
            )


def _judge_figures(
    context: Context, amount: float, shown: list[list[Json]], answer: Answer
) -> None:
    """Rule on the details of a 402, by the request and by the balances around it."""
    details = lookup(answer.json_object() or {}, "error.details")
    found = details[0] if details and isinstance(details[0], dict) else {}
    required, available = found.get("required"), found.get("available")
    if not (is_number(required) and is_number(available)) or not all(shown):
        return
    figures = [float(one[0]) for one in shown if is_number(one[0])]
    if len(figures) < len(shown):
        return
    low, high = min(figures) - 1e-6, max(figures) + 1e-6
    # A fee may be added to what is required; it may grow with the amount.
    held = amount <= required <= amount * 1.1 and low <= available <= high
    why = f"details {brief(found)} to {amount:g}, the balance has {figures}"
    context.judge("NA-ERR-020", held, why, answer)


_AFTER = (
    "NA-WALLET-006", "NA-WALLET-007", "NA-QUERY-007", *FORMAT_IDS,
    *fields_of("balance"), *fields_of("transactions"),
)  # fmt: skip


@requirement(*_AFTER)
def wallet_afterwards(context: Context) -> None:
    """POST /wallet/send, then look for the transfer in the list and in the balance."""
    before = _available(context, 2 * AMOUNT)
    address = context.target.send_to or _balance(context).get("address")
    if not isinstance(address, str):
        raise Skipped("there is no address to send to")
    sent = _post(context, "/wallet/send", {"to": address, "amount": AMOUNT, "memo": MEMO})
    result = sent.json_object()
    if not sent.ok or result is None:
        raise Skipped(f"POST /wallet/send was answered with status {sent.status}")
    fee = result.get("fee")
    context.budget.charge(AMOUNT + (float(fee) if is_number(fee) else 0.0))
    ident = result.get("transaction_id")
    deadline = time.monotonic() + LISTED_WITHIN_S
    listed = False
    while True:
        answer, document, rows = newest(context)
        if document is None:
            break
        listed = ident in [row.get("id") for row in rows]
        if listed or time.monotonic() > deadline or not isinstance(ident, str):
            judge_shape(context, "transactions", document, answer)
            judge_sends(context, document, answer)
            context.judge("NA-WALLET-006", listed, f"{brief(ident)} is not listed", sent, answer)
            break
        time.sleep(0.2)
    balance_answer, balance = fetch(context, BALANCE)
    if balance is None:
        return
    judge_shape(context, "balance", balance, balance_answer)
    after = lookup(balance, "balances.available")
    if address == balance.get("address") and after and is_number(after[0]):
        # Rewards may arrive at any time; only the fee may reduce the balance.
        least = before - (float(fee) if is_number(fee) else 0.0) - 1e-6
        context.judge(
            "NA-WALLET-007",
            after[0] >= least,
            f"{before} before a transfer to itself, {after[0]} afterwards",
            sent,
            balance_answer,
        )
