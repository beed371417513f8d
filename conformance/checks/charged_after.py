"""Interface 2.1: what a generation takes as a stream, of another account, or behind something else.

A charge that is settled at once is so whatever was asked before, also on the same connection.
"""

from collections.abc import Callable
from functools import partial

from conformance.checks.auth import INVENTED
from conformance.checks.charges import SETTLED_S, taken
from conformance.checks.money import EXACT, TRIES, money_in, read_money
from conformance.checks.node_reads import BALANCE
from conformance.checks.payments import fee_of, require_budget
from conformance.checks.stream import LONG
from conformance.checks.wallet import AMOUNT, MEMO
from conformance.context import API, Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

# So few tokens cost something, too.
SHORT, AFTER = 8, "NA-WALLET-070"
NOWHERE = "/not-in-the-document"
Body = dict[str, Json]


@requirement("NA-WALLET-063", "NA-WALLET-023", AFTER)
def charged_alike(context: Context) -> None:
    """POST /inference, then as a stream and with the second token; look what each takes."""
    first, second = context.target.valid, context.target.second
    plain: Body = {"prompt": "Hello", "max_tokens": LONG // 2}
    others = [("a stream", {**plain, "stream": True}, first)]
    if context.target.second_token is not None:
        others.append(("one with the second token", plain, second))
    for name, body, account in others:
        for turn in range(TRIES + 1):
            usual = taken(context, plain, first)
            if usual is None:
                continue
            if usual[1] <= EXACT:
                # Nothing is charged, or not at once.
                break
            other = taken(context, body, account, within_s=SETTLED_S)
            if other is None:
                continue
            if other[1] > EXACT:
                context.holds("NA-WALLET-063", usual[0], other[0])
                break
            if turn == TRIES:
                why = f"a generation takes {usual[1]:g} at once, and {name} nothing"
                context.fails("NA-WALLET-063", why, usual[0], other[0])
    if context.edition >= FIFTH:
        _judge_after(context, {**plain, "max_tokens": SHORT})
    if context.edition >= SIXTH:
        _judge_behind(context, {**plain, "max_tokens": SHORT})
    if context.edition >= SEVENTH:
        _judge_directly(context, {**plain, "max_tokens": SHORT})


def _judge_directly(context: Context, body: Body) -> None:
    """Rule on generations of which the request before, with nothing in between, was refused."""
    first = context.target.valid
    refused: dict[str, Callable[[], Answer]] = {
        "a refused one": partial(
            context.api, "POST", "/inference", credential=first, json_body={"max_tokens": 1}
        ),
        "one with no valid token": partial(context.infer, body, credential=INVENTED),
        "a path that is not there": partial(context.api, "GET", NOWHERE),
    }
    for name, ask in refused.items():
        free = list[tuple[Answer, Answer]]()
        for _ in range(TRIES):
            usual = taken(context, body, first)
            if usual is None or usual[1] <= EXACT:
                # Nothing is charged, or not at once.
                break
            before = read_money(context, first)
            asked, answer = ask(), context.infer(body)
            context.budget.charge(_cost_of(answer), SHORT)
            lost = before.available - read_money(context, first).available
            if not answer.ok or asked.ok:
                break
            if lost > EXACT:
                context.holds(AFTER, asked, answer)
                break
            free.append((asked, answer))
        if len(free) == TRIES:
            why = f"a generation is charged at once, not directly behind {name}"
            context.fails(AFTER, why, *free[-1])


def _judge_after(context: Context, body: Body) -> None:
    """Rule on generations of the first account that follow something else."""
    first = context.target.valid
    own = read_money(context, first).document.get("address")
    to_itself: Json = {"to": own, "amount": AMOUNT, "memo": MEMO}
    before: dict[str, Callable[[], Answer]] = {
        "a stream": partial(context.infer, {**body, "stream": True}),
        "one of the second account": partial(context.infer, body, credential=context.target.second),
        "a refused one": partial(
            context.api, "POST", "/inference", credential=first, json_body={"max_tokens": 1}
        ),
        "a transfer": partial(
            context.api, "POST", "/wallet/send", credential=first, json_body=to_itself
        ),
    }
    if context.edition >= SIXTH:
        before["one with no valid token"] = partial(context.infer, body, credential=INVENTED)
    for name, ask in before.items():
        free, dear = list[tuple[Answer, Answer]](), list[tuple[str, Answer, Answer]]()
        for turn in range(TRIES):
            usual = taken(context, body, first)
            if usual is None or usual[1] <= EXACT:
                # Nothing is charged, or not at once.
                break
            # What a generation costs is counted where it is asked for.
            asked = ask()
            context.budget.charge(fee_of(asked) if asked.ok else 0.0)
            other = taken(context, body, first, within_s=SETTLED_S if turn else 0)
            if other is not None and other[1] > EXACT:
                context.holds(AFTER, usual[0], other[0])
                cost = lookup(other[0].json_object() or {}, "cost.amount")
                if not cost or not is_number(cost[0]) or other[1] <= cost[0] + EXACT:
                    break
                why = f"a generation behind {name} takes {other[1]:g}, and its cost is {cost[0]:g}"
                dear.append((why, usual[0], other[0]))
                continue
            free += [] if other is None else [(usual[0], other[0])]
        if len(free) == TRIES:
            context.fails(AFTER, f"a generation is charged at once, not after {name}", *free[-1])
        if len(dear) == TRIES:
            context.fails("NA-WALLET-023", *dear[-1])


def _judge_behind(context: Context, body: Body) -> None:
    """Rule on generations of the first account behind something else on one connection."""
    first, second = context.target.valid, context.target.second
    own = read_money(context, first).document.get("address")
    to_itself: Body = {"to": own, "amount": AMOUNT, "memo": MEMO}
    asked: dict[str, tuple[str, Credential, Json]] = {
        "a stream": ("/inference", first, {**body, "stream": True}),
        "one of the second account": ("/inference", second, body),
        "a refused one": ("/inference", first, {"max_tokens": 1}),
        "a refused transfer": ("/wallet/send", first, {**to_itself, "amount": -AMOUNT}),
        "a transfer": ("/wallet/send", first, to_itself),
        "one with no valid token": ("/inference", INVENTED, body),
    }
    for name, (path, account, before) in asked.items():
        free = list[tuple[Answer, ...]]()
        for _ in range(TRIES):
            require_budget(context, AMOUNT)
            sent = context.kept([
                ("POST", API + path, account, before),
                ("GET", API + BALANCE.path, first, None),
                ("POST", f"{API}/inference", first, body),
            ])  # fmt: skip
            context.budget.charge(sum(map(_cost_of, sent)), SHORT * len(sent))
            if len(sent) < 3 or not sent[1].ok or not sent[2].ok:
                # The node has ended the connection, or asks to wait.
                continue
            lost = money_in(sent[1]).available - read_money(context, first).available
            if lost > EXACT:
                context.holds(AFTER, *sent[1:])
                break
            usual = taken(context, body, first)
            if usual is not None and usual[1] <= EXACT:
                # Nothing is charged, or not at once.
                break
            free += [] if usual is None else [(usual[0], *sent)]
        if len(free) == TRIES:
            why = f"a generation is charged at once, not behind {name} on one connection"
            context.fails(AFTER, why, *free[-1])


def _cost_of(answer: Answer) -> float:
    """Return what a transfer or a generation has taken, as its result says."""
    cost = lookup(answer.json_object() or {}, "cost.amount")
    return float(cost[0]) if cost and is_number(cost[0]) else fee_of(answer) if answer.ok else 0.0
