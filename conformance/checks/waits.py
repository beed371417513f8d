"""Interface 7.1, 429: whether generations are limited, and how long a target asks to wait.

The burst is one of the last checks: what comes after it may have to wait as long.
"""

import time
from collections.abc import Callable

from conformance import passive
from conformance.catalogue import Effect
from conformance.checks.payments import require_budget
from conformance.context import API, Context
from conformance.editions import FIFTH, FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer, Unanswered, retry_after_s
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

LIMITED, GENERATIONS, ENDS = "NA-ERR-033", "NA-ERR-032", "NA-ERR-034"
# What the body of a 429 shows.
REPORTED = tuple(f"NA-ERR-{number:03d}" for number in (1, 2, 3, 4, 6, 7, 28))
MOST = 150
# So much of the budget may be spent by them.
SHARE = 0.1
# A wait that is so many times as long as needed is in another unit.
FAR_ABOVE = 100
LOOKS, LOOK_S = 10, 1.0
# A wait is over, whatever others ask for, once it has passed so many times.
FEW = 3
# More generations at the same time than a server for a few clients takes.
MANY_AT_ONCE = 24
SHORT: Json = {"prompt": "Hello", "max_tokens": 1}


@requirement(GENERATIONS, LIMITED, ENDS, *REPORTED, name="rate-limit-generations")
def generations_limited(context: Context) -> None:
    """POST /inference as fast as possible until the first 429, for a few seconds at most."""
    if context.edition < FOURTH or not context.target.allows(Effect.SPEND):
        raise Skipped("needs --allow spend, and an edition that has this")

    def burst(requests: int, seconds: float) -> Answer | None:
        return context.http.burst(
            f"{API}/inference", max_requests=requests, within_s=seconds, credential=token,
            json_body=SHORT, at_once=MANY_AT_ONCE if context.edition >= FIFTH else None,
        )  # fmt: skip

    within_s, token = context.target.burst_s, context.target.valid
    try:
        served = context.infer(SHORT)
    except Unanswered as reason:
        limited = burst(1, LOOK_S) if reason.why.startswith("limited") else None
        if limited is not None and context.edition >= SIXTH:
            judge_wait(context, limited, lambda: burst(1, LOOK_S))
        raise
    cost = lookup(served.json_object() or {}, "cost.amount")
    price = float(cost[0]) if cost and is_number(cost[0]) else 0.0
    most = min(MOST, int(SHARE * context.target.budget / price)) if price > 0 else MOST
    require_budget(context, most * price)
    context.budget.charge(most * price)
    answer = burst(most, within_s)
    if answer is None:
        context.observe(GENERATIONS, f"no 429 in {within_s:g} s or {most} generations")
        return
    passive.judge_answer(context, answer)
    context.observe(GENERATIONS, "a 429 came", answer)
    judge_wait(context, answer, lambda: burst(1, LOOK_S))


def judge_wait(context: Context, limited: Answer, again: Callable[[], Answer | None]) -> None:
    """Rule on a wait that is far longer than the target needs; `again` returns a 429, or None."""
    wait_s, began = retry_after_s(limited), time.monotonic()
    for _ in range(LOOKS):
        time.sleep(LOOK_S)
        if again() is None:
            served_s = time.monotonic() - began
            why = f"retry_after is {wait_s:g}, and a request is served after {served_s:.0f} s"
            context.judge(LIMITED, wait_s < FAR_ABOVE * served_s, why, limited)
            context.holds(ENDS, limited)
            return
    if context.edition >= FIFTH and wait_s * FEW <= LOOKS * LOOK_S:
        why = f"retry_after is {wait_s:g}, and after {LOOKS * LOOK_S:g} s one request has a 429"
        context.fails(ENDS, why, limited)
