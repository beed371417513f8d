"""Interface 2.1 and 3: unstakes, what waits for their date, and what is left of a stake."""

import time

from conformance.checks.money import (
    EXACT,
    TRIES,
    Comparison,
    Money,
    near,
    post,
    read_money,
    staked,
    still,
)
from conformance.checks.payments import require_budget
from conformance.checks.wallet import AMOUNT, AMOUNTS, DAYS
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import is_number

# The days of a cooldown are not over after this time.
SOON_S = 2.0
# So many unstakes one after another, of a stake that is more than they are.
UNSTAKES, STAKES_LEFT = 3, 7
# So much of an unstake is no rounding of it.
WHOLE = 0.5
# And so much is all of it.
WHOLLY = 0.999
# What a refusal ends with that is about the body or the account.
EARLY = "NA-WALLET-019"
REFUSED = (400, 402, 403, 409, 422)
# The first edition that looks for a part of an unstake before its date, and at the second account
# where the first one has nothing staked.
PARTS_SINCE = 4


@requirement("NA-WALLET-018", EARLY)
def money_unstaked(context: Context) -> None:
    """POST /wallet/unstake, and look whether the money waits for its date."""
    account = _with_stake(context)
    compared = Comparison(context)
    for _ in range(TRIES + 2):
        before = still(context, account)
        if before is None:
            continue
        if before[0].staked < AMOUNT:
            raise Skipped("nothing is staked")
        answer, amount = _unstaked(context, account, before[0].staked)
        if amount == 0:
            after = read_money(context, account)
            kept = near(context, after.staked, before[0].staked)
            why = f"success is false, but {before[0].staked - after.staked:g} less is staked"
            compared.note("NA-WALLET-018", kept, why, before[0].answer, answer, after.answer)
            continue
        after = read_money(context, account)
        shown = (before[0].answer, answer, after.answer)
        compared.note("NA-WALLET-018", near(context, after.staked, before[0].staked - amount),
                      f"{before[0].staked:g} staked, then {amount:g} less, now {after.staked:g}",
                      *shown)  # fmt: skip
        days = lookup(answer.json_object() or {}, "unstake.cooldown_days")
        if days and is_number(days[0]) and days[0] > 0:
            time.sleep(SOON_S)
            later = read_money(context, account)
            early = max(after.available, later.available) - before[0].available
            if context.edition >= PARTS_SINCE and EXACT < early < amount - EXACT:
                # A part of it, or income that has nothing to do with it, of which more comes then.
                time.sleep(SOON_S)
                if read_money(context, account).available > later.available:
                    continue
                early = amount
            why = f"of {amount:g} something became available within {SOON_S:g} s"
            compared.note(EARLY, early < amount - EXACT, why, *shown, later.answer)
        if compared.clean:
            break
    compared.conclude()


def _with_stake(context: Context) -> Credential:
    """Return the first account, or the second one with a stake where the first has none."""
    account, other = context.target.valid, context.target.second
    none = read_money(context, account).staked < AMOUNT
    if none and context.edition >= PARTS_SINCE and context.target.second_token is not None:
        staked(context, other, least=STAKES_LEFT * AMOUNT)
        return other
    return account


def _unstaked(context: Context, account: Credential, held: float) -> tuple[Answer, float]:
    for amount in [amount for amount in AMOUNTS if amount <= held]:
        answer = post(context, "/wallet/unstake", {"amount": amount}, account)
        result = answer.json_object() or {}
        if answer.ok and result.get("success") is True:
            return answer, amount
        if answer.ok and result.get("success") is False and "unstake" in result:
            return answer, 0.0
        if answer.status not in (400, 409, 422):
            break
    raise Skipped("no small amount is unstaked; the document does not say which are")


@requirement("NA-WALLET-055", "NA-WALLET-059", "NA-WALLET-069", "NA-WALLET-094", EARLY)
def unstakes_pending(context: Context) -> None:
    """POST /wallet/unstake several times, and look whether each is pending beside the others."""
    account = context.target.second
    try:
        first, _, accepted = staked(context, account, least=STAKES_LEFT * AMOUNT)
    except Skipped:
        if context.edition >= SIXTH and account in context.service.staked:
            _judge_accepted(context, account, *context.service.staked[account])
        raise
    rises, alone, gone, shown = list[float](), list[bool](), list[float](), list[Answer]()
    at_once, waits = list[float](), True
    for many in range(1, UNSTAKES + 1):
        amount, before = many * AMOUNT, still(context, account)
        answer = post(context, "/wallet/unstake", {"amount": amount}, account)
        if before is None or not answer.ok:
            raise Skipped(f"the balance moves, or an unstake ends with status {answer.status}")
        after = read_money(context, account)
        days = lookup(answer.json_object() or {}, "unstake.cooldown_days")
        waits = waits and bool(days) and is_number(days[0]) and days[0] > 0
        # What is available at once is pending no more.
        at_once.append(after.available - before[0].available - amount)
        more = after.pending + after.available - before[0].pending - before[0].available
        rises.append(round(more / amount, 3))
        alone.append(abs(after.pending - amount) <= EXACT)
        gone.append(before[0].staked - after.staked - amount)
        shown += [before[0].answer, answer, after.answer]
    if context.edition >= FIFTH and max(map(abs, gone)) <= EXACT:
        why = f"of {UNSTAKES} unstakes nothing is pending or available, and nothing staked any more"
        nowhere = max(rises) <= 0 and not any(alone)
        if context.edition >= SEVENTH and not nowhere:
            nowhere = max(rises) < WHOLLY and not all(alone)
            why = f"of {UNSTAKES} unstakes only these shares are pending or available: {rises}"
        context.judge("NA-WALLET-069", not nowhere, why, *shown)
    if context.edition >= SEVENTH and waits:
        why = f"of {UNSTAKES} unstakes all is available at once, before their cooldown"
        context.judge(EARLY, max(map(abs, at_once)) > EXACT, why, *shown)
    if rises[0] < WHOLE and not all(alone):
        raise Skipped("what is unstaked is not shown as pending")
    why = f"of {UNSTAKES} unstakes one after another these shares are pending besides: {rises}"
    held = max(rises[1:]) >= WHOLE and not all(alone)
    context.judge("NA-WALLET-055", held, why, *shown)
    if context.edition >= SIXTH:
        _judge_accepted(context, account, first, accepted)
    _stake_beside(context, account)


def _judge_accepted(context: Context, account: Credential, first: Answer, amount: float) -> None:
    """Rule on a stake while something is pending, of an amount that was accepted before."""
    before = read_money(context, account)
    if before.pending < EXACT or before.available < 2 * amount or context.budget.left < amount:
        return
    answer = post(context, "/wallet/stake", {"amount": amount, "duration_days": DAYS}, account)
    if answer.ok:
        context.budget.charge(amount)
    if answer.ok or answer.status in REFUSED:
        why = f"a stake of {amount:g} is accepted, then some of it unstaked, and another of"
        why = f"{why} {amount:g} ends with {answer.status} while {before.pending:g} are pending"
        context.judge("NA-WALLET-094", answer.ok, why, first, before.answer, answer)


def _stake_beside(context: Context, account: Credential) -> None:
    """Stake while something is pending, and compare what is available before and after it."""
    compared, amount = Comparison(context), AMOUNT
    for _ in range(TRIES + (context.edition >= FIFTH)):
        if context.edition >= FIFTH and read_money(context, account).pending < amount:
            post(context, "/wallet/unstake", {"amount": amount}, account)
        before = still(context, account)
        if before is None or before[0].pending < AMOUNT:
            continue
        if before[0].available < 2 * AMOUNT:
            raise Skipped("too little is available")
        answer, _, amount = staked(context, account)
        if before[0].pending < amount and context.edition >= FIFTH:
            # Too little to be taken instead; the next try has enough.
            continue
        after = read_money(context, account)
        taken = before[0].available - after.available
        why = f"of {amount:g} that are staked {taken:g} are taken from what is available"
        why = f"{why}, and {before[0].pending - after.pending:g} from what is pending"
        shown = before[0].answer, answer, after.answer
        compared.note("NA-WALLET-059", taken >= amount * WHOLE, why, *shown)
        if compared.clean:
            break
    compared.conclude()


@requirement("NA-WALLET-058", "NA-WALLET-018", EARLY)
def unstaked_whole(context: Context) -> None:
    """POST /wallet/unstake all that the second account has staked, or all but a little."""
    account = context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    staked(context, account)
    before = still(context, account)
    if before is None:
        raise Skipped("the balance moves")
    whole = before[0].staked
    require_budget(context, whole)
    answer = post(context, "/wallet/unstake", {"amount": whole}, account)
    if answer.ok:
        context.budget.charge(whole)
        context.holds("NA-WALLET-058", before[0].answer, answer)
        if context.edition >= SIXTH:
            _judge_whole(context, before[0], answer)
        return
    # Less than any stake, so that none is left that is locked for longer.
    part = round(whole - AMOUNT / 2, 6)
    control = post(context, "/wallet/unstake", {"amount": part}, account)
    if not control.ok:
        raise Skipped(f"an unstake of {part:g} is refused as well, status {control.status}")
    context.budget.charge(part)
    why = f"an unstake of all the {whole:g} that are staked ends with {answer.status}"
    why = f"{why}, one of {part:g} is made"
    context.judge("NA-WALLET-058", False, why, before[0].answer, answer, control)


def _judge_whole(context: Context, before: Money, answer: Answer) -> None:
    """Rule on the balance when all that was staked is unstaked."""
    result = answer.json_object() or {}
    told, days = lookup(result, "unstake.amount"), lookup(result, "unstake.cooldown_days")
    whole = before.staked
    if result.get("success") is not True or not told or not near(context, told[0], whole):
        return
    after = read_money(context, context.target.second)
    for _ in range(TRIES):
        if near(context, after.staked, 0):
            break
        time.sleep(SOON_S / TRIES)
        after = read_money(context, context.target.second)
    why = f"{whole:g} staked, all of it unstaked, and {after.staked:g} is staked"
    shown = (before.answer, answer, after.answer)
    context.judge("NA-WALLET-018", near(context, after.staked, 0), why, *shown)
    early = after.available - before.available
    if days and is_number(days[0]) and days[0] > 0:
        why = f"of {whole:g}, all that was staked, {early:g} is available at once"
        context.judge(EARLY, early < whole - EXACT, why, *shown)
