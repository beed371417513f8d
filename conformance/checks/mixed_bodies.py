"""Interface 4.1: bodies of the node API in which one value is wrapped in an array or an object.

No reader can take `[0.01]` or `{"value": 0.01}` for a number. The other values are good ones, drawn
anew each time, so that what is refused does not depend on them; nothing that is refused may happen.
Amounts have drawn digits, by which a transfer or a stake is recognised that was made all the same.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import product

from conformance.checks.config import changeable, flat, nested, patch, read_config, restore
from conformance.checks.history import newest
from conformance.checks.money import EXACT, read_money, stake_unit, staked
from conformance.checks.node_sanity import FAILED
from conformance.checks.wallet import AMOUNT, DAYS
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.passive.events import tokens_of
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

Body = dict[str, Json]
SEND, STAKE, UNSTAKE = "/wallet/send", "/wallet/stake", "/wallet/unstake"
MONEY, LACKING = "NA-WALLET-050", "NA-WALLET-051"
NO_AMOUNT = "NA-WALLET-082"
PARAMETER, STATUS, CHANGE = "NA-INF-043", "NA-INF-044", "NA-PATCH-120"
# The names under which a value is put into an object.
NAMES = ("value", "text", "item", "0")
# What an amount or a duration might be called in an object of its own.
UNITS = ("days", "amount", "units", "number", "id", "address")
ATOM = 1e-6
DIGITS = range(101, 1000)
# A stake may have to be as large as this.
STAKED = 10.0


def wrapped(drawn: random.Random, value: Json) -> list[Json]:
    """Return a value in an array, and in an object."""
    return [[value], {drawn.choice(NAMES): value}]


def _refused(answer: Answer) -> bool:
    return not answer.ok or (answer.json_object() or {}).get("success") is False


# -- money -----------------------------------------------------------------------------------------


@requirement(MONEY, LACKING, NO_AMOUNT)
def money_wrapped(context: Context) -> None:
    """POST transfers, stakes and unstakes with one value in an array or an object."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    account = context.target.second
    money = read_money(context, account)
    own = money.document.get("address")
    known = {str(row.get("id")) for row in newest(context, account)[2]}
    amounts = [AMOUNT + number * ATOM for number in drawn.sample(DIGITS, 2)]
    # So that nothing but the value is at fault.
    control = _post(context, SEND, {"to": own, "amount": amounts[0], "memo": "a word"}, AMOUNT)
    if not control.ok:
        raise Skipped(f"POST {SEND} was answered with status {control.status}")
    _judge_lacking(context, {"to": own, "amount": amounts[0], "memo": "a word"})
    if context.edition >= SIXTH:
        if context.edition >= SEVENTH:
            stake_unit(context, account)
        if money.staked < AMOUNT:
            with suppress(Skipped):
                staked(context, account)
        lacking: tuple[tuple[str, Body], ...] = (STAKE, {"duration_days": DAYS}), (UNSTAKE, {})
        for path, body in lacking:
            answer = _post(context, path, body, AMOUNT)
            _judge_refused(context, NO_AMOUNT, f"POST {path}", body, answer)
    # It costs something only where it is accepted.
    large = min(STAKED, context.budget.left, money.available / 4) + amounts[1]
    good: dict[str, Body] = {
        SEND: {"to": own, "amount": amounts[1], "memo": "a word"},
        STAKE: {"amount": large, "duration_days": DAYS},
        UNSTAKE: {"amount": amounts[1]},
    }
    tried: list[tuple[str, Json, Json]] = [
        (path, {**body, key: value}, {key: value}) for path, body in good.items() for key in body
        for value in (*wrapped(drawn, body[key]), *({name: body[key]} for name in UNITS))
    ]  # fmt: skip
    refused: list[Answer] = []
    for path, body, wrong in drawn.sample(tried, len(tried)):
        answer = _post(context, path, body, large if path == STAKE else AMOUNT)
        refused += _judge_refused(context, MONEY, f"POST {path}", wrong, answer)
    if len(refused) == len(tried):
        _judge_moved(context, money.staked, known, (amounts[1], large), refused)


def _judge_lacking(context: Context, good: Body) -> None:
    """Rule on transfers that lack something, each directly behind one that was accepted."""
    for key in ("to", "amount"):
        body = {name: value for name, value in good.items() if name != key}
        answer = _post(context, SEND, body, AMOUNT)
        _judge_refused(context, LACKING, f"POST {SEND}", body, answer)
        if not _post(context, SEND, good, AMOUNT).ok:
            return


def _post(context: Context, path: str, body: Json, cost: float) -> Answer:
    if context.budget.left < AMOUNT:
        raise context.budget.used_up()
    answer = context.api("POST", path, credential=context.target.second, json_body=body)
    if answer.ok:
        # What is sent stays with the account.
        fee = (answer.json_object() or {}).get("fee")
        context.budget.charge(float(fee) if is_number(fee) else cost)
    return answer


def _judge_refused(
    context: Context, ident: str, path: str, wrong: Json, answer: Answer
) -> list[Answer]:
    """Rule on a body that no reader can take; return the answer if it is a refusal."""
    if answer.status in FAILED:
        # Whether it may fail is said by other requirements.
        return []
    refused = _refused(answer)
    why = f"{path} with {brief(wrong)} is answered with status {answer.status}"
    context.judge(ident, refused, why, answer)
    return [answer] if refused else []


def _judge_moved(
    context: Context, staked: float, known: set[str], amounts: tuple[float, float],
    refused: list[Answer],
) -> None:  # fmt: skip
    """Rule on what refused bodies have moved: an entry, or a stake, of just this amount."""
    sent, large = amounts
    answer, _, rows = newest(context, context.target.second)
    found = [
        row for row in rows if str(row.get("id")) not in known and _is_amount(row, sent, large)
    ]  # fmt: skip
    why = f"a transfer or stake of {sent:.6f} or {large:.6f} was refused, and is in the history"
    context.judge(MONEY, not found, f"{why}: {brief(found)}", refused[0], answer)
    later = read_money(context, context.target.second)
    more = later.staked - staked
    why = f"a stake of {large:.6f} was refused, and {more:.6f} more is staked"
    context.judge(MONEY, abs(more - large) > EXACT / 2, why, refused[0], later.answer)


def _is_amount(row: Body, *amounts: float) -> bool:
    found = row.get("amount")
    return is_number(found) and any(abs(abs(found) - one) < ATOM / 2 for one in amounts)


# -- generations -----------------------------------------------------------------------------------


def _good_body(drawn: random.Random) -> Body:
    """Draw a short body of POST /inference in which every parameter is good."""
    return {
        "prompt": drawn.choice(["Hello", "Once upon a time", "7"]), "max_tokens": 1,
        "temperature": drawn.choice([0, 0.5, 1]), "top_p": drawn.choice([0.5, 1]),
        "top_k": drawn.choice([5, 50]), "stop": [],
    }  # fmt: skip


def _bad_bodies(drawn: random.Random) -> Iterator[tuple[Body, Json]]:
    """Yield bodies with one value that no reader can take, and what is wrong in each."""
    for key in ("prompt", "max_tokens", "temperature", "top_p", "top_k"):
        for stream, form in drawn.sample(list(product((False, True), (0, 1))), 4):
            body = _good_body(drawn)
            value = wrapped(drawn, body[key])[form]
            others = [name for name in body if name != key and drawn.random() < 0.5]
            kept = {name: body[name] for name in ("prompt", "max_tokens", *others)}
            yield {**kept, key: value, "stream": stream}, {key: value, "stream": stream}
    yield {**_good_body(drawn), "stop": {"value": ["END"]}}, {"stop": {"value": ["END"]}}


@requirement(PARAMETER, STATUS)
def inference_wrapped(context: Context) -> None:
    """POST /inference with one value in an array or an object, with and without a stream."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    control = context.infer(_good_body(drawn))
    if not control.ok:
        raise Skipped(f"POST /inference was answered with status {control.status}")
    for body, wrong in _bad_bodies(drawn):
        answer = context.infer(body)
        if answer.ok and _is_told(answer):
            why = f"{brief(wrong)}: status {answer.status}, and {brief(answer.body)}"
            context.fails(STATUS, why, answer)
        elif answer.status not in (*FAILED, 402):
            why = f"POST /inference with {brief(wrong)} is served with status {answer.status}"
            context.judge(PARAMETER, not answer.ok, why, control, answer)
            if not answer.ok and body.get("stream"):
                context.holds(STATUS, answer)


def _is_told(answer: Answer) -> bool:
    """Return whether a stream tells an error instead of tokens."""
    return answer.json_object() is None and b'"error"' in answer.body and not tokens_of(answer)


# -- the configuration -----------------------------------------------------------------------------


@requirement(CHANGE)
def config_wrapped(context: Context) -> None:
    """PATCH harmless keys with values in an array or an object, and the change in an array."""
    drawn = random.Random(context.target.seed)  # noqa: S311 - no secret
    original = read_config(context)
    near = {path: values[0] for path, values in changeable(original).items()}
    if not near:
        raise Skipped("the configuration has none of the keys that the suite would change")
    tried = [(path, value) for path in near for value in wrapped(drawn, near[path])]
    try:
        for path, value in drawn.sample(tried, len(tried)):
            before = flat(read_config(context))
            answer = patch(context, nested({path: value}))
            refused = _judge_refused(context, CHANGE, "PATCH /config", {path: value}, answer)
            _judge_unchanged(context, before, {path: value}, refused)
        # More forms of a whole change may be taken, but not one that is refused.
        for body in ([nested(near)], {key: [value] for key, value in nested(near).items()}):
            before = flat(read_config(context))
            answer = patch(context, body)
            _judge_unchanged(context, before, near, [answer] if _refused(answer) else [])
    finally:
        restore(context, original)


def _judge_unchanged(context: Context, before: Body, sent: Body, answers: list[Answer]) -> None:
    """Rule on the keys that were ``sent``, after a change that cannot be taken."""
    if answers:
        after = flat(read_config(context))
        moved = {key: after.get(key) for key in sent if after.get(key) != before.get(key)}
        why = f"a change that no reader can take was answered with status {answers[0].status}"
        context.judge(CHANGE, not moved, f"{why}, and changed {brief(moved)}", *answers)
