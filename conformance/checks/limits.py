"""Interface 7.1, 429: whether a target ever limits requests, and how it reports that.

The document names no threshold, and a target without any limit conforms as well. The passive checks
judge the body of the answer.
"""

import time
from collections.abc import Callable

from conformance import passive
from conformance.catalogue import Effect
from conformance.checks.payments import require_budget
from conformance.context import API, Context
from conformance.findings import Skipped
from conformance.httpwire import Answer, retry_after_s
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, is_number

# Enough to meet a limit that is meant for clients, yet a small load for a server.
MAX_REQUESTS = 3000
MAX_GENERATIONS = 150
# So much of the budget may be spent by them.
SHARE = 0.1
# A wait that is so many times as long as needed is in another unit.
FAR_ABOVE = 100
LOOKS, LOOK_S = 10, 1.0
LIMITED_S = "NA-ERR-033"
SHORT: Json = {"prompt": "Hello", "max_tokens": 1}


@requirement(
    LIMITED_S, "NA-ERR-015", *(f"NA-ERR-{number:03d}" for number in (1, 2, 3, 4, 6, 7, 28))
)
def rate_limit(context: Context) -> None:
    """GET /status as fast as possible until the first 429, for a few seconds at most."""
    within_s = context.target.burst_s
    answer = context.http.burst(f"{API}/status", max_requests=MAX_REQUESTS, within_s=within_s)
    if answer is None:
        context.observe("NA-ERR-015", f"no 429 in {within_s:g} s or {MAX_REQUESTS} requests")
        return
    passive.judge_answer(context, answer)
    context.observe("NA-ERR-015", "a 429 came", answer)
    _judge_wait(context, answer, lambda: context.http.burst(
        f"{API}/status", max_requests=1, within_s=LOOK_S
    ))  # fmt: skip
    # This waits as long as the 429 asks for, so that the next check meets a target that serves.
    context.api("GET", "/status")


@requirement(
    LIMITED_S, "NA-ERR-032", *(f"NA-ERR-{number:03d}" for number in (1, 2, 3, 4, 6, 7, 28)),
    name="rate-limit-generations",
)  # fmt: skip
def generations_limited(context: Context) -> None:
    """POST /inference as fast as possible until the first 429, for a few seconds at most."""
    if not context.target.allows(Effect.SPEND):
        raise Skipped("needs --allow spend")
    cost = lookup(context.infer(SHORT).json_object() or {}, "cost.amount")
    price = float(cost[0]) if cost and is_number(cost[0]) else 0.0
    most = MAX_GENERATIONS
    if price > 0:
        most = min(most, int(SHARE * context.target.budget / price))
    require_budget(context, most * price)
    context.budget.charge(most * price)
    within_s, token = context.target.burst_s, context.target.valid

    def burst(requests: int, seconds: float) -> Answer | None:
        return context.http.burst(
            f"{API}/inference", max_requests=requests, within_s=seconds, credential=token,
            json_body=SHORT,
        )  # fmt: skip

    answer = burst(most, within_s)
    if answer is None:
        context.observe("NA-ERR-032", f"no 429 in {within_s:g} s or {most} generations")
        return
    passive.judge_answer(context, answer)
    context.observe("NA-ERR-032", "a 429 came", answer)
    _judge_wait(context, answer, lambda: burst(1, LOOK_S))


def _judge_wait(context: Context, limited: Answer, again: Callable[[], Answer | None]) -> None:
    """Rule on a wait that is far longer than the target needs; `again` returns a 429, or None."""
    wait_s, began = retry_after_s(limited), time.monotonic()
    for _ in range(LOOKS):
        time.sleep(LOOK_S)
        if again() is None:
            served_s = time.monotonic() - began
            why = f"retry_after is {wait_s:g}, and a request is served after {served_s:.0f} s"
            context.judge(LIMITED_S, wait_s < FAR_ABOVE * served_s, why, limited)
            return
