"""Interface 2.1 and 4.1: what a transfer says, and to whom it may go."""

import uuid
from functools import partial
from string import ascii_lowercase, ascii_uppercase, hexdigits

from conformance.checks.history import newest
from conformance.checks.money import TRIES, Comparison, Money, eventually, near, read_money, still
from conformance.checks.node_sanity import FAILED
from conformance.checks.payments import REFUSED, fee_of, require_budget
from conformance.checks.reading import resource_ids
from conformance.checks.stream import LONG_SINCE
from conformance.checks.wallet import AMOUNT, MEMO
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

# Letters that a store or a terminal might drop.
FOREIGN = "für 日本 ✓"
# As many letters as are three times as many bytes, more than a field of 64 or 100 bytes takes.
WIDE = "日本" * 24
WIDER = ("日本" * 8, "日本" * 16, WIDE, "日本" * 48)
QUOTED = "say \"one\", 'two'\nand\tthree"
# Letters that a page or a query would escape.
MARKUP = "<b>&amp;</b> \"a\" 'b' %20 \\n"
# Letters that a form would decode.
FORM = "one+one=two%2Bnone&c=1"
# Letters of more than two bytes in UTF-16.
ASTRAL = "\U0001f642 \U0001d482"
# Letters that are written in another way too: with an accent of its own, joined, or as a fraction.
COMPOSED = "e\u0301 \ufb01 \u00bd \u212b\u00a0\u200bx"
# A memo of a length that a column or a screen might cut, with blanks at its ends.
TALE = " conformance, " + "one transfer after the other, " * 4
# And of more letters than a byte counts, which a node may refuse.
LONGER = ("one by one, " * 17, "one by one, " * 25)


@requirement(
    "NA-WALLET-032",
    "NA-WALLET-034",
    "NA-WALLET-048",
    "NA-WALLET-054",
    "NA-WALLET-061",
    "NA-WALLET-066",
    *resource_ids("transfer"),
)
def memo_kept(context: Context) -> None:
    """POST /wallet/send with memos of odd letters, of many and of none, and read the result."""
    own = read_money(context, context.target.second).document.get("address")
    if context.target.second_token is None or not isinstance(own, str):
        raise Skipped("there are no two accounts")
    known = _sends_to(context, own)
    sent = _send_memo(context, own, FOREIGN)
    if context.edition >= FOURTH:
        _judge_letters(context, own, FOREIGN, sent)
    if not sent.ok:
        raise Skipped(f"POST /wallet/send was answered with status {sent.status}")
    if context.edition >= LONG_SINCE:
        eventually(lambda: bool(_sends_to(context, own) - known))
        new = len(_sends_to(context, own) - known)
        why = f"one transfer with the memo {brief(FOREIGN)} is listed as {new} sends"
        context.judge("NA-WALLET-034", new <= 1, why, sent)
        # A memo may be refused for its length, but not cut.
        astral = f"{ASTRAL} {COMPOSED}" if context.edition >= SIXTH else ASTRAL
        made = [_send_memo(context, own, memo) for memo in (TALE, MARKUP, FORM, astral, "")]
        found = [(one.json_object() or {}).get("transaction_id") for one in (sent, *made)]
        named = [ident for ident in found if isinstance(ident, str)]
        if len(named) > 1:
            why = f"transactions one after another are {brief(named)}"
            context.judge("NA-WALLET-048", len(set(named)) == len(named), why, sent, *made)
    if context.edition >= FIFTH:
        # A limit may be one of letters or, wrongly, of bytes.
        for wide in WIDER if context.edition >= SIXTH else (WIDE,):
            _judge_letters(context, own, wide, _send_memo(context, own, wide))
        _judge_letters(context, own, QUOTED, _send_memo(context, own, QUOTED), "NA-WALLET-066")
        for memo in LONGER:
            _send_memo(context, own, memo.strip())


def _judge_letters(
    context: Context, own: str, memo: str, sent: Answer, ident: str = "NA-WALLET-061"
) -> None:
    """Rule on a memo that was refused, if one of as many letters of ASCII is taken."""
    if sent.status in REFUSED:
        plain = _send_memo(context, own, "x" * len(memo))
        why = f"the memo {brief(memo)} ends with status {sent.status}, a plain one is taken"
        context.judge(ident, not plain.ok, why, sent, plain)
    elif sent.ok:
        context.holds(ident, sent)


def _sends_to(context: Context, address: str) -> set[str]:
    rows = [row for row in newest(context)[2] if row.get("type") == "send"]
    return {str(row.get("id")) for row in rows if row.get("to") == address}


def _send_memo(context: Context, to: str, memo: str) -> Answer:
    """Send with a memo, and rule on the one in the result, if there is any."""
    require_budget(context, AMOUNT)
    body: dict[str, Json] = {"to": to, "amount": AMOUNT, "memo": memo}
    sent = context.api("POST", "/wallet/send", credential=context.target.valid, json_body=body)
    found = (sent.json_object() or {}).get("memo")
    if sent.ok:
        context.budget.charge(AMOUNT + fee_of(sent))
    if context.edition >= FOURTH and memo:
        why = f"a transfer with the memo {brief(memo)} ends with status {sent.status}"
        context.judge("NA-WALLET-054", sent.status not in FAILED, why, sent)
    told = bool(memo) or context.edition >= SIXTH
    if sent.ok and told and isinstance(found, str):
        why = f"the memo {brief(memo)} is {brief(found)} in the result"
        context.judge("NA-WALLET-032", found == memo, why, sent)
    return sent


# Less than the suite sends elsewhere.
TINY = 0.004


@requirement("NA-WALLET-035", "NA-WALLET-001", "NA-WALLET-032", "NA-WALLET-054", "NA-QUERY-011")
def memo_left_out(context: Context) -> None:
    """POST /wallet/send without a memo, and of next to nothing; look for both in the list."""
    own = read_money(context, context.target.second).document.get("address")
    if context.target.second_token is None or not isinstance(own, str):
        raise Skipped("there are no two accounts")
    bodies: list[dict[str, Json]] = [{"to": own, "amount": AMOUNT}]
    if context.edition >= LONG_SINCE:
        # How small an amount may be is not said.
        bodies.append({"to": own, "amount": TINY, "memo": MEMO})
    late: list[tuple[str, list[Answer]]] = []
    own_memo = f"{MEMO} {uuid.uuid4().hex[:8]}"
    for body in bodies:
        if context.edition >= LONG_SINCE:
            # Nothing of it is left for the next one.
            _send_memo(context, own, own_memo)
        require_budget(context, AMOUNT)
        _, before = _total(context, {"limit": 1})
        sent = context.api("POST", "/wallet/send", credential=context.target.valid, json_body=body)
        ident = (sent.json_object() or {}).get("transaction_id")
        if not sent.ok or not isinstance(ident, str):
            raise Skipped(f"POST /wallet/send was answered with status {sent.status}")
        context.budget.charge(AMOUNT + fee_of(sent))
        told = (sent.json_object() or {}).get("memo")
        why = f"a transfer of {brief(body)} has the memo {brief(told)} of the one before"
        context.judge("NA-WALLET-001", told != own_memo, why, sent)
        late.append(_late_total(context, before))
        held = eventually(partial(_is_listed, context, ident))
        why = f"{brief(ident)}, of {brief(body)}, is not listed"
        context.judge("NA-WALLET-035", held, why, sent, newest(context)[0])
    if context.edition >= LONG_SINCE:
        # It may be listed just between two readings, but not each time.
        why, shown = late[-1]
        context.judge("NA-QUERY-011", not all(each for each, _ in late), why, *shown)


def _late_total(context: Context, before: Json) -> tuple[str, list[Answer]]:
    """Say whether only pages without an offset have another total than before a transfer."""
    later: list[tuple[Answer, Json]] = []

    def risen() -> bool:
        later[:] = [_total(context, {"limit": 1, "offset": 1})]
        return bool(later[0][1] != before)

    eventually(risen)
    page, total = later[0]
    first, whole = _total(context, {"limit": 1})
    why = f"total was {brief(before)}, and is {brief(total)} with an offset, {brief(whole)} without"
    return (why if total == before != whole else ""), [page, first]


def _total(context: Context, query: dict[str, object]) -> tuple[Answer, Json]:
    """Read a page of the history; return its total."""
    path = "/wallet/transactions"
    answer = context.api("GET", path, credential=context.target.valid, query=query)
    return answer, (answer.json_object() or {}).get("total")


def _is_listed(context: Context, ident: str) -> bool:
    return ident in [row.get("id") for row in newest(context)[2]]


# So many letters at the end of an address are changed.
# What may follow an address.
LONGER = ("0", "/savings")
# What a path or a query would end at.
TAILS = ("/savings", "?of=mine#now")
CHANGED = 8
# Ranges within which a letter of a hexadecimal address, or of another one, stays what it is.
_HEX, _ANY = ("0123456789", "abcdef", "ABCDEF"), ("0123456789", ascii_lowercase, ascii_uppercase)


@requirement(
    "NA-WALLET-047",
    "NA-WALLET-065",
    "NA-ERR-064",
    *resource_ids("transfer"),
    *resource_ids("transactions"),
)
def send_to_stranger(context: Context) -> None:
    """POST /wallet/send to an address like the account's own that nobody uses, and look for it."""
    own = read_money(context, context.target.valid).document.get("address")
    if not isinstance(own, str) or not own:
        raise Skipped("the account has no address")
    stranger = own[:-CHANGED] + _other(own[-CHANGED:])
    require_budget(context, AMOUNT)
    body: dict[str, Json] = {"to": stranger, "amount": AMOUNT, "memo": MEMO}
    sent = context.api("POST", "/wallet/send", credential=context.target.valid, json_body=body)
    ident = (sent.json_object() or {}).get("transaction_id")
    if sent.status in FAILED and context.edition >= SIXTH:
        _judge_failed(context, body)
    if not sent.ok or not isinstance(ident, str) or stranger == own:
        raise Skipped(f"a transfer to an unknown address was answered with status {sent.status}")
    context.budget.charge(AMOUNT + fee_of(sent))
    held = eventually(lambda: bool({ident, stranger} & _listed(context)))
    rows = [row for row in newest(context)[2] if row.get("id") == ident]
    if context.edition >= FIFTH and rows:
        named = rows[0].get("to")
        told = f"the transfer to {brief(stranger)} is listed as one to {brief(named)}"
        same = named == stranger or not isinstance(named, str)
        context.judge("NA-WALLET-047", same, told, sent)
    why = f"the transfer {brief(ident)} to {brief(stranger)} is not listed"
    context.judge("NA-WALLET-047", held, why, sent, newest(context)[0])
    if context.edition >= FIFTH:
        # Behind what is judged of the first one: the budget may end here.
        _judge_told(context, own[:-CHANGED] + own[-CHANGED:].swapcase())
    if context.edition >= SEVENTH:
        for tail in TAILS:
            _judge_told(context, own + tail)


def _judge_failed(context: Context, body: dict[str, Json]) -> None:
    """Rule on a node that fails each time that somebody sends to an address that nobody uses."""
    token = context.target.valid
    answers = [
        context.api("POST", "/wallet/send", credential=token, json_body=body) for _ in range(TRIES)
    ]
    why = f"a transfer to {brief(body['to'])} ends with {[answer.status for answer in answers]}"
    failed = all(answer.status in FAILED for answer in answers)
    context.judge("NA-ERR-064", not failed, why, *answers)
    for answer in answers:
        context.budget.charge(AMOUNT + fee_of(answer) if answer.ok else 0.0)


def _judge_told(context: Context, address: str) -> None:
    """Rule on the receiver in the result of a transfer, where it has other letters."""
    body: dict[str, Json] = {"to": address, "amount": AMOUNT, "memo": MEMO}
    require_budget(context, AMOUNT)
    sent = context.api("POST", "/wallet/send", credential=context.target.valid, json_body=body)
    told = (sent.json_object() or {}).get("to")
    if sent.ok:
        context.budget.charge(AMOUNT + fee_of(sent))
        why = f"a transfer to {brief(address)} is one to {brief(told)} in the result"
        context.judge("NA-WALLET-065", told in (address, None), why, sent)


def _other(tail: str) -> str:
    """Return another end of an address, of the same kinds of letters."""
    ranges = _HEX if all(letter in hexdigits for letter in tail) else _ANY
    following = {a: b for each in ranges for a, b in zip(each, each[1:] + each[0], strict=True)}
    return "".join(following.get(letter, letter) for letter in tail)


@requirement("NA-WALLET-090")
def send_alike(context: Context) -> None:
    """POST /wallet/send to addresses that begin or end like that of the other account."""
    accounts = (context.target.second, context.target.valid)
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    owns = [read_money(context, account).document.get("address") for account in accounts]
    # What a node gives back, since nobody has such an address, comes to the payer, not to the one
    # whose address is like it.
    for payer, alike, own in zip(accounts, accounts[::-1], owns[::-1], strict=True):
        alike_ones = _strangers(own)
        if context.edition >= SEVENTH and alike_ones:
            alike_ones |= {f"{own}{tail}" for tail in LONGER}
            # And parts of it, which are no address of anybody.
            alike_ones |= {str(own)[:-CHANGED], str(own)[CHANGED:]}
        for stranger in sorted(alike_ones - set(owns)):
            compared = Comparison(context)
            for _ in range(TRIES):
                if not _send_beside(context, compared, stranger, (payer, alike)) or compared.clean:
                    break
            compared.conclude()


def _strangers(own: Json) -> set[str]:
    """Return addresses that begin like this one, and end like it, where it is long enough."""
    if not isinstance(own, str) or len(own) < 2:
        return set()
    tail = min(CHANGED, len(own) // 2)
    found = {own[:-tail] + _other(own[-tail:])}
    if len(own) >= 3 * CHANGED:
        # What addresses of a network have in common stays what it is.
        middle = own[CHANGED : 2 * CHANGED]
        found.add(own[:CHANGED] + _other(middle) + own[2 * CHANGED :])
    return found


def _send_beside(
    context: Context, compared: Comparison, stranger: str, accounts: tuple[Credential, Credential]
) -> bool:
    """Send to an address, and note whether an account like it has it; return whether it is made."""
    before = still(context, *accounts)
    if before is None:
        return True
    require_budget(context, AMOUNT)
    body: dict[str, Json] = {"to": stranger, "amount": AMOUNT, "memo": MEMO}
    sent = context.api("POST", "/wallet/send", credential=accounts[0], json_body=body)
    if not sent.ok:
        return False
    context.budget.charge(AMOUNT + fee_of(sent))
    now: list[Money] = []

    def is_paid() -> bool:
        now[:] = [read_money(context, account) for account in accounts]
        return now[0].available < before[0].available - AMOUNT / 2

    eventually(is_paid)
    held = not near(context, now[1].available, before[1].available + AMOUNT)
    why = f"{AMOUNT:g} were sent to {brief(stranger)}, and another account has them"
    compared.note("NA-WALLET-090", held, why, sent, before[1].answer, now[1].answer)
    return True


def _listed(context: Context) -> set[str]:
    return {str(row.get(key)) for row in newest(context)[2] for key in ("id", "to")}
