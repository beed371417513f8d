"""Interface 7.1, 429: whether a target ever limits requests, and how it reports that.

The document names no threshold, and a target without any limit conforms as well. The passive checks
judge the body of the answer.
"""

from conformance import passive
from conformance.checks.waits import ENDS, LIMITED, LOOK_S, REPORTED, judge_wait
from conformance.context import API, Context
from conformance.registry import requirement

# Enough to meet a limit that is meant for clients, yet a small load for a server.
MAX_REQUESTS = 3000


@requirement("NA-ERR-015", LIMITED, ENDS, *REPORTED)
def rate_limit(context: Context) -> None:
    """GET /status as fast as possible until the first 429, for a few seconds at most."""
    within_s = context.target.burst_s
    answer = context.http.burst(f"{API}/status", max_requests=MAX_REQUESTS, within_s=within_s)
    if answer is None:
        context.observe("NA-ERR-015", f"no 429 in {within_s:g} s or {MAX_REQUESTS} requests")
        return
    passive.judge_answer(context, answer)
    context.observe("NA-ERR-015", "a 429 came", answer)
    judge_wait(context, answer, lambda: context.http.burst(
        f"{API}/status", max_requests=1, within_s=LOOK_S
    ))  # fmt: skip
    # This waits as long as the 429 asks for, so that the next check meets a target that serves.
    context.api("GET", "/status")
