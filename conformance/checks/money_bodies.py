"""Interface 4.1: bodies of the three routes that move money whose values have other types.

The document gives each value a type. A good body of the same amount is served before, so that
nothing but the value is at fault. What is accepted wrongly moves the smallest amount.
"""

from contextlib import suppress

from conformance.checks.history import newest
from conformance.checks.money import eventually, read_money, stake_unit, staked
from conformance.checks.node_sanity import FAILED
from conformance.checks.wallet import AMOUNT, DAYS, MEMO
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_number

Body = dict[str, Json]
SEND, STAKE, UNSTAKE = "/wallet/send", "/wallet/stake", "/wallet/unstake"
# Values that no reader can take for a number, a text, or anything at all.
IMPOSSIBLE: tuple[tuple[str, Body], ...] = (
    (SEND, {"amount": "much"}), (SEND, {"amount": [AMOUNT]}), (SEND, {"amount": {"units": 1}}),
    (SEND, {"amount": None}), (SEND, {"to": {"a": 1}}), (SEND, {"to": None}),
    (SEND, {"memo": {"a": 1}}), (STAKE, {"amount": "much"}), (STAKE, {"duration_days": "long"}),
    (STAKE, {"duration_days": [DAYS]}), (STAKE, {"amount": {"units": 1}}),
    (UNSTAKE, {"amount": "much"}), (UNSTAKE, {"amount": [AMOUNT]}),
)  # fmt: skip
# Lists of whole numbers, which a reader may look into. Since edition 6.
LISTS: tuple[tuple[str, Body], ...] = (
    (SEND, {"amount": [1]}), (STAKE, {"amount": [1]}), (UNSTAKE, {"amount": [1]}),
    (SEND, {"amount": []}), (SEND, {"memo": [MEMO]}),
)  # fmt: skip
# Values that a lenient reader takes for the documented type, or a careless one for an amount.
LENIENT: tuple[tuple[str, Body], ...] = (
    (SEND, {"amount": str(AMOUNT)}), (SEND, {"amount": True}), (SEND, {"memo": 7}),
    (SEND, {"to": 7}),
    (STAKE, {"amount": str(AMOUNT)}), (STAKE, {"duration_days": str(DAYS)}),
    (STAKE, {"duration_days": DAYS + 0.5}), (UNSTAKE, {"amount": str(AMOUNT)}),
    (STAKE, {"amount": -AMOUNT}), (UNSTAKE, {"amount": -AMOUNT}),
)  # fmt: skip
# Nothing at all; and stakes are of an amount that the target takes. Since this edition.
NOTHING: tuple[tuple[str, Body], ...] = ((UNSTAKE, {"amount": None}),)
NOTHING_SINCE = 4
# What a reader may take for one. Since edition 7.
ONES: tuple[tuple[str, Body], ...] = (
    (STAKE, {"amount": True}), (UNSTAKE, {"amount": True}),
)  # fmt: skip


@requirement("NA-WALLET-040", "NA-WALLET-041", "NA-WALLET-042", "NA-WALLET-044")
def money_bodies(context: Context) -> None:
    """POST a small transfer to the account itself, then bodies with a value of another type."""
    own = read_money(context, context.target.second).document.get("address")
    good: dict[str, Body] = {
        SEND: {"to": own, "amount": AMOUNT, "memo": MEMO},
        STAKE: {"amount": AMOUNT, "duration_days": DAYS},
        UNSTAKE: {"amount": AMOUNT},
    }
    control = _post(context, SEND, good[SEND])
    if not control.ok:
        raise Skipped(f"POST /wallet/send was answered with status {control.status}")
    _judge_listed(context, control)
    impossible, lenient = IMPOSSIBLE, LENIENT
    if context.edition >= NOTHING_SINCE:
        lenient += NOTHING
        if context.edition >= SEVENTH:
            lenient += ONES
            stake_unit(context, context.target.second)
        # Too small a stake would be refused whatever else is in it.
        with suppress(Skipped):
            good[STAKE]["amount"] = staked(context, context.target.second)[2]
    if context.edition >= SIXTH:
        impossible += LISTS
        lenient += ((STAKE, {"duration_days": None}),)
        # Whether a memo may be left out is not said.
        bare = _post(context, SEND, {"to": own, "amount": AMOUNT})
        why = f"POST {SEND} without a memo: status {bare.status}"
        context.judge("NA-WALLET-042", bare.status not in FAILED, why, bare)
    for ident, bodies in (("NA-WALLET-040", impossible), ("NA-WALLET-041", lenient)):
        for path, changed in bodies:
            answer = _post(context, path, {**good[path], **changed})
            inside = answer.ok and (answer.json_object() or {}).get("success") is False
            why = f"POST {path} with {brief(changed)}: status {answer.status}"
            context.judge("NA-WALLET-042", answer.status not in FAILED, why, answer)
            if answer.status not in FAILED:
                context.judge(ident, inside or not answer.ok, why, control, answer)


def _judge_listed(context: Context, sent: Answer) -> None:
    """Rule on the history of the account that has sent, which is not the first one's."""
    ident = (sent.json_object() or {}).get("transaction_id")
    shown: list[Answer] = []

    def listed() -> bool:
        answer, _, rows = newest(context, context.target.second)
        shown[:] = [answer]
        return ident in [row.get("id") for row in rows]

    if isinstance(ident, str):
        held = eventually(listed)
        why = f"{brief(ident)} is not in the history of the account that has sent it"
        context.judge("NA-WALLET-044", held, why, sent, *shown)


def _post(context: Context, path: str, body: Body) -> Answer:
    if context.budget.left < AMOUNT:
        raise context.budget.used_up()
    answer = context.api("POST", path, credential=context.target.second, json_body=body)
    fee = (answer.json_object() or {}).get("fee")
    if answer.ok:
        # What is sent stays with the account.
        amount = body["amount"] if path == STAKE and is_number(body["amount"]) else AMOUNT
        cost = fee if path == SEND and is_number(fee) else amount
        context.budget.charge(float(str(cost)))
    return answer
