"""Interface 2.1: what generations at the same moment take, beside what they name as their cost."""

from concurrent.futures import ThreadPoolExecutor

from conformance.checks.money import EXACT, TRIES, Money, eventually, near, read_money, still
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

EACH = "NA-WALLET-095"
AT_ONCE = 3
BODY: dict[str, Json] = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
# Less than this share of all costs is no rounding.
NEARLY = 0.9


@requirement(EACH)
def charged_at_once(context: Context) -> None:
    """POST /inference by itself, then several at the same moment; compare costs and balances."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    if context.target.second_token is None:
        raise Skipped("the target declares no second_token")
    account = context.target.second
    if not _takes_its_cost(context, account):
        raise Skipped("a generation by itself does not take at once what it names as its cost")
    free: list[tuple[str, list[Answer]]] = []
    for _ in range(TRIES):
        before = still(context, account)
        if before is None:
            continue
        with context.http.gate.holding(AT_ONCE), ThreadPoolExecutor(AT_ONCE) as pool:
            made = list(pool.map(lambda _: context.infer(BODY, credential=account), range(AT_ONCE)))
        made = [answer for answer in made if answer.ok]
        costs = [_cost(answer) for answer in made]
        taken, after = _taken(context, account, before[0], sum(costs))
        if len(made) > 1 and min(costs) > EXACT and taken < NEARLY * sum(costs):
            why = f"{len(made)} generations at the same moment, of {sum(costs):g}, take {taken:g}"
            free.append((why, [before[0].answer, *made, after.answer]))
        elif len(made) > 1:
            context.holds(EACH, before[0].answer, *made, after.answer)
            return
    if len(free) == TRIES:
        context.fails(EACH, free[-1][0], *free[-1][1])


def _takes_its_cost(context: Context, account: Credential) -> bool:
    before = still(context, account)
    if before is None:
        raise Skipped("the balance moves")
    answer = context.infer(BODY, credential=account)
    cost = _cost(answer) if answer.ok else 0.0
    taken, _ = _taken(context, account, before[0], cost)
    return cost > EXACT and near(context, taken, cost)


def _taken(
    context: Context, account: Credential, before: Money, least: float
) -> tuple[float, Money]:
    """Return what has been taken as soon as it is as much, or after a while, and the balance."""
    seen = [before]

    def is_taken() -> bool:
        seen.append(read_money(context, account))
        return before.available - seen[-1].available >= least - EXACT

    eventually(is_taken)
    return before.available - seen[-1].available, seen[-1]


def _cost(answer: Answer) -> float:
    """Return the cost that a result names, 0 for none."""
    found = lookup(answer.json_object() or {}, "cost.amount")
    return float(found[0]) if found and is_number(found[0]) else 0.0
