"""Interface 4.1, 5 and 7.1: amounts and accounts in unusual forms, on the routes that move money.

An amount that nobody has is one of too much, also where it is a small one in so many bits. A body
or a query may name another account, but the token says whose money it is.
"""

import json
from functools import partial

from conformance.checks.money import TRIES, Comparison, eventually, near, read_money, still
from conformance.checks.node_sanity import FAILED
from conformance.checks.payments import REFUSED, fee_of, require_budget
from conformance.checks.wallet import AMOUNT, DAYS, MEMO
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

VAST, FAILING, NAMED = "NA-ERR-040", "NA-ERR-041", "NA-WALLET-087"
EXPONENT, NO_JSON, DECIMALS = "NA-WALLET-088", "NA-WALLET-089", "NA-WALLET-096"
SEND, STAKE, UNSTAKE = "/wallet/send", "/wallet/stake", "/wallet/unstake"
# A little above a number of 32 or 64 bits, as micro-units, cents, nano-units and hundredths of
# a millionth: what is left when it is cut is next to nothing.
SIZES = (4295.0, 42_949_673.0, 18_446_744_074.0, 184_467_440_738.0, 18_446_744_073_710.0, 1e20)
# Less than any of these, but more than is left of one that is cut.
FEW = 1.0
# A whole unit, as JSON may write it too.
WRITTEN = "10.0E-1"
# Less than a millionth, in nine decimals.
DUST = 1.23e-7
# Names for whoever pays, or for whose balance it is.
NAMES = ("from", "sender", "account", "address", "from_address")


@requirement(VAST, FAILING)
def money_vast(context: Context) -> None:
    """POST transfers and stakes of amounts beyond what numbers of 32 and 64 bits hold."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    account = context.target.second
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    to = read_money(context, context.target.valid).document.get("address")
    has = read_money(context, account)
    for amount in (size for size in SIZES if size > has.total + FEW):
        for path, fields in ((SEND, {"to": to, "memo": MEMO}), (STAKE, {"duration_days": DAYS})):
            require_budget(context, FEW)
            body: Json = {"amount": amount, **fields}
            answer = context.api("POST", path, credential=account, json_body=body)
            made = answer.ok and (answer.json_object() or {}).get("success") is not False
            context.budget.charge(FEW if made else 0.0)
            why = f"POST {path} of {amount:g}: status {answer.status}"
            context.judge(FAILING, answer.status not in FAILED, why, answer)
            why = f"{why}, and all that the account has is {has.total:g}"
            context.judge(VAST, not made, why, has.answer, answer)


def _has(context: Context, available: float) -> bool:
    return near(context, read_money(context, context.target.valid).available, available)


@requirement(NAMED)
def money_named(context: Context) -> None:
    """POST /wallet/send, and GET the balance, with another account beside that of the token."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    first, second = context.target.valid, context.target.second
    own, other = (read_money(context, each).document.get("address") for each in (first, second))
    if context.target.second_token is None or own == other:
        raise Skipped("there are no two accounts")
    for name in NAMES:
        query: dict[str, object] = {name: other}
        looked = context.api("GET", "/wallet/balance", credential=first, query=query)
        found = (looked.json_object() or {}).get("address") if looked.ok else own
        why = f"a balance with {name} in its query is that of {brief(found)}, not {brief(own)}"
        context.judge(NAMED, found == own or found != other, why, looked)
    compared = Comparison(context)
    for _ in range(TRIES):
        before = still(context, first)
        if before is None:
            continue
        if before[0].available < 2 * AMOUNT:
            raise Skipped("too little is available")
        require_budget(context, AMOUNT)
        body: dict[str, Json] = {"to": other, "amount": AMOUNT, "memo": MEMO}
        body |= dict.fromkeys(NAMES, other)
        sent = context.api("POST", SEND, credential=first, json_body=body)
        if not sent.ok:
            # A body may be refused for what else is in it.
            return
        cost = AMOUNT + fee_of(sent)
        context.budget.charge(cost)
        wanted = before[0].available - cost
        held = eventually(partial(_has, context, wanted))
        after = read_money(context, first)
        why = f"a transfer that names {brief(other)} as its sender took"
        why = f"{why} {before[0].available - after.available:g} of {cost:g} from its own"
        compared.note(NAMED, held, why, before[0].answer, sent, after.answer)
        if compared.clean:
            break
    compared.conclude()


@requirement(EXPONENT, "NA-WALLET-001")
def money_exponents(context: Context) -> None:
    """POST /wallet/send a whole unit to the account itself, written with an exponent."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    first = context.target.valid
    before = read_money(context, first)
    address = before.document.get("address")
    if not isinstance(address, str) or before.available < 2:
        raise Skipped("there is no address, or too little is available")
    head = json.dumps({"to": address, "memo": MEMO})[:-1]

    def send(written: str) -> Answer:
        require_budget(context, AMOUNT)
        content = f'{head}, "amount": {written}}}'.encode()
        answer = context.api("POST", SEND, credential=first, content=content)
        context.budget.charge(fee_of(answer) if answer.ok else 0.0)
        return answer

    sent = send(WRITTEN)
    if sent.ok:
        context.holds(EXPONENT, sent)
        told = (sent.json_object() or {}).get("amount")
        why = f"a transfer of {WRITTEN} has the amount {brief(told)} in the result"
        held = not is_number(told) or near(context, told, 1)
        context.judge("NA-WALLET-001", held, why, sent)
    elif sent.status in REFUSED:
        plain = send("1")
        why = f"an amount of 1 is sent, and one of {WRITTEN} has status {sent.status}"
        context.judge(EXPONENT, not plain.ok, why, plain, sent)


@requirement(DECIMALS)
def money_decimals(context: Context) -> None:
    """POST /wallet/send an amount to the account itself with more decimals than most nodes keep."""
    if context.edition < SEVENTH:
        raise Skipped("later editions ask for it")
    first = context.target.valid
    before = read_money(context, first)
    address = before.document.get("address")
    if not isinstance(address, str) or before.available < 2 * AMOUNT:
        raise Skipped("there is no address, or too little is available")
    require_budget(context, AMOUNT)
    body: dict[str, Json] = {"to": address, "amount": AMOUNT + DUST, "memo": MEMO}
    sent = context.api("POST", SEND, credential=first, json_body=body)
    context.budget.charge(fee_of(sent) if sent.ok else 0.0)
    told = (sent.json_object() or {}).get("amount")
    if sent.status in REFUSED or (sent.ok and is_number(told)):
        held = not sent.ok or abs(float(str(told)) - AMOUNT - DUST) < DUST / 10
        why = f"a transfer of {AMOUNT + DUST:.9f} has the amount {brief(told)} in the result"
        context.judge(DECIMALS, held, why, sent)


@requirement(NO_JSON)
def money_unread(context: Context) -> None:
    """POST bodies that are no JSON, or no object, to the three routes."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    own = read_money(context, context.target.second).document.get("address")
    good: dict[str, dict[str, Json]] = {
        SEND: {"to": own, "amount": AMOUNT, "memo": MEMO},
        STAKE: {"amount": AMOUNT, "duration_days": DAYS},
        UNSTAKE: {"amount": AMOUNT},
    }
    for path, body in good.items():
        whole = json.dumps(body).encode()
        form = "&".join(f"{key}={value}" for key, value in body.items()).encode()
        # The last one is a text, in which there is an object.
        texts = (json.dumps(AMOUNT).encode(), json.dumps(whole.decode()).encode())
        for content in (whole[:-1], form, b"[" + whole + b"]", *texts):
            _judge_unread(context, path, content, {})
        _judge_unread(context, path, b"{}", body)


def _judge_unread(context: Context, path: str, content: bytes, query: dict[str, Json]) -> None:
    """Rule on a body in which no reader can find an amount."""
    require_budget(context, AMOUNT)
    answer = context.api(
        "POST", path, credential=context.target.second, content=content, query={**query} or None
    )
    if answer.status not in FAILED:
        made = answer.ok and (answer.json_object() or {}).get("success") is not False
        context.budget.charge(AMOUNT if made else 0.0)
        why = f"POST {path} with {brief(content.decode())}: status {answer.status}"
        context.judge(NO_JSON, not made, f"{why}, query {brief(query)}", answer)
