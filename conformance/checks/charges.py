"""Interface 2.1 and 3: what a generation takes from a balance, and an unstake of too much.

When a charge is settled is not shown. So a charge that is not seen proves nothing, and one above
the cost in the result counts only if every try shows it: an older one may be settled in between.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor

from conformance.checks.counting import early
from conformance.checks.money import (
    EXACT,
    TRIES,
    Comparison,
    near,
    read_money,
    staked,
    still,
)
from conformance.checks.stream import LONG, LONG_SINCE
from conformance.checks.wallet import AMOUNT, EXCESS
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

# The first edition in which a refused unstake is followed in the balance.
REFUSED_SINCE = 4
# A cost so many times as large as what is taken is no matter of rounding.
FAR_ABOVE = 1.5
# How long a charge may take that comes at once elsewhere.
SETTLED_S = 2.0
# An unstake of so many times what is staked is one of too much.
HALF_MORE = 1.5
# Two such parts are more than the whole.
PART, HALF = 0.6, 0.5
# Amounts that are small ones if they are cut to 32 or 64 bits.
VAST = (4295.0, 18_446_744_073_710.0)
LOOK_S = 0.2
# So many generations are made one after another.
SEVERAL = 7
Body = dict[str, Json]


@requirement("NA-WALLET-023", "NA-WALLET-046")
def money_charged(context: Context) -> None:
    """POST /inference, short, long and with an early end; compare cost and loss of the balance."""
    _judge_charge(context, {"prompt": "Hello", "max_tokens": 3})
    _judge_charge(context, early(context))
    if context.edition >= LONG_SINCE:
        _judge_charge(context, {"prompt": "Hello", "max_tokens": LONG})
        _judge_repeated(context)
    if context.edition >= SEVENTH:
        _judge_several(context)


def _judge_several(context: Context) -> None:
    """Rule on generations one after another, of which most take their cost, and each at once.

    One that takes nothing may be charged with the next one.
    """
    account, exact, dear = context.target.second, 0, list[tuple[str, Answer]]()
    for turn in range(SEVERAL):
        found = taken(context, {"prompt": f"Hello, {turn}", "max_tokens": 2}, account)
        cost = lookup(found[0].json_object() or {}, "cost.amount") if found else []
        if found is None or not cost or not is_number(cost[0]):
            continue
        answer, lost = found
        if lost <= EXACT:
            return
        exact += lost <= float(cost[0]) + EXACT
        if abs(lost - 2 * float(cost[0])) <= EXACT:
            dear.append((f"the cost is {cost[0]:g}, and {lost:g} less is available", answer))
    if exact > SEVERAL // 2 and len(dear) > 1:
        why = f"{dear[0][0]}, {len(dear)} times in {SEVERAL}"
        context.fails("NA-WALLET-023", why, *(answer for _, answer in dear))


def _judge_repeated(context: Context) -> None:
    """Generate the same once more: where the first one was charged, so is the second.

    The same holds for one that a stop sequence ends, after one that nothing ends.
    """
    bodies = [{"prompt": "Hello once more", "max_tokens": 3 + turn} for turn in range(TRIES + 2)]
    _judge_free(context, [(body, body) for body in bodies], "the second time")
    if context.edition >= FOURTH:
        ended = early(context)
        whole = {name: value for name, value in ended.items() if name != "stop"}
        _judge_free(context, [(whole, ended)] * (TRIES + 2), "with a stop sequence")


def _judge_free(context: Context, pairs: list[tuple[Body, Body]], name: str) -> None:
    """Rule on the second of two generations, where the first is charged."""
    account, free = context.target.second, list[tuple[str, Answer, Answer]]()
    for pair in pairs:
        first, again = (taken(context, body, account) for body in pair)
        if first is None or again is None:
            continue
        cost = lookup(again[0].json_object() or {}, "cost.amount")
        if not cost or not is_number(cost[0]) or min(first[1], cost[0]) <= EXACT:
            # Free, or not settled at once.
            return
        if again[1] > EXACT:
            context.holds("NA-WALLET-046", first[0], again[0])
            return
        why = f"{name} the cost is {cost[0]:g}, and nothing is taken"
        free.append((why, first[0], again[0]))
    if len(free) >= TRIES:
        context.fails("NA-WALLET-046", *free[-1])


def _judge_charge(context: Context, body: dict[str, Json]) -> None:
    # A node may let its operator generate for nothing, so a second account is used if declared.
    account = context.target.second
    compared = Comparison(context)
    for _ in range(TRIES + 2):
        before = still(context, account)
        if before is None:
            continue
        answer = context.infer(body, credential=account)
        cost = lookup(answer.json_object() or {}, "cost.amount")
        if not answer.ok or not cost or not is_number(cost[0]):
            raise Skipped(f"POST /inference returned no cost, status {answer.status}")
        after = read_money(context, account)
        lost = before[0].available - after.available
        why = f"the cost is {cost[0]:g}, and {lost:g} less is available"
        # Nothing lost says nothing: the charge may be settled later, or be free.
        if abs(lost) > EXACT:
            held = lost <= float(cost[0]) + EXACT
            compared.note("NA-WALLET-023", held, why, before[0].answer, answer, after.answer)
            if context.edition >= REFUSED_SINCE:
                held = float(cost[0]) <= FAR_ABOVE * lost
                compared.note("NA-WALLET-046", held, why, before[0].answer, answer, after.answer)
        if compared.clean:
            break
    compared.conclude()


@requirement("NA-WALLET-049")
def stream_charged(context: Context) -> None:
    """POST /inference that ends early, without a stream and with one; compare what they take."""
    body, account = {**early(context), "max_tokens": LONG}, context.target.second
    compared = Comparison(context)
    for _ in range(TRIES + 2):
        plain, streamed = (
            taken(context, one, account, later=context.edition >= FIFTH)
            for one in (body, {**body, "stream": True})
        )
        if plain is None or streamed is None:
            continue
        if plain[1] <= EXACT or streamed[1] <= EXACT:
            raise Skipped("a charge is not settled at once")
        why = f"a stream takes {streamed[1]:g}, the same without one {plain[1]:g}"
        held = streamed[1] <= FAR_ABOVE * plain[1]
        compared.note("NA-WALLET-049", held, why, plain[0], streamed[0])
        if compared.clean:
            break
    compared.conclude()


def taken(
    context: Context, body: dict[str, Json], account: Credential, within_s: float = 0,
    *, later: bool = False,
) -> tuple[Answer, float] | None:  # fmt: skip
    """Generate; return the answer and what it took, or None if the balance does not stand still.

    So long something may take to be taken. ``later`` is with what the next readings show.
    """
    before = still(context, account)
    if before is None:
        return None
    answer = context.infer(body, credential=account)
    if not answer.ok:
        raise Skipped(f"POST /inference was answered with status {answer.status}")
    ends = time.monotonic() + within_s
    while True:
        lost = before[0].available - read_money(context, account).available
        if lost > EXACT or time.monotonic() >= ends:
            break
        time.sleep(LOOK_S)
    for _ in range(2 if later else 0):
        time.sleep(LOOK_S)
        lost = before[0].available - read_money(context, account).available
    return answer, lost


@requirement("NA-WALLET-033")
def money_charged_to(context: Context) -> None:
    """POST /inference with the second account's token, and look at the first account."""
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    first, second = context.target.valid, context.target.second
    compared, instead = Comparison(context), dict[float, tuple[Answer, ...]]()
    later = context.edition >= LONG_SINCE
    for turn in range(TRIES + 2):
        before = still(context, first, second)
        if before is None:
            continue
        # Of other lengths, so that an older charge is hardly of the same amount.
        body: Json = {"prompt": "Hello", "max_tokens": 3 + 2 * turn * later}
        answer = context.infer(body, credential=second)
        cost = lookup(answer.json_object() or {}, "cost.amount")
        if not answer.ok or not cost or not is_number(cost[0]) or cost[0] <= EXACT:
            raise Skipped(f"POST /inference returned no cost, status {answer.status}")
        after = [read_money(context, one) for one in (first, second)]
        lost = [a.available - b.available for a, b in zip(before, after, strict=True)]
        why = f"a cost of {cost[0]:g} to the second account; the first one has {lost[0]:g} less"
        same = abs(lost[0] - float(cost[0])) <= EXACT
        shown = (before[0].answer, answer, after[0].answer)
        # Until the second account has paid, a charge of the first may be an older one of its own.
        if lost[1] > EXACT:
            compared.note("NA-WALLET-033", not same, why, *shown)
        elif later and same and before[0].document != before[1].document:
            instead[float(cost[0])] = shown
        if compared.clean and not instead:
            break
    if len(instead) >= TRIES:
        why = f"{len(instead)} different costs to the second account were taken from the first one"
        context.fails("NA-WALLET-033", why, *list(instead.values())[-1])
    compared.conclude()
    if later:
        _judge_streams_charged_to(context)


def _judge_streams_charged_to(context: Context) -> None:
    """Stream with the second account's token: what is taken is not the first account's."""
    first, second = context.target.valid, context.target.second
    instead: list[tuple[Answer, ...]] = []
    for turn in range(TRIES):
        before = still(context, first, second)
        if before is None or before[0].document == before[1].document:
            return
        body: Json = {"prompt": "Hello", "max_tokens": 3 + 2 * turn, "stream": True}
        answer = context.infer(body, credential=second)
        after = [read_money(context, one) for one in (first, second)]
        lost = [b.available - a.available for b, a in zip(before, after, strict=True)]
        if not answer.ok or lost[0] <= EXACT or lost[1] > EXACT:
            return
        instead.append((before[0].answer, answer, after[0].answer, after[1].answer))
    why = f"each of {TRIES} streams of the second account was paid by the first one"
    context.fails("NA-WALLET-033", why, *instead[-1])


@requirement("NA-WALLET-024")
def money_unstaked_excess(context: Context) -> None:
    """POST /wallet/unstake more than the second account has staked."""
    if context.target.second_token is None:
        # Whoever gives what there is instead would end the operator's own stake.
        raise Skipped("the target declares no second_token")
    account = context.target.second
    held = read_money(context, account).staked
    _judge_excess(context, account, float(math.floor(held) + EXCESS))
    if context.edition >= FIFTH:
        if held < AMOUNT:
            staked(context, account)
        # By less than a half, and by a little, of what is staked then.
        for most in (HALF_MORE, None):
            held = read_money(context, account).staked
            amount = held + AMOUNT if most is None else held * most
            _judge_excess(context, account, round(amount, 4))
        for amount in VAST:
            _judge_excess(context, account, amount)
        _judge_twice(context, account)


def _judge_twice(context: Context, account: Credential) -> None:
    """Rule on two unstakes at the same moment, of more together than is staked."""
    before = read_money(context, account)
    amount = round(PART * before.staked, 6)
    if amount <= EXACT:
        return
    body: Json = {"amount": amount}

    def unstake(_: int) -> Answer:
        return context.api("POST", "/wallet/unstake", credential=account, json_body=body)

    with context.http.gate.holding(2), ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(unstake, range(2)))
    told = [lookup(one.json_object() or {}, "unstake.amount") for one in answers if one.ok]
    whole = sum(float(found[0]) for found in told if found and is_number(found[0]))
    after = read_money(context, account)
    # One of them may have been taken back.
    gained = after.pending + after.available - before.pending - before.available
    whole = gained if gained > EXACT else whole
    why = f"two unstakes at the same moment, of {before.staked:g}, are of {whole:g} together"
    held = whole < (PART + HALF) * before.staked
    context.judge("NA-WALLET-024", held, why, before.answer, *answers, after.answer)


def _judge_excess(context: Context, account: Credential, amount: float) -> None:
    before = read_money(context, account)
    if amount <= before.staked:
        return
    answer = context.api(
        "POST", "/wallet/unstake", credential=account, json_body={"amount": amount}
    )
    result = answer.json_object() or {}
    done = lookup(result, "unstake.amount")
    if answer.ok and result.get("success") is True:
        least = bool(done) and is_number(done[0]) and done[0] <= before.staked + EXACT
        why = f"{amount:g} of {before.staked:g} staked: status {answer.status}"
        context.judge("NA-WALLET-024", least, why, before.answer, answer)
    elif 400 <= answer.status < 500 or result.get("success") is False:
        context.holds("NA-WALLET-024", before.answer, answer)
        if context.edition >= REFUSED_SINCE:
            after = read_money(context, account)
            kept = near(context, after.staked, before.staked)
            left = f"{after.staked:g} of {before.staked:g} staked"
            why = f"the unstake of {amount:g} is refused, and leaves {left}"
            context.judge("NA-WALLET-024", kept, why, before.answer, answer, after.answer)
