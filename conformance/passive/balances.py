"""Interface 2.1, 3 and 7.1: what the balances, stakes, unstakes and 402s of a whole run say.

A 402 says what is available, which the balances before and after it show, if nothing has moved
between them. A stake and an unstake say for how long, whichever of them it is. What the total of a
balance is made of is not said, but it is the same in each balance.
"""

import math
import threading
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from conformance.findings import Findings
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number
from conformance.times import date_fault

DETAILS, MADE_OF, LOCKED, WHOLE = "NA-ERR-020", "NA-WALLET-080", "NA-WALLET-027", "NA-WALLET-002"
COOLDOWN, UNSTAKED, TERM = "ST-005", "NA-WALLET-004", "NA-WALLET-081"
IDS = frozenset({DETAILS, MADE_OF, LOCKED, WHOLE, COOLDOWN, UNSTAKED, TERM})
API = "/api/v1"
SEND, STAKE, UNSTAKE = (f"{API}/wallet/{name}" for name in ("send", "stake", "unstake"))
BALANCE, INFERENCE = f"{API}/wallet/balance", f"{API}/inference"
# These are paid out of what is available. What a 402 to an unstake calls available is not said.
SPENDING = (SEND, STAKE, INFERENCE)
EXACT = 1e-6
# What a program makes of an amount that is larger than all there is, is its own affair.
FAR = 1e9
FIGURES = ("available", "staked", "pending", "total")
# So many different balances show what a total is made of.
ENOUGH = 3
# Figures of so many decimals are rounded each for itself.
DECIMALS = 6
Body = dict[str, Json]


@dataclass
class Account:
    """What the answers to one account have said since something may have moved."""

    available: float | None = None
    shown: Answer | None = None
    staked: float = 0.0
    poor: list[tuple[str, Json, Answer]] = field(default_factory=list)
    """The 402s since the last balance, with what they answer."""
    sums: dict[str, set[tuple[float, ...]]] = field(default_factory=dict)
    """The balances whose total is such a sum, and those in which it is another amount."""


@dataclass
class Balances:
    """What a target has said of each account."""

    accounts: dict[Credential, Account] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(
        self,
        findings: Findings,
        operation: tuple[str, str],
        credential: Credential,
        body: Json,
        answer: Answer,
    ) -> None:
        """Rule on an answer to an account, given those before it."""
        method, path = operation
        with self.lock:
            account = self.accounts.setdefault(credential, Account())
            if operation == ("GET", BALANCE) and answer.ok:
                self._read(findings, account, answer)
            if method == "GET":
                return
            if answer.status == 402 and path in SPENDING:
                account.poor.append((path, body, answer))
                return
            if path in (STAKE, UNSTAKE) and answer.ok:
                _judge_result(findings, path, account, body, answer)
            # Whatever it was, it may have moved money of any account.
            for one in self.accounts.values():
                one.available, one.poor = None, []

    def _read(self, findings: Findings, account: Account, answer: Answer) -> None:
        document = answer.json_object()
        found = [lookup(document, f"balances.{name}") for name in FIGURES]
        if not all(values and is_number(values[0]) for values in found):
            return
        available, staked, pending, total = (float(values[0]) for values in found)
        if account.shown is not None and account.available == available:
            for path, body, poor in account.poor:
                _judge_details(findings, path, body, available, (account.shown, poor, answer))
        account.available, account.shown, account.staked = available, answer, staked
        account.poor = []
        self._judge_total(findings, account, (available, staked, pending, total), answer)

    def _judge_total(
        self, findings: Findings, account: Account, figures: tuple[float, ...], answer: Answer
    ) -> None:
        """Rule on the total: a sum that it is in many balances it is in the others."""
        available, staked, pending, total = figures
        slack = max(EXACT * max(1.0, abs(total)), 2.1 * 10.0 ** -max(map(_decimals, figures)))
        sums = {"without": available + staked, "with": available + staked + pending}
        for name, amount in sums.items():
            kind = name if abs(total - amount) <= slack else f"not {name}"
            account.sums.setdefault(kind, set()).add(figures)
        many = {kind: len(found) for kind, found in account.sums.items()}
        other = min(many.get(f"not {name}", 0) for name in sums)
        if max(many.get(name, 0) for name in sums) >= ENOUGH and (other == 0 or other >= ENOUGH):
            why = f"total is {total:g} beside {available:g}, {staked:g} staked and {pending:g}"
            why = f"{why} pending; in other balances it is their sum, or that of the first two"
            findings.judge(MADE_OF, other == 0, why, answer)


def _decimals(amount: float) -> int:
    """Return how many decimals an amount is shown with, as many as matter."""
    return next((n for n in range(DECIMALS) if round(amount, n) == amount), DECIMALS)


def _judge_details(
    findings: Findings, path: str, body: Json, available: float, shown: tuple[Answer, ...]
) -> None:
    """Rule on a 402 between two balances that are alike."""
    details = lookup(shown[1].json_object(), "error.details")
    found = details[0] if details and isinstance(details[0], dict) else {}
    told, required = found.get("available"), found.get("required")
    amount = body.get("amount") if isinstance(body, dict) and path != INFERENCE else None
    if not is_number(told) or not is_number(required):
        return
    slack = EXACT * max(1.0, abs(available))
    held = abs(told - available) <= slack
    why = f"details {brief(found)} to POST {path}, before and after it {available:g} is available"
    if is_number(amount) and amount < FAR:
        held = held and required >= amount - EXACT * max(1.0, abs(amount))
        why = f"{why}, and {amount:g} was asked for"
    findings.judge(DETAILS, held, why, *shown)


def _judge_result(
    findings: Findings, path: str, account: Account, body: Json, answer: Answer
) -> None:
    """Rule on what a stake or an unstake says of itself, if the document allows its body."""
    found = body if isinstance(body, dict) else {}
    amount, days = found.get("amount"), found.get("duration_days")
    document = answer.json_object() or {}
    if document.get("success") is not True or not is_number(amount) or amount <= 0:
        return
    if path == STAKE and is_int(days) and days > 0:
        for named in lookup(document, "stake.duration_days"):
            if is_int(named):
                why = f"duration_days is {named} for a stake of {days} days"
                findings.judge(LOCKED, named >= days, why, answer)
        for told in lookup(document, "stake.amount"):
            if is_number(told):
                # It may be all that is staked.
                why = f"{told:g} are staked where {amount:g} were asked for"
                findings.judge(WHOLE, told >= amount - EXACT, why, answer)
        _judge_term(findings, document, answer)
    if path == UNSTAKE:
        for told in lookup(document, "unstake.amount"):
            # Where less is staked a node may give what there is.
            least = amount if account.available is not None and account.staked >= amount else 0
            if is_number(told):
                why = f"{told:g} are unstaked where {amount:g} were asked for"
                held = least - EXACT <= told <= amount + EXACT
                findings.judge(UNSTAKED, held, why, answer)
        _judge_cooldown(findings, document, answer)


def _judge_term(findings: Findings, document: Body, answer: Answer) -> None:
    begins, ends = (_day(document, f"stake.{name}_date") for name in ("start", "unlock"))
    named = lookup(document, "stake.duration_days")
    if begins and ends and named and is_int(named[0]):
        apart = (ends - begins).days
        why = f"from {begins} to {ends} it is {apart} days, and duration_days is {named[0]}"
        findings.judge(TERM, apart == named[0], why, answer)


def _judge_cooldown(findings: Findings, document: Body, answer: Answer) -> None:
    ends, days = _day(document, "unstake.available_date"), lookup(document, "unstake.cooldown_days")
    if ends and days and is_int(days[0]) and math.fabs(days[0]) < timedelta.max.days:
        left = (ends - datetime.now(UTC).date()).days
        why = f"the money is available on {ends}, in {left} days, and cooldown_days is {days[0]}"
        # The target's clock may be on the other side of midnight.
        findings.judge(COOLDOWN, abs(left - days[0]) <= 1, why, answer)


def _day(document: Body, path: str) -> date | None:
    found = lookup(document, path)
    text = found[0] if found else None
    fits = isinstance(text, str) and date_fault(text) is None
    return date.fromisoformat(str(text)) if fits else None
