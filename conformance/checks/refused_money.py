"""Interface 2.1, 5 and 7.1: requests that move money and are refused, and two that are too much.

A request that is accepted shows nothing here. As in ``money``, a difference is a violation only
if every try shows it.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from conformance.checks.auth import INVENTED
from conformance.checks.history import newest
from conformance.checks.money import EXACT, TRIES, Comparison, Money, eventually, read_money, still
from conformance.checks.payments import fee_of, require_budget
from conformance.checks.wallet import AMOUNT, DAYS, EXCESS, MEMO
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

SEND, STAKE, UNSTAKE = "/wallet/send", "/wallet/stake", "/wallet/unstake"
UNCHANGED, INCOMING, AT_ONCE = "NA-WALLET-056", "NA-WALLET-057", "NA-ERR-031"
OUTGOING, LITTLE = "NA-WALLET-064", "NA-ERR-035"
GENERATION, LISTED = "NA-WALLET-084", "NA-WALLET-086"
# Of which two are more than there is, with any fee.
PART = 0.6
LITTLE_MORE = 0.4
# The least amount that is sent, which has so many decimals, and the status of who has too little.
LEAST, DECIMALS, UNPAID = 1e-6, 6, 402
# An amount by which an entry is recognised.
ODD, NOBODY = 0.0103, "nobody"


@dataclass(frozen=True)
class Bad:
    """A request that no node need accept."""

    path: str
    body: Json
    credential: Credential
    ident: str = UNCHANGED


def _addresses(context: Context) -> tuple[str, str]:
    """Return those of both accounts; raise `Skipped` without two."""
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    both = context.target.valid, context.target.second
    first, second = (read_money(context, one).document.get("address") for one in both)
    if not isinstance(first, str) or not isinstance(second, str) or first == second:
        raise Skipped("there are no two accounts")
    return first, second


def _bad(context: Context, own: str, staked: float) -> Iterator[Bad]:
    """Yield requests with one thing wrong each."""
    much = ODD if context.edition >= SIXTH else AMOUNT
    good: dict[str, dict[str, Json]] = {
        SEND: {"to": own, "amount": much, "memo": MEMO},
        STAKE: {"amount": much, "duration_days": DAYS},
        UNSTAKE: {"amount": much},
    }
    account = context.target.second
    for path, body in good.items():
        for credential in (INVENTED, context.target.expired):
            yield Bad(path, body, credential)
        for amount in (0, -much, None, [much]):
            yield Bad(path, {**body, "amount": amount}, account)
    # A node that takes any number would show one below zero.
    for days in (0, None, "many"):
        yield Bad(STAKE, {**good[STAKE], "duration_days": days}, account)
    yield Bad(STAKE, {"amount": much}, account)
    yield Bad(SEND, {**good[SEND], "to": ""}, account)
    yield Bad(SEND, {"amount": much}, account)
    yield Bad(UNSTAKE, {"amount": staked + EXCESS}, account)
    if context.edition >= SIXTH:
        # Which addresses there are is not said, so that this one may be accepted.
        yield Bad(SEND, {**good[SEND], "amount": AMOUNT, "to": NOBODY}, account)
        yield Bad(SEND, {**good[SEND], "memo": {"a": 1}}, account)
        prompt: dict[str, Json] = {"prompt": "Once upon a time", "max_tokens": 8}
        for body in ({**prompt, "temperature": 2.5}, {"max_tokens": 8}):
            for stream in (False, True):
                yield Bad("/inference", {**body, "stream": stream}, account, GENERATION)


def _sends_to_nobody(bad: Bad) -> bool:
    return isinstance(bad.body, dict) and bad.body.get("to") == NOBODY


def _figures(both: list[Money]) -> list[float]:
    return [figure for one in both for figure in one.figures]


@requirement(UNCHANGED, GENERATION, LISTED)
def money_refused(context: Context) -> None:
    """POST requests with one thing wrong each to the three routes; compare what is left."""
    own, _ = _addresses(context)
    accounts = context.target.valid, context.target.second
    known = {str(row.get("id")) for one in accounts for row in newest(context, one)[2]}
    accepted = set[str]()
    for bad in _bad(context, own, read_money(context, accounts[1]).staked):
        compared = Comparison(context)
        for _ in range(TRIES):
            before = still(context, *accounts)
            if before is None:
                continue
            # It may be accepted.
            require_budget(context, AMOUNT)
            answer = context.api("POST", bad.path, credential=bad.credential, json_body=bad.body)
            if answer.ok:
                context.budget.charge(AMOUNT)
                accepted |= set() if _sends_to_nobody(bad) else {bad.path}
            if not 400 <= answer.status < 500:
                break
            after = [read_money(context, one) for one in accounts]
            pairs = zip(_figures(before), _figures(after), strict=True)
            moved = max(abs(now - then) for then, now in pairs)
            why = f"{bad.body} on {bad.path}: status {answer.status}, and {moved:g} has moved"
            shown = (*(one.answer for one in before), answer, *(one.answer for one in after))
            compared.note(bad.ident, moved <= EXACT, why, *shown)
            if compared.clean:
                break
        compared.conclude()
    if context.edition >= SIXTH and SEND not in accepted:
        for account in accounts:
            rows = [row for row in _new(context, account, known) if _is_odd(row.get("amount"))]
            # What a stake that was accepted is called in the history is not said.
            rows = [row for row in rows if not accepted or row.get("type") == "send"]
            why = f"all with an amount of {ODD} was refused, and the history has {brief(rows)}"
            context.judge(LISTED, not rows, why, answer, newest(context, account)[0])


@requirement(LITTLE)
def money_little_too_much(context: Context) -> None:
    """POST /wallet/send a little more than the second account has."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    first, own = _addresses(context)
    account, receiver = context.target.second, context.target.valid
    made = list[tuple[str, tuple[Answer, ...]]]()
    for _ in range(TRIES):
        before = still(context, account)
        if before is None:
            continue
        if before[0].available <= 0:
            # A node may give whoever has nothing what he needs.
            raise Skipped("the second account has nothing available")
        # By more than a rounding, and less than a unit.
        amount = round(before[0].available + LITTLE_MORE, 2)
        body: Json = {"to": first, "amount": amount, "memo": MEMO}
        sent = context.api("POST", SEND, credential=account, json_body=body)
        if not sent.ok:
            context.holds(LITTLE, before[0].answer, sent)
            if context.edition >= SEVENTH:
                _judge_least(context, first, own)
            return
        after = read_money(context, account)
        why = f"{amount:g} were sent of {before[0].available:g}, and {after.available:g} are left"
        made.append((why, (before[0].answer, sent, after.answer)))
        back = {"to": own, "amount": amount, "memo": MEMO}
        returned = context.api("POST", SEND, credential=receiver, json_body=back)
        context.budget.charge(fee_of(sent) + fee_of(returned))
    if len(made) == TRIES:
        context.fails(LITTLE, made[-1][0], *made[-1][1])


def _judge_least(context: Context, first: str, own: str) -> None:
    """POST all that the second account has beside the fee, and the least amount more."""
    account = context.target.second
    require_budget(context, AMOUNT)
    paid = context.api(
        "POST", SEND, credential=account, json_body={"to": first, "amount": AMOUNT, "memo": MEMO}
    )
    before = read_money(context, account)
    amount = round(before.available - fee_of(paid) + LEAST, DECIMALS)
    if not paid.ok or amount <= AMOUNT:
        return
    body: Json = {"to": first, "amount": amount, "memo": MEMO}
    sent = context.api("POST", SEND, credential=account, json_body=body)
    after = read_money(context, account)
    why = f"{amount:f} were sent of {before.available:f}, and {after.available:f} are left"
    context.budget.charge(fee_of(paid))
    if sent.ok:
        back = {"to": own, "amount": amount, "memo": MEMO}
        context.api("POST", SEND, credential=context.target.valid, json_body=back)
    if sent.ok or sent.status == UNPAID:
        held = not sent.ok or after.available >= 0
        context.judge(LITTLE, held, why, before.answer, sent, after.answer)


@requirement(INCOMING, OUTGOING)
def money_received(context: Context) -> None:
    """POST /wallet/send to the second account, and read what is new in both histories."""
    first, own = _addresses(context)
    account = context.target.second
    require_budget(context, AMOUNT)
    known, sender = ({str(row.get("id")) for row in newest(context, one)[2]}
                     for one in (account, context.target.valid))  # fmt: skip
    body: Json = {"to": own, "amount": AMOUNT, "memo": MEMO}
    sent = context.api("POST", SEND, credential=context.target.valid, json_body=body)
    if not sent.ok:
        raise Skipped(f"POST /wallet/send was answered with status {sent.status}")
    context.budget.charge(AMOUNT + fee_of(sent))
    # Whether what is received is listed is not said.
    eventually(lambda: bool(_new(context, account, known)))
    rows, answer = _new(context, account, known), newest(context, account)[0]
    # An entry of the receiver may name the sender alone.
    received = [row for row in rows if row.get("to") == own or row.get("from") == first]
    wrong = [row for row in received if row.get("to", own) == own and _below(row.get("amount"))]
    why = f"of {AMOUNT:g} that was received the history has {wrong}"
    context.judge(INCOMING, not wrong, why, sent, answer)
    gained = [
        row for row in _new(context, context.target.valid, sender)
        if is_number(row.get("amount")) and abs(float(str(row["amount"])) - AMOUNT) <= EXACT
        and row.get("type") != "reward"
    ]  # fmt: skip
    why = f"the sender of {AMOUNT:g} has {brief(gained)} in its own history"
    context.judge(OUTGOING, not gained, why, sent)


def _new(context: Context, account: Credential, known: set[str]) -> list[dict[str, Json]]:
    return [row for row in newest(context, account)[2] if str(row.get("id")) not in known]


def _is_odd(amount: Json) -> bool:
    return is_number(amount) and abs(abs(amount) - ODD) <= EXACT


def _below(amount: Json) -> bool:
    return is_number(amount) and amount < 0


def _has(context: Context, account: Credential, least: float) -> bool:
    return read_money(context, account).available >= least - EXACT


@requirement(AT_ONCE)
def money_overdrawn(context: Context) -> None:
    """POST /wallet/send twice at the same moment, more than the second account has together."""
    first, own = _addresses(context)
    account, receiver = context.target.second, context.target.valid
    for _ in range(TRIES):
        before = still(context, account, receiver)
        if before is None:
            continue
        had = before[0].available
        amount = round(had * PART, 2)
        if amount <= AMOUNT:
            raise Skipped("too little is available")
        require_budget(context, AMOUNT)
        body: Json = {"to": first, "amount": amount, "memo": MEMO}

        def send(_: int, body: Json = body) -> Answer:
            return context.api("POST", SEND, credential=account, json_body=body)

        with context.http.gate.holding(2), ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(send, range(2)))
        made = [one for one in answers if one.ok]
        eventually(partial(_has, context, receiver, before[1].available + amount * len(made)))
        now = read_money(context, receiver)
        gained = now.available - before[1].available
        # One of them may have been taken back, and only what has come can go back.
        for one in made[: max(1, round(gained / amount))]:
            back = {"to": own, "amount": amount, "memo": MEMO}
            returned = context.api("POST", SEND, credential=receiver, json_body=back)
            context.budget.charge(fee_of(one) + fee_of(returned))
            if not returned.ok:
                context.residue.append(f"{amount:g} of the second account's, with the first")
        why = f"two transfers of {amount:g} at the same moment, of {had:g}, brought {gained:g}"
        if made:
            held = gained < 2 * amount - EXACT
            context.judge(AT_ONCE, held, why, before[0].answer, *answers, now.answer)
