"""Interface 2.1, 3 and 7.1: several stakes of one account, their terms, and one of too much.

What several stakes become together is not shown; that two places say the same of them is. As in
``money``, a difference is a violation only if every try shows it.
"""

import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from conformance.checks.history import newest
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
from conformance.checks.node_reads import day, judge_term
from conformance.checks.payments import require_budget
from conformance.checks.reading import resource_ids
from conformance.checks.wallet import AMOUNT, DAYS, EXCESS, FEW_DAYS, MEMO
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number

# Each longer than the one before it, and than any other stake of a run.
LONGER = (DAYS + 15, DAYS + 30)
# More days than a byte holds.
LONG = 300
# And more than a year has.
YEAR = 400
# Since then a shorter stake follows, which must not free what is locked for longer.
SHORTER_SINCE = 4
# Above what is available by so much that no reward of a moment covers it.
A_LITTLE = 10.0
# The smallest stake of which a half is more than a rounding.
COUNTS = 0.009
LARGER = 0.3
# Above a unit, with a part of one, where the budget is many times as much.
ABOVE, TIMES = 1.25, 6
# The first edition that asks for what is staked already, and looks at the receiver.
LOCKED_SINCE = 4


def _term(document: Json, of: str, key: str) -> Json:
    found = lookup(document, f"{of}.{key}")
    return found[0] if found else None


@requirement(
    "NA-WALLET-003", "NA-WALLET-027", "NA-WALLET-028", "NA-WALLET-029", "NA-WALLET-030",
    "NA-WALLET-045", "NA-WALLET-067", "NA-WALLET-068", "NA-WALLET-093", *resource_ids("stake"),
)  # fmt: skip
def stake_terms(context: Context) -> None:
    """POST /wallet/stake for longer, still longer and shorter, then /wallet/unstake a part."""
    account = context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    before = read_money(context, account)
    sums, starts, dates = before.staked, [], [date.min, date.min]
    longest = _locked_days(before)
    terms: tuple[int, ...] = (
        (FEW_DAYS, *LONGER, DAYS) if context.edition >= SHORTER_SINCE else LONGER
    )
    if context.edition >= FIFTH:
        terms = (FEW_DAYS, *LONGER, LONG, DAYS)
    if context.edition >= SIXTH:
        terms = (FEW_DAYS, *LONGER, LONG, YEAR, DAYS)
    for days in terms:
        try:
            answer, result, amount = staked(context, account, days)
        except Skipped:
            if days in (FEW_DAYS, YEAR):
                # For how few days a stake may be is not said, nor for how many.
                continue
            raise
        sums += amount
        named, begins = (
            _term(result, "stake", "duration_days"),
            _term(result, "stake", "start_date"),
        )
        starts.append((answer, begins))
        if is_int(named):
            why = f"duration_days is {named} for a stake of {days} days"
            # A stake that is merged with others may be locked for longer.
            context.judge("NA-WALLET-027", named >= days, why, answer)
            if days >= longest:
                context.judge("NA-WALLET-045", named <= days, why, before.answer, answer)
        stake = result.get("stake")
        if context.edition >= FOURTH and days >= longest and isinstance(stake, dict):
            judge_term(context, "NA-WALLET-003", stake, answer)
        elif context.edition >= FIFTH and isinstance(stake, dict):
            judge_term(context, "NA-WALLET-068", stake, answer)
        longest = max(longest, days)
        after = read_money(context, account)
        staking = after.document.get("staking")
        if context.edition >= SIXTH and days >= longest and isinstance(staking, dict):
            # A shorter one behind it may be what the duration is of.
            judge_term(context, "NA-WALLET-093", staking, after.answer)
        ends = day(_term(result, "stake", "unlock_date"))
        dates += [ends] if ends else []
        _judge_balance(context, sums, max(dates), answer, after)
    for each in (account, context.target.valid):
        # What has just been staked may be locked; the operator may have an older stake.
        left = _judge_part(context, each, starts[-1])
        if left is None:
            continue
        if context.edition >= SHORTER_SINCE and each is account:
            # A part no larger than the smallest stake, so that all of them but one are left.
            _judge_balance(context, left.staked, sorted(dates)[-2], left.answer, left)
        break
    if context.edition >= FIFTH:
        _judge_backwards(context, account, amount)


def _judge_backwards(context: Context, account: Credential, amount: float) -> None:
    """Rule on a stake for less than no time, of an amount that was accepted before."""
    require_budget(context, amount)
    body: Json = {"amount": amount, "duration_days": -1}
    answer = post(context, "/wallet/stake", body, account)
    taken = answer.ok and (answer.json_object() or {}).get("success") is True
    if taken:
        context.budget.charge(amount)
    if answer.ok or 400 <= answer.status < 500:
        context.judge("NA-WALLET-067", not taken, f"a stake of {brief(body)} is made", answer)


def _locked_days(before: Money) -> float:
    """Return for how many days more something is locked; no end is known of infinity."""
    if before.staked == 0:
        return 0
    ends = day(_term(before.document, "staking", "unlock_date"))
    days = _term(before.document, "staking", "duration_days")
    if ends is None or not is_int(days):
        return math.inf
    return max(int(days), (ends - datetime.now(UTC).date()).days)


def _judge_balance(
    context: Context, sums: float, locked: date, answer: Answer, after: Money
) -> None:
    """Rule on the staking of the balance, if it is of all that is staked.

    ``locked`` is the last date of all stakes so far, ``date.min`` if they name none.
    """
    amount = _term(after.document, "staking", "amount")
    ends = day(_term(after.document, "staking", "unlock_date"))
    if is_number(amount) and near(context, float(amount), sums) and ends and locked > date.min:
        why = (
            f"the balance unlocks {amount:g} on {ends}, with a stake that is locked until {locked}"
        )
        context.judge("NA-WALLET-028", ends >= locked, why, answer, after.answer)


def _judge_part(
    context: Context, account: Credential, started: tuple[Answer, Json]
) -> Money | None:
    """Unstake a part; return the balance afterwards, or None if the node did not."""
    before = still(context, account)
    if before is None or before[0].staked < 2 * AMOUNT:
        return None
    answer = post(context, "/wallet/unstake", {"amount": AMOUNT}, account)
    result = answer.json_object() or {}
    if not answer.ok or result.get("success") is not True:
        return None
    after = read_money(context, account)
    why = f"{before[0].staked:g} staked, {AMOUNT:g} unstaked, {after.staked:g} left"
    held = near(context, after.staked, before[0].staked - AMOUNT)
    context.judge("NA-WALLET-029", held, why, before[0].answer, answer, after.answer)
    ready = day(_term(result, "unstake", "available_date"))
    days = _term(result, "unstake", "cooldown_days")
    begins = day(started[1])
    if ready and begins and is_int(days) and 0 <= days < 36500:
        today = ready - timedelta(days=int(days))
        why = f"a stake begins on {begins}, an unstake of the same moment on {today}"
        context.judge("NA-WALLET-030", begins <= today, why, started[0], answer)
        rest = day(_term(after.document, "staking", "start_date"))
        if rest and after.staked > EXACT:
            why = f"the rest of a stake begins on {rest}, after an unstake on {today}"
            context.judge("NA-WALLET-030", rest <= today, why, answer, after.answer)
    return after


@requirement("NA-WALLET-031", "NA-WALLET-014", "NA-WALLET-081")
def stake_taken(context: Context) -> None:
    """POST /wallet/stake amounts that are large beside any fee, and compare the balance."""
    account = context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    compared = Comparison(context)
    for _ in range(TRIES):
        before = still(context, account)
        if before is None:
            continue
        least = LARGER
        ample = min(before[0].available, context.budget.left) > TIMES * ABOVE
        if context.edition >= SIXTH and ample:
            least = ABOVE
        if before[0].available < 4 * LARGER or context.budget.left < LARGER:
            raise Skipped("too little is available, or may be spent")
        answer, _, amount = staked(context, account, least=least)
        after = read_money(context, account)
        taken = before[0].available - after.available
        why = f"staking {amount:g} took {taken:g} from what is available"
        # What staking costs is not said, but it is not the amount once more.
        held = amount - EXACT <= taken <= 1.9 * amount
        compared.note("NA-WALLET-031", held, why, before[0].answer, answer, after.answer)
        if context.edition >= SIXTH:
            more = after.staked - before[0].staked
            why = f"{before[0].staked:g} staked, then {amount:g} more, now {after.staked:g}"
            held = near(context, more, amount)
            compared.note("NA-WALLET-014", held, why, before[0].answer, answer, after.answer)
        if compared.clean:
            break
    compared.conclude()


@requirement("NA-ERR-021", "NA-ERR-022", "NA-ERR-023", "NA-ERR-026")
def refused_exactly(context: Context) -> None:
    """POST /wallet/send and /wallet/stake a little more than is available, and compare."""
    account = context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    address = read_money(context, context.target.valid).document.get("address")
    # A small one is accepted, so that only the amount of a large one is at fault.
    staked(context, account, DAYS)
    # Each case for itself: that one takes nothing says nothing of the other.
    cases = [
        _TooMuch(Comparison(context), "/wallet/send", {"to": address, "memo": MEMO}),
        _TooMuch(Comparison(context), "/wallet/stake", {"duration_days": DAYS}),
    ]
    if context.edition >= LOCKED_SINCE:
        _judge_to_itself(context, account)
        cases.append(replace(cases[1], seen=Comparison(context), locked=True))
    for _ in range(TRIES + 2):
        for case in cases:
            before = still(context, account)
            if before is None or (case.locked and before[0].staked < COUNTS):
                continue
            if case.locked and not all(one.seen.clean for one in cases):
                # What is available may be another sum than the one that is shown.
                continue
            if before[0].available <= 0:
                raise Skipped("the second account has nothing available")
            if case.is_granted(context, account, before[0]):
                return
        if all(one.seen.clean for one in cases):
            break
    for case in cases:
        case.seen.conclude()


def _judge_to_itself(context: Context, account: Credential) -> None:
    """Rule on a transfer to the account itself of more than it has; it may be refused anyhow."""
    before = read_money(context, account)
    amount = float(math.floor(before.available) + EXCESS)
    body: Json = {"to": before.document.get("address"), "amount": amount, "memo": MEMO}
    answer = post(context, "/wallet/send", body, account)
    if answer.ok:
        why = f"{amount:g} of {before.available:g} to the account itself: status {answer.status}"
        context.fails("NA-ERR-021", why, before.answer, answer)


@dataclass(frozen=True)
class _TooMuch:
    """A request for more than an account has."""

    seen: Comparison
    path: str
    fields: dict[str, Json]
    locked: bool = False
    """Whether it would be covered if what is staked already counted too."""

    def is_granted(self, context: Context, account: Credential, before: Money) -> bool:
        """Ask, and compare. True if so much was staked without any doubt, which is judged."""
        first = context.target.valid
        receiver = still(context, first) if context.edition >= LOCKED_SINCE else None
        amount = float(math.floor(before.available + A_LITTLE))
        if self.locked:
            amount = round(before.available + before.staked / 2, 4)
        known = self._sends(context, account)
        answer = post(context, self.path, {"amount": amount, **self.fields}, account)
        after = read_money(context, account)
        shown = (before.answer, answer, after.answer)
        why = f"{amount:g} of {before.available:g} on {self.path}: status {answer.status}"
        if self.path == "/wallet/stake" and answer.ok and _overdrawn(before, after, amount):
            context.fails("NA-ERR-022", f"{why}, and nothing came in meanwhile", *shown)
            return True
        if self.path == "/wallet/stake":
            self.seen.note("NA-ERR-022", answer.status == 402, why, *shown)
        if answer.status == 402:
            lost = before.available - after.available
            why = f"{why}, and {lost:g} less is available"
            self.seen.note("NA-ERR-023", lost <= EXACT, why, *shown)
            new = self._sends(context, account) - known
            why = f"{why}, {after.staked - before.staked:g} more is staked, and {len(new)} sends"
            held = after.staked - before.staked <= EXACT and not new
            self.seen.note("NA-ERR-026", held, f"{why} are new in the history", *shown)
            if receiver:
                later = read_money(context, first)
                gained = later.available - receiver[0].available
                why = f"{amount:g} to another account: status 402, and that has {gained:g} more"
                shown = (receiver[0].answer, answer, later.answer)
                self.seen.note("NA-ERR-021", gained <= EXACT, why, *shown)
        return False

    def _sends(self, context: Context, account: Credential) -> set[str]:
        """Return the ids of what the history has as sent to the receiver."""
        if "to" not in self.fields or context.edition < LOCKED_SINCE:
            return set()
        rows = [row for row in newest(context, account)[2] if row.get("type") == "send"]
        return {str(row.get("id")) for row in rows if row.get("to") == self.fields["to"]}


def _overdrawn(before: Money, after: Money, amount: float) -> bool:
    """Return whether so much was staked, and no income can have made up for what was missing."""
    income = after.available + after.staked - before.available - before.staked
    return after.staked >= before.staked + amount - EXACT and income <= EXACT
