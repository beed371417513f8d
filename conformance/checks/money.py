"""Interface 2.1, 3 and 4.1: what transfers, stakes and charges do to balances and histories.

The checks need nothing that the document leaves open: they compare what a target reports in one
place with what it reports in another. A balance may change meanwhile, by rewards and settlements,
so that each comparison counts only on a balance that stood still before, and a difference is a
violation only if it shows three times.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from conformance.checks import wallet
from conformance.checks.clock import judge_now
from conformance.checks.history import newest
from conformance.checks.node_reads import BALANCE
from conformance.checks.wallet import AMOUNT, AMOUNTS, DAYS, MEMO, STAKES
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Shown, Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_number

TRIES = 3
# More than a whole unit.
UNIT = 1.5
# One transfer does not show what every second one does.
ENOUGH = 2
SOONEST_S, SETTLES_AFTER_S = 0.05, 0.2
BACK_AFTER_S = 1.2
EXACT = 1e-6
# More than this is no rounding, however much there is.
ROUNDING = AMOUNT / 20
# The first edition that looks at the receiver of a transfer to another account, and at small
# amounts in large accounts.
PARTS_SINCE = 4


@dataclass(frozen=True)
class Money:
    """What one account has, and the answer that says so."""

    answer: Answer
    document: dict[str, Json]
    available: float
    staked: float
    pending: float
    total: float

    @property
    def figures(self) -> tuple[float, ...]:
        """The numbers, to compare two readings."""
        return self.available, self.staked, self.pending, self.total


def read_money(context: Context, credential: Credential) -> Money:
    """GET the balance of an account; raise `Skipped` without one."""
    return money_in(context.api("GET", BALANCE.path, credential=credential))


def money_in(answer: Answer) -> Money:
    """Return the balance in an answer; raise `Skipped` if it has none."""
    document = answer.json_object() if answer.ok else None
    found = [
        lookup(document, f"balances.{key}") for key in ("available", "staked", "pending", "total")
    ]
    if document is None or not all(values and is_number(values[0]) for values in found):
        raise Skipped(f"GET /wallet/balance returned no balance, status {answer.status}")
    return Money(answer, document, *(float(values[0]) for values in found))


def still(context: Context, *credentials: Credential) -> list[Money] | None:
    """Return the balances if two readings of them are alike, else None."""
    before = [read_money(context, credential) for credential in credentials]
    after = [read_money(context, credential) for credential in credentials]
    same = [one.figures for one in before] == [one.figures for one in after]
    return after if same else None


def near(context: Context, found: float, expected: float) -> bool:
    """Whether two amounts are equal but for rounding."""
    slack = EXACT * max(1.0, abs(expected))
    # An account may have so much that all the suite sends is a rounding of it.
    if context.edition >= PARTS_SINCE:
        slack = min(slack, ROUNDING)
    return abs(found - expected) <= slack


def eventually(hold: Callable[[], bool], within_s: float | None = None) -> bool:
    """Return whether it holds within some time, that in which a transfer is listed by default."""
    deadline = time.monotonic() + (wallet.LISTED_WITHIN_S if within_s is None else within_s)
    pause_s = SOONEST_S
    while not hold():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, SETTLES_AFTER_S)
    return True


class Comparison:
    """Findings that count as violations only when every try has them."""

    def __init__(self, context: Context) -> None:
        """Begin without any."""
        self._context = context
        self._wrong: dict[str, list[tuple[str, tuple[Shown, ...]]]] = {}
        self._held: dict[str, tuple[Shown, ...]] = {}

    def note(self, ident: str, held: bool, why: str, *shown: Shown) -> None:
        """Note the outcome of one try."""
        if held:
            self._held.setdefault(ident, shown)
        else:
            self._wrong.setdefault(ident, []).append((why, shown))

    @property
    def clean(self) -> bool:
        """Whether the last tries have shown nothing wrong."""
        return not set(self._wrong) - set(self._held)

    def conclude(self) -> None:
        """Record what all tries together show."""
        for ident, shown in self._held.items():
            self._context.holds(ident, *shown)
        for ident, tries in self._wrong.items():
            if ident not in self._held and len(tries) >= TRIES:
                why, shown = tries[-1]
                self._context.fails(ident, why, *shown)


def post(context: Context, path: str, body: Json, credential: Credential) -> Answer:
    """POST a body for an account, whatever is left of the budget."""
    return context.api("POST", path, credential=credential, json_body=body)


def _pay(context: Context, path: str, body: Json, credential: Credential) -> Answer:
    if context.budget.exhausted:
        raise context.budget.used_up()
    return post(context, path, body, credential)


@requirement(
    "NA-WALLET-001",
    "NA-WALLET-010",
    "NA-WALLET-011",
    "NA-WALLET-012",
    "NA-WALLET-013",
    "NA-WALLET-034",
    "NA-ROUTE-006",
    "GEN-019",
)
def money_sent(context: Context) -> None:
    """POST /wallet/send to the second account, and follow it through both balances and lists."""
    first, second = context.target.valid, context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    compared, free, counted = Comparison(context), list[Answer](), 0
    for _ in range(TRIES + 2):
        # Of the first one alone, unless it has come back.
        waits = context.edition < SIXTH or not counted or bool(free)
        counted += _send_once(context, compared, free, (first, second), waits=waits)
        if counted >= ENOUGH and compared.clean and not free:
            break
    if len(free) > 1:
        why = f"{len(free)} of {counted} transfers were received, and took nothing"
        context.fails("NA-WALLET-010", why, *free)
    compared.conclude()


def _send_once(
    context: Context, compared: Comparison, free: list[Answer],
    accounts: tuple[Credential, Credential], *, waits: bool,
) -> bool:  # fmt: skip
    """Send once; return whether the balances stood still, so that the try counts.

    A transfer that was received and took nothing is added to ``free``, where it `waits` for it.
    """
    first, second = accounts
    before = still(context, first, second)
    if before is None:
        return False
    payer, payee = before
    known = {str(row.get("id")) for row in newest(context)[2]}
    address, own = payee.document.get("address"), payer.document.get("address")
    if not isinstance(address, str) or address == own or payer.available < 3 * AMOUNT:
        raise Skipped("there are no two accounts, or too little is available")
    if context.budget.left < AMOUNT:
        raise context.budget.used_up()
    sent = _pay(context, "/wallet/send", {"to": address, "amount": AMOUNT, "memo": MEMO}, first)
    if sent.status in (400, 403, 422):
        body = {"to": address, "amount": AMOUNTS[-1], "memo": MEMO}
        large = _pay(context, "/wallet/send", body, first)
        if large.status in (400, 403, 422) and payer.available > 2 * AMOUNTS[-1]:
            why = f"status {large.status} to a transfer as documented"
            context.wrong("NA-ROUTE-006", why, sent, large)
    result = sent.json_object()
    if not sent.ok or result is None:
        raise Skipped(f"POST /wallet/send was answered with status {sent.status}")
    fee = result.get("fee")
    cost = AMOUNT + (float(fee) if is_number(fee) else 0.0)
    context.budget.charge(cost)
    named = result.get("from")
    why = f"from is {brief(named)}, the account is {brief(own)}"
    compared.note("NA-WALLET-013", named in (own, None), why, sent)
    if context.edition >= PARTS_SINCE:
        receiver = result.get("to")
        why = f"to is {brief(receiver)} for a transfer to {brief(address)}"
        compared.note("NA-WALLET-001", receiver in (address, None), why, sent)
    now: dict[str, Money] = {}

    def arrived() -> bool:
        now["payer"], now["payee"] = read_money(context, first), read_money(context, second)
        return near(context, now["payer"].available, payer.available - cost) and near(
            context, now["payee"].available, payee.available + AMOUNT)  # fmt: skip

    eventually(arrived)
    left, got = now["payer"], now["payee"]
    less = (payer.available - left.available, payer.total - left.total)
    compared.note("NA-WALLET-010", near(context, less[0], cost) and near(context, less[1], cost),
                  f"sending {cost:g} took {less[0]:g} of available and {less[1]:g} of total",
                  payer.answer, sent, left.answer)  # fmt: skip
    if waits and context.edition >= PARTS_SINCE and got.available > payee.available:
        # It may also come back.
        time.sleep(BACK_AFTER_S)
        later = read_money(context, first)
        taken = (payer.available - later.available, payer.total - later.total)
        if max(map(abs, taken)) <= EXACT:
            free.append(sent)
    compared.note("NA-WALLET-011", near(context, got.available, payee.available + AMOUNT),
                  f"{payee.available:g} before receiving {AMOUNT:g}, {got.available:g} afterwards",
                  payee.answer, sent, got.answer)  # fmt: skip
    _follow_listed(context, compared, sent, result, address, cost)
    answer, _, rows = newest(context)
    new = [
        row for row in rows
        if row.get("type") == "send" and row.get("to") == address
        and str(row.get("id")) not in known
    ]  # fmt: skip
    if new:
        why = f"one transfer is listed as {len(new)} sends: {brief(new, 160)}"
        compared.note("NA-WALLET-034", len(new) == 1, why, sent, answer)
    return True


def _follow_listed(
    context: Context, compared: Comparison, sent: Answer, result: dict[str, Json], address: str,
    cost: float,
) -> None:  # fmt: skip
    ident = result.get("transaction_id")
    listed: dict[str, Any] = {}

    def found() -> bool:
        listed["answer"], _, rows = newest(context)
        listed["rows"] = [row for row in rows if row.get("id") == ident]
        return bool(listed["rows"])

    eventually(found)
    rows = listed["rows"]
    good = len(rows) == 1 and rows[0].get("type") == "send" and rows[0].get("to") == address
    # The document does not say whether the entry includes the fee.
    amount = rows[0].get("amount") if rows else None
    fits = is_number(amount) and (near(context, amount, -AMOUNT) or near(context, amount, -cost))
    if rows:
        judge_now(context, "timestamp", rows[0].get("timestamp"), listed["answer"])
    why = f"a send of {AMOUNT:g} to {brief(address)} is listed as {brief(rows, 160)}"
    compared.note("NA-WALLET-012", good and fits, why, sent, listed["answer"])


def staked(
    context: Context, credential: Credential, days: int = DAYS, least: float = AMOUNT
) -> tuple[Answer, dict[str, Json], float]:
    """Stake the smallest amount that is accepted, ``least`` or more."""
    amounts = (least, *(amount for amount in STAKES if amount > least))
    for amount in (amount for amount in amounts if amount <= context.budget.left):
        body = {"amount": amount, "duration_days": days}
        answer = _pay(context, "/wallet/stake", body, credential)
        result = answer.json_object() or {}
        if answer.ok and result.get("success") is True:
            context.budget.charge(amount)
            context.service.staked.setdefault(credential, (answer, amount))
            return answer, result, amount
        if answer.status not in (400, 409, 422):
            break
    left = context.budget.left
    raise Skipped(f"no stake of up to {left:g}, what is left of the budget, is accepted")


def stake_unit(context: Context, credential: Credential) -> None:
    """Have more than a whole unit staked, where the budget allows it.

    A reader may take a unit for what names no amount, and of too little nothing is unstaked.
    """
    if context.budget.left > UNIT and read_money(context, credential).staked < UNIT:
        with suppress(Skipped):
            staked(context, credential, least=UNIT)


@requirement(
    "NA-WALLET-014", "NA-WALLET-015", "NA-WALLET-016", "NA-WALLET-017", "NA-WALLET-043"
)  # fmt: skip
def money_staked(context: Context) -> None:
    """POST /wallet/stake, and compare its answer with the balance before and after."""
    _judge_staked(context, DAYS)
    if context.edition >= SEVENTH:
        # For how few days a stake may be is not said.
        with suppress(Skipped):
            _judge_staked(context, wallet.FEW_DAYS)


def _judge_staked(context: Context, days: int) -> None:
    account = context.target.second
    compared = Comparison(context)
    for _ in range(TRIES + 2):
        before = still(context, account)
        if before is None:
            continue
        if before[0].available < 2 * AMOUNT:
            raise Skipped("too little is available")
        answer, result, amount = staked(context, account, days)
        _follow_stake(context, compared, before[0], answer, result, amount, days)
        if compared.clean:
            break
    compared.conclude()


def _follow_stake(
    context: Context, compared: Comparison, before: Money, answer: Answer,
    result: dict[str, Json], amount: float, days: int,
) -> None:  # fmt: skip
    now: dict[str, Money] = {}
    account = context.target.second

    def arrived() -> bool:
        now["after"] = read_money(context, account)
        return near(context, now["after"].staked, before.staked + amount)

    eventually(arrived)
    after = now["after"]
    shown = (before.answer, answer, after.answer)
    why = f"{before.staked:g} staked, then {amount:g} more, now {after.staked:g}"
    compared.note("NA-WALLET-014", near(context, after.staked, before.staked + amount), why, *shown)
    more = after.pending - before.pending
    why = f"staking {amount:g} made {more:g} more pending"
    compared.note("NA-WALLET-043", abs(more - amount) > EXACT or amount <= EXACT, why, *shown)
    # The document does not say what staking costs beyond the amount.
    spent = before.available - after.available
    compared.note("NA-WALLET-015", amount - EXACT <= spent <= amount + 2 * AMOUNT,
                  f"staking {amount:g} took {spent:g} from what is available", *shown)  # fmt: skip
    told = [lookup(result, f"new_balance.{key}") for key in ("available", "staked")]
    if all(found and is_number(found[0]) for found in told):
        both = near(context, told[0][0], after.available) and near(
            context, told[1][0], after.staked
        )
        why = f"new_balance is {brief(told)}, the balance has {after.figures}"
        compared.note("NA-WALLET-016", both, why, *shown)
    in_force = lookup(after.document, "staking.amount")
    if in_force and is_number(in_force[0]):
        reported = lookup(result, "stake.amount")
        parts = [in_force[0], *(value for value in reported if is_number(value))]
        fits = all(amount - EXACT <= part <= after.staked + EXACT for part in parts)
        if before.staked == 0:
            fits = fits and lookup(result, "stake.duration_days") in ([], [days])
        compared.note("NA-WALLET-017", fits,
                      f"amounts {brief(parts)} after a stake of {amount:g} for {days} days, with"
                      f" {after.staked:g} staked", *shown)  # fmt: skip
